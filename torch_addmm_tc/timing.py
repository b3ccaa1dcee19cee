"""Timing callables against each other: interleaved in one run, medians over rounds, on a GPU through CUDA graphs.

A graph replay leaves out the host's cost of each call, which can exceed a small kernel's own time. A GPU's clock follows the
power drawn over the last milliseconds, so that a contender would pay for the one before it (a loop of mma.sync on an H200:
434 TFLOP/s after a wgmma kernel, 603 after 20 ms of rest): each starts rested.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Timing:
    """Seconds per call: the median over rounds, and the fastest and slowest round."""

    median: float
    fastest: float
    slowest: float

    @property
    def spread(self) -> float:
        """Half the range of the rounds over their median."""
        return (self.slowest - self.fastest) / (2 * self.median)


def _captured(calls: Sequence[Callable[[], object]]) -> Callable[[], float]:
    """A function that replays the calls as one CUDA graph and returns the seconds that took."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # libraries set themselves up outside the capture
        calls[0]()
    torch.cuda.current_stream().wait_stream(stream)
    graph, start, end = torch.cuda.CUDAGraph(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.graph(graph):
        results = [call() for call in calls]  # all alive together, so that each call writes memory of its own
    del results

    def replay():
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    return replay


def _looped(calls: Sequence[Callable[[], object]]) -> Callable[[], float]:
    def run():
        begin = time.perf_counter()
        for call in calls:
            call()
        return time.perf_counter() - begin

    return run


def interleaved(
    contenders: Mapping[str, Sequence[Callable[[], object]]], *, cuda: bool, rounds: int = 9, seconds: float = 0.02
) -> dict[str, Timing]:
    """Times each contender's calls. A contender is a list of calls, one for each set of operands it rotates through.

    In each round every contender runs for about `seconds`, in turn, on a GPU after resting twice as long; two rounds of
    warm-up come first.
    """
    runs = {name: (_captured if cuda else _looped)(calls) for name, calls in contenders.items()}
    repeats = {}
    for name, run in runs.items():
        run()
        repeats[name] = max(1, round(seconds / max(run(), 1e-7)))
    samples = {name: [] for name in runs}
    for _ in range(rounds + 2):
        for name, run in runs.items():
            if cuda:
                time.sleep(2 * seconds)
            samples[name].append(sum(run() for _ in range(repeats[name])) / (repeats[name] * len(contenders[name])))
    kept = {name: s[2:] for name, s in samples.items()}
    return {name: Timing(statistics.median(s), min(s), max(s)) for name, s in kept.items()}


def host_seconds(contenders: Mapping[str, Callable[[], object]], *, cuda: bool, calls: int = 300, rounds: int = 9):
    """Median seconds that the host spends in one eager call of each contender, taken in turn, the GPU kept from falling
    behind by short rounds."""
    samples = {name: [] for name in contenders}
    for _ in range(rounds + 2):
        for name, call in contenders.items():
            if cuda:
                torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            samples[name].append((time.perf_counter() - begin) / calls)
    if cuda:
        torch.cuda.synchronize()
    return {name: statistics.median(s[2:]) for name, s in samples.items()}
