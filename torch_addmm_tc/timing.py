"""Timing of callables against each other: they are interleaved in one run, and each time is the median over rounds.

Calls on a GPU are replayed as CUDA graphs, because the host's cost of a call can exceed a small kernel's time.

Each contender starts after a rest, because the GPU's clock follows the power of the last milliseconds. A loop of mma.sync on
an H200 reaches 434 TFLOP/s right after a wgmma kernel and 603 TFLOP/s after 20 ms of rest (bench/ceilings.cu). Rests can be
left out, to time contenders on a busy GPU. The order of contenders changes from round to round, because a contender without a
rest runs at the clock that those before it have left.
"""

import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Timing:
    """Seconds per call: the median over rounds, the fastest round and the slowest round."""

    median: float
    fastest: float
    slowest: float

    @property
    def spread(self) -> float:
        """Half the difference of the slowest and the fastest round, as a fraction of the median."""
        return (self.slowest - self.fastest) / (2 * self.median)


def _captured(calls: Sequence[Callable[[], object]]) -> Callable[[], float]:
    """Return a function that replays the calls as one CUDA graph and returns the replay's seconds."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # a library initialises itself in its first call; a capture forbids it
        calls[0]()
    torch.cuda.current_stream().wait_stream(stream)
    graph, start, end = torch.cuda.CUDAGraph(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.graph(graph):
        results = [call() for call in calls]  # keeping all results makes each call write its own memory
    del results

    def replay():
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    return replay


def _looped(calls: Sequence[Callable[[], object]]) -> Callable[[], float]:
    """Return a function that makes the calls and returns their wall-clock seconds."""

    def run():
        begin = time.perf_counter()
        for call in calls:
            call()
        return time.perf_counter() - begin

    return run


def in_turn(names: Iterable[str], rounds: int) -> Iterator[tuple[int, str]]:
    """Yield (round, name): every name once a round, in an order that differs from round to round."""
    order, generator = list(names), random.Random(0)
    for done in range(rounds):
        generator.shuffle(order)
        for name in order:
            yield done, name


def interleaved(
    contenders: Mapping[str, Sequence[Callable[[], object]]],
    *,
    cuda: bool,
    rounds: int = 9,
    seconds: float = 0.02,
    rests: bool = True,
) -> dict[str, Timing]:
    """Time contenders in turn, in an order that differs from round to round.

    Args:
        contenders: name -> calls, one call for each set of operands that the contender rotates through.
        cuda: whether the calls run on the current CUDA device. They are then captured into a CUDA graph.
        rounds: rounds that count. Two rounds of warm-up precede them.
        seconds: how long a contender runs in each round, about.
        rests: whether a contender on a GPU rests for 2 * seconds before its turn. Without rests the GPU is as busy as a loaded
            server's.

    Returns:
        name -> Timing of one call.
    """
    runs = {name: (_captured if cuda else _looped)(calls) for name, calls in contenders.items()}
    repeats = {}
    for name, run in runs.items():
        run()
        repeats[name] = max(1, round(seconds / max(run(), 1e-7)))
    samples = {name: [] for name in runs}
    for _, name in in_turn(runs, rounds + 2):
        run = runs[name]
        if cuda and rests:
            time.sleep(2 * seconds)
        samples[name].append(sum(run() for _ in range(repeats[name])) / (repeats[name] * len(contenders[name])))
    kept = {name: s[2:] for name, s in samples.items()}
    return {name: Timing(statistics.median(s), min(s), max(s)) for name, s in kept.items()}


def host_seconds(
    contenders: Mapping[str, Callable[[], object]], *, cuda: bool, calls: int = 300, rounds: int = 9
) -> dict[str, float]:
    """Time the host's part of eager calls, contenders in turn.

    Args:
        contenders: name -> call.
        cuda: whether the calls launch work on the current CUDA device. The host then waits for the GPU before each
            contender's turn, because a full launch queue would block the calls.
        calls: calls of a contender in each round. It must be small enough not to fill the launch queue.
        rounds: rounds that count. Two rounds of warm-up precede them.

    Returns:
        name -> median seconds of one call.
    """
    samples = {name: [] for name in contenders}
    for _, name in in_turn(contenders, rounds + 2):
        if cuda:
            torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            contenders[name]()
        samples[name].append((time.perf_counter() - begin) / calls)
    if cuda:
        torch.cuda.synchronize()
    return {name: statistics.median(s[2:]) for name, s in samples.items()}
