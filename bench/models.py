"""Real networks with random weights, with torch's products and with this package's.

    python -m bench.models [--json FILE] [--float32] [--matmul-attention] [--small] [--only TEXT] [--task TASK] [--rounds N]

The command needs transformers. The networks are GPT-2 (Conv1D layers and a head of 50257 tokens), a BERT encoder, Llama-style
layers and a ViT, in fp16 and bf16 or, with --float32, in float32 without TF32. The tasks are prefill and, for networks that
generate text, decoding with a cache.

Each network runs in these modes, which take turns: eager, inside enabled(), with swap_linears, compiled, and compiled with
compile_options(). A time is the wall clock of a whole forward call. Decoding is host-bound, and the host's time varies more
than the kernels' time: the spread is large.

The results also have the GPU time of a call, the part of it that products take (with their fused activations), the error
against the same network in float32 (float64 for float32) and, for GPT-2, the number of greedy steps that give torch's tokens.

--matmul-attention writes attention with torch.matmul instead of a fused kernel. --small runs tiny networks. They need no GPU.
"""

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from rich.progress import track

import torch_addmm_tc as tc
from bench.timing import record
from torch_addmm_tc import timing

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# The operators that the profiler counts as products: this package's, or torch's if this package's did not run.
OURS = {"tc::addmm", "tc::baddbmm"}
PRODUCTS = {"aten::addmm", "aten::mm", "aten::_addmm_activation", "aten::bmm", "aten::baddbmm"}
# Modes whose GPU time is compared: without this package, with this package.
PAIRS = ("torch", "enabled()"), ("torch.compile", "torch.compile, compile_options()")
OF_THEIRS = {ours: theirs for theirs, ours in PAIRS} | {"swap_linears": "torch"}  # a mode of this package: torch's own
GREEDY_STEPS = 64
ERROR = "error against "  # of a row's key; the dtype of the network that is taken for exact follows


@dataclass(frozen=True)
class Network:
    """A network and the calls that are measured.

    Args:
        name: the network's name.
        build: returns the network in float32 on the CPU.
        batches: (sequences, tokens per sequence) of each prefill. For a ViT: (images, 1).
        decodes: the sequences of each decoding step.
        image: pixels of an image's side. 0 for a network that takes tokens.
    """

    name: str
    build: Callable[[], torch.nn.Module]
    batches: tuple[tuple[int, int], ...]
    decodes: tuple[int, ...] = ()
    image: int = 0


def networks(small: bool, matmul_attention: bool = False) -> list[Network]:
    """Return the networks, or tiny versions of them."""
    t, attention = transformers, {"attn_implementation": "eager"} if matmul_attention else {}
    width, layers, heads, vocabulary = (64, 2, 4, 501) if small else (768, 12, 12, 50257)
    special = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, **attention}
    gpt2 = t.GPT2Config(n_embd=width, n_layer=layers, n_head=heads, vocab_size=vocabulary, **special)
    bert = t.BertConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        vocab_size=vocabulary,
        **attention,
    )
    llama = t.LlamaConfig(
        hidden_size=64 if small else 4096, intermediate_size=224 if small else 14336, num_hidden_layers=2, vocab_size=501,
        num_attention_heads=4 if small else 32, num_key_value_heads=2 if small else 8, **special,
    )  # fmt: skip
    side = 32 if small else 224
    vit = t.ViTConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * width, image_size=side,
        **attention,
    )  # fmt: skip
    few = (2, 16) if small else None
    return [
        Network("GPT-2", lambda: t.GPT2LMHeadModel(gpt2), (few or (8, 1024),), (1, 16)),
        Network("BERT encoder", lambda: t.BertModel(bert), (few or (16, 512),)),
        Network("Llama-style, 2 layers", lambda: t.LlamaForCausalLM(llama), (few or (2, 2048),), (1, 16)),
        Network("ViT", lambda: t.ViTModel(vit), ((2, 1) if small else (64, 1),), image=side),
    ]


def output(result) -> torch.Tensor:
    """Return the logits or, for a network without a head, the last hidden state."""
    return result.logits if "logits" in result else result.last_hidden_state


def prefill(network, sequences, tokens):
    """Return random arguments of a forward call."""
    if network.image:
        return {"pixel_values": torch.randn(sequences, 3, network.image, network.image, device=DEVICE)}
    return {"input_ids": torch.randint(0, 500, (sequences, tokens), device=DEVICE)}


def call(model, arguments) -> Callable[[], torch.Tensor]:
    """Return a function that makes one forward call without a cache. `arguments` is cast to the model's dtype."""
    dtype = next(model.parameters()).dtype
    cast = {name: x.to(dtype) if x.is_floating_point() else x for name, x in arguments.items()}
    extra = {} if "pixel_values" in cast or not hasattr(model, "lm_head") else {"use_cache": False}
    return lambda: output(model(**cast, **extra))


def decode(model, sequences, context) -> Callable[[], torch.Tensor]:
    """Return a function that makes one decoding step after `context` tokens.

    The function crops the cache after the step, so that every step is the same.
    """
    ids = torch.randint(0, 500, (sequences, context), device=DEVICE)
    cache = model(input_ids=ids, use_cache=True).past_key_values

    def step():
        result = model(input_ids=ids[:, -1:], past_key_values=cache, use_cache=True).logits
        cache.crop(-1)
        return result

    return step


def modes(model, *, compiled: bool) -> dict:
    """Return {mode: (model, context manager to call the model in)}. `compiled` adds the compiled modes."""
    result = {
        "torch": (model, nullcontext),
        "enabled()": (model, lambda: tc.enabled(DEVICE)),
        "swap_linears": (tc.swap_linears(copy.deepcopy(model)), nullcontext),
    }
    if compiled:
        result["torch.compile"] = torch.compile(model), nullcontext
        result["torch.compile, compile_options()"] = torch.compile(model, options=tc.compile_options()), nullcontext
    return result


def milliseconds(contenders, rounds) -> tuple[dict, dict]:
    """Time a call of each contender in turn, GPU work included.

    Args:
        contenders: name -> (function, context manager).
        rounds: rounds that count. Three rounds of warm-up precede them.

    Returns:
        (name -> median wall-clock milliseconds, name -> spread). A spread is half the distance of the quartiles, as a fraction
        of the median.
    """
    samples = {name: [] for name in contenders}
    wait = torch.cuda.synchronize if DEVICE == "cuda" else lambda: None
    for done, name in timing.in_turn(contenders, rounds + 3):
        function, context = contenders[name]
        with context():
            wait()
            begin = time.perf_counter()
            function()
            wait()
        if done >= 3:
            samples[name].append(1e3 * (time.perf_counter() - begin))
    quartiles = {name: statistics.quantiles(times) if rounds > 1 else times * 3 for name, times in samples.items()}
    return (
        {name: median for name, (_, median, _) in quartiles.items()},
        {name: (high - low) / (2 * median) for name, (low, median, high) in quartiles.items()},
    )


def within_product(event) -> bool:
    """Whether an event of a profile is part of a product's time: inside enabled() an operator of torch calls the op."""
    while event := event.cpu_parent:
        if event.name in OURS | PRODUCTS:
            return True
    return False


def work(function, context) -> tuple[float, float]:
    """Profile one call. Return its milliseconds of work on the GPU (or, without one, the CPU), and those of its products."""
    on_gpu = DEVICE == "cuda"
    activity = torch.profiler.ProfilerActivity
    with context(), torch.profiler.profile(activities=[activity.CPU] + [activity.CUDA] * on_gpu) as profile:
        function()
    events = profile.key_averages()
    if on_gpu:  # only kernels count: the operators that launched them have the same time again
        kernels = (e for e in events if e.device_type == torch.autograd.DeviceType.CUDA and not e.is_user_annotation)
        total = sum(e.self_device_time_total for e in kernels)
    else:
        total = sum(e.self_cpu_time_total for e in events)
    outermost = (e for e in profile.events() if e.name in OURS | PRODUCTS and not within_product(e))
    products = sum(e.device_time_total if on_gpu else e.cpu_time_total for e in outermost)
    return total / 1e3, products / 1e3


def relative_error(result, exact) -> float:
    """Return the norm of the difference over the norm of `exact`."""
    return float((result.double() - exact.double()).norm() / exact.double().norm())


def greedy(model, context):
    """Generate 64 tokens greedily after 16 given tokens.

    Returns:
        (tokens, leads). A step's lead is the difference of its two highest logits.
    """
    ids = torch.arange(16, device=DEVICE)[None]
    cache, tokens, leads = None, [], []
    with context():
        for _ in range(GREEDY_STEPS):
            result = model(input_ids=ids, past_key_values=cache, use_cache=True)
            cache, best = result.past_key_values, result.logits[0, -1].float().topk(2)
            ids = best.indices[:1, None]
            tokens.append(int(ids))
            leads.append(float(best.values[0] - best.values[1]))
    return tokens, leads


def measure(network, dtype, rounds, *, small, only="") -> list[dict]:
    """Measure a network's tasks in every mode.

    Args:
        network: a Network.
        dtype: the dtype to cast the network to.
        rounds: rounds of a prefill. A decoding step takes four times as many.
        small: whether the network is a tiny one.
        only: "prefill", "decode", or "" for both.
    """
    torch.manual_seed(0)
    exact = network.build().eval().requires_grad_(False).to(DEVICE)
    model = copy.deepcopy(exact)
    for parameter in model.parameters():  # not buffers: rounded frequencies of a position's angle would make most of the error
        parameter.data = parameter.data.to(dtype)
    if dtype == torch.float32:
        exact = exact.double()
    rows = []
    tasks = [("prefill", *batch) for batch in network.batches] + [("decode", n, 16 if small else 512) for n in network.decodes]
    for kind, sequences, tokens in tasks:
        if only not in kind:
            continue
        row = {"network": network.name, "dtype": str(dtype).removeprefix("torch."), "task": kind, "batch": [sequences, tokens]}
        arguments = prefill(network, sequences, tokens)
        torch._dynamo.reset()
        contenders = {}
        for name, (variant, context) in modes(model, compiled=kind == "prefill").items():
            function = call(variant, arguments) if kind == "prefill" else decode(variant, sequences, tokens)
            contenders[name] = function, context
        factor = 4 if kind == "decode" else 1  # decoding is host-bound, and the host's time varies more
        row["milliseconds"], row["spread"] = milliseconds(contenders, factor * rounds)
        profiled = {name: work(*contenders[name]) for pair in PAIRS for name in pair if name in contenders}
        row["milliseconds of work"] = {name: total for name, (total, _) in profiled.items()}
        row["milliseconds of products"] = {name: products for name, (_, products) in profiled.items()}
        if kind == "prefill":
            expected = call(exact, arguments)()
            errors = row[ERROR + str(expected.dtype).removeprefix("torch.")] = {}
            for name, (function, context) in contenders.items():
                with context():
                    errors[name] = relative_error(function(), expected)
        rows.append(row)
    if network.name == "GPT-2" and rows:
        theirs, leads = greedy(model, nullcontext)
        ours, _ = greedy(model, lambda: tc.enabled(DEVICE))
        same = next((i for i, (x, y) in enumerate(zip(ours, theirs, strict=True)) if x != y), GREEDY_STEPS)
        rows[0]["greedy steps alike"] = same
        if same < GREEDY_STEPS:  # a small lead means that rounding decided
            rows[0]["lead of torch's token where they part"] = leads[same]
    return rows


def errors_of(row) -> dict:
    """Return {mode: relative error} of a row, empty for a decoding step."""
    return next((errors for key, errors in row.items() if key.startswith(ERROR)), {})


def worse_than_torch(rows) -> list[str]:
    """Return the name of each mode of this package whose error in a row exceeds 1.05 times that of torch's own mode."""
    found = []
    for errors in map(errors_of, rows):
        found += [ours for ours, theirs in OF_THEIRS.items() if ours in errors and not errors[ours] <= 1.05 * errors[theirs]]
    return found


def table(result) -> str:
    """Return a markdown table of a result."""
    names = max((list(row["milliseconds"]) for row in result["rows"]), key=len)
    exact = {key.removeprefix(ERROR) for row in result["rows"] for key in row if key.startswith(ERROR)}
    lines = [
        "A mode's column gives the median time of a forward call, its spread and its speed relative to torch. The GPU columns "
        "give the GPU time of a call and, in parentheses, the part that products take, without and with this package. The last "
        f"column gives the relative error against {' or '.join(sorted(exact)) or 'float32'}: the largest of this package's "
        "modes, and torch's.\n",
        f"| network | task | dtype | {' | '.join(names)} | GPU (products), eager | GPU (products), compiled | error |",
        "|---" * (len(names) + 6) + "|",
    ]
    for row in result["rows"]:
        times, errors = row["milliseconds"], errors_of(row)
        cells = [
            f"{times[n]:.2f} ms ±{row['spread'][n]:.0%} ({times['torch'] / times[n]:.2f}x)" if n in times else "" for n in names
        ]
        total, products = row["milliseconds of work"], row["milliseconds of products"]
        for pair in PAIRS:
            cells.append(", ".join(f"{total[name]:.2f} ms ({products[name]:.2f} ms)" for name in pair if name in total))
        worst = max((errors[x] for x in OF_THEIRS if x in errors), key=lambda x: (x != x, x), default=0)  # NaN is the worst
        cells.append(f"{worst:.1e}, torch {errors['torch']:.1e}" if errors else "")
        batch = "x".join(map(str, row["batch"]))
        lines.append(f"| {row['network']} | {row['task']} {batch} | {row['dtype']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(prog="python -m bench.models", description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file and the table to the .md file beside it")
    parser.add_argument("--float32", action="store_true", help="run in float32 without TF32, instead of the 16-bit dtypes")
    parser.add_argument("--matmul-attention", action="store_true", help="write attention with torch.matmul")
    parser.add_argument("--small", action="store_true", help="run tiny networks")
    parser.add_argument("--only", default="", help="run only networks whose name contains this")
    parser.add_argument(
        "--task", default="", choices=("", "prefill", "decode"), help="run only this task; the default runs both"
    )
    parser.add_argument("--rounds", type=int, default=15, help="rounds of a prefill; a decoding step takes four times as many")
    options = parser.parse_args()
    every = networks(options.small, options.matmul_attention)
    chosen = [network for network in every if options.only in network.name]
    if not chosen:
        parser.error(f"--only {options.only!r} matches no network; they are {', '.join(n.name for n in every)}")
    result = {"record": record() if DEVICE == "cuda" else {}, "rows": []}
    with torch.inference_mode():
        for network in track(chosen, "models"):
            for dtype in (torch.float32,) if options.float32 else (torch.float16, torch.bfloat16):
                result["rows"] += measure(network, dtype, options.rounds, small=options.small, only=options.task)
                if options.json:
                    options.json.write_text(json.dumps(result, indent=1) + "\n")
    text = table(result)
    print(text)
    if options.json:
        options.json.with_suffix(".md").write_text(text)
    if worse := worse_than_torch(result["rows"]):
        raise SystemExit(f"{len(worse)} errors exceed 1.05 times torch's: {', '.join(worse)}")


if __name__ == "__main__":
    main()
