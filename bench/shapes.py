"""The problems of the survey, drawn from a seed: linear layers of public models, vision, recommenders and log-uniform sizes.

Drawing needs no GPU.
"""

import math
import random
from dataclasses import dataclass, replace
from functools import partial

from bench.report import Problem

# Sizes of models by their published configurations: hidden, query, key (= value), intermediate, vocabulary (padded as in the
# weights). A gated MLP has two projections to its intermediate size, a plain MLP has one.
GATED = {
    "Llama 2 7B": (4096, 4096, 4096, 11008, 32000), "Llama 2 13B": (5120, 5120, 5120, 13824, 32000),
    "Llama 3 8B": (4096, 4096, 1024, 14336, 128256), "Llama 3 70B": (8192, 8192, 1024, 28672, 128256),
    "Llama 3.1 405B": (16384, 16384, 1024, 53248, 128256), "Llama 3.2 1B": (2048, 2048, 512, 8192, 128256),
    "Mistral 7B, Mixtral 8x7B": (4096, 4096, 1024, 14336, 32000), "Qwen2.5 0.5B": (896, 896, 128, 4864, 151936),
    "Qwen2.5 7B": (3584, 3584, 512, 18944, 152064), "Qwen2.5 14B": (5120, 5120, 1024, 13824, 152064),
    "Qwen2.5 32B": (5120, 5120, 1024, 27648, 152064), "Qwen2.5 72B": (8192, 8192, 1024, 29568, 152064),
    "Qwen3 8B": (4096, 4096, 1024, 12288, 151936), "Qwen3 32B": (5120, 8192, 1024, 25600, 151936),
    "Gemma 2 9B": (3584, 4096, 2048, 14336, 256000), "Gemma 2 27B": (4608, 4096, 2048, 36864, 256000),
    "Gemma 3 1B": (1152, 1024, 256, 6912, 262144), "Gemma 3 12B": (3840, 4096, 2048, 15360, 262208),
    "Phi-3 mini": (3072, 3072, 3072, 8192, 32064), "Phi-4": (5120, 5120, 1280, 17920, 100352),
    "Yi 34B": (7168, 7168, 1024, 20480, 64000), "InternLM2 20B": (6144, 6144, 1024, 16384, 92544),
    "ChatGLM3 6B": (4096, 4096, 256, 13696, 65024), "SmolLM2 360M": (960, 960, 320, 2560, 49152),
}  # fmt: skip
PLAIN = {
    "GPT-2": (768, 768, 768, 3072, 50257), "GPT-2 XL": (1600, 1600, 1600, 6400, 50257),
    "GPT-NeoX 20B": (6144, 6144, 6144, 24576, 50432), "Pythia 1.4B": (2048, 2048, 2048, 8192, 50304),
    "Falcon 7B": (4544, 4544, 64, 18176, 65024), "Falcon 40B": (8192, 8192, 512, 32768, 65024),
    "OPT 13B": (5120, 5120, 5120, 20480, 50272), "BLOOM 7B": (4096, 4096, 4096, 16384, 250880),
    "BLOOM 176B": (14336, 14336, 14336, 57344, 250880), "StarCoder2 7B": (4608, 4608, 512, 18432, 49152),
    "BERT-base": (768, 768, 768, 3072, 30522), "BERT-large": (1024, 1024, 1024, 4096, 30522),
    "T5-base": (768, 768, 768, 3072, 32128), "ViT-L": (1024, 1024, 1024, 4096, 1000),
    "Whisper large-v3": (1280, 1280, 1280, 5120, 51866),
}  # fmt: skip
# (layer, N, K, the size that tensor parallelism slices). The attention's ranks are 1536 and 512 + 64. Each of its 128 heads has
# 128 + 64 elements.
DEEPSEEK_V3 = [
    ("q_a and kv_a", 2112, 7168, ""), ("q_b", 24576, 1536, "N"), ("kv_b", 32768, 512, "N"), ("attention out", 7168, 16384, "K"),
    ("dense gate and up", 36864, 7168, "N"), ("dense down", 7168, 18432, "K"),
    ("shared expert gate and up", 4096, 7168, "N"), ("shared expert down", 7168, 2048, "K"),
]  # fmt: skip


def _layers(hidden, query, key, intermediate, vocabulary, *, gated):
    """Return (layer, N, K, the size that tensor parallelism slices) of every linear layer."""
    return [
        ("qkv", query + 2 * key, hidden, "N"), ("query", query, hidden, "N"), ("key", key, hidden, "N"),
        ("attention out", hidden, query, "K"), ("up", intermediate, hidden, "N"), ("down", hidden, intermediate, "K"),
        ("head", vocabulary, hidden, "N"), *([("gate and up", 2 * intermediate, hidden, "N")] if gated else []),
    ]  # fmt: skip


MODELS = {"DeepSeek-V3": DEEPSEEK_V3}
MODELS |= {name: _layers(*sizes, gated=True) for name, sizes in GATED.items()}
MODELS |= {name: _layers(*sizes, gated=False) for name, sizes in PLAIN.items()}

# 1x1 convolutions: (network, side of the image, channels, channels) of each stage, which runs both ways.
CONVOLUTIONS = [
    *(("ResNet-50", side, x, 4 * x) for side, x in ((56, 64), (28, 128), (14, 256), (7, 512))),
    *(("ResNet-50", side, x, 2 * x) for side, x in ((28, 256), (14, 512), (7, 1024))),
    *(("ConvNeXt-T", side, x, 4 * x) for side, x in ((56, 96), (28, 192), (14, 384), (7, 768))),
    *(("ConvNeXt-B", side, x, 4 * x) for side, x in ((56, 128), (28, 256), (14, 512), (7, 1024))),
    *(("EfficientNet-B0", side, x, 6 * x) for side, x in ((112, 16), (56, 24), (28, 40), (14, 80), (14, 112), (7, 192))),
]
# (source, rows of an image, N, K). A patch embedding's K is 3 colours x the pixels of a patch.
VISION = [
    ("ResNet-50 stem", 112 * 112, 64, 147), ("Swin-T patches", 56 * 56, 96, 48), ("ViT-B/16 patches", 14 * 14, 768, 768),
    ("ViT-B/32 patches", 7 * 7, 768, 3072), ("ViT-L/14 patches", 16 * 16, 1024, 588),
    *((f"{name} 1x1", side * side, *channels) for name, side, x, y in CONVOLUTIONS for channels in ((x, y), (y, x))),
]  # fmt: skip
MLPS = {
    "DLRM bottom": (13, 512, 256, 128), "DLRM top": (479, 1024, 1024, 512, 256, 1), "wide and deep": (1000, 1024, 512, 256),
    "DeepFM": (624, 400, 400, 400, 1), "DIN": (144, 80, 40, 3), "two towers": (200, 64, 32, 32), "ranker": (100, 300, 128),
}  # fmt: skip
RECOMMENDERS = [(name, n, k) for name, sizes in MLPS.items() for k, n in zip(sizes, sizes[1:])]
BATCHES = (256, 500, 1024, 2000, 2048, 4096, 8192, 10_000, 16384, 20_000, 32768, 65536)

MAX_FLOPS = 8e12  # of a problem: 10 ms at 800 TFLOP/s
MAX_BYTES = 6e9  # of a problem's A, B, C and D together
MAX_FLOAT32_FLOPS = 1e12  # of a problem in float32 without TF32: 20 ms at cuBLAS's 50 TFLOP/s
MAX_M = 10**6
PITCHES = (128, 16, 1)  # bytes: the largest of these that divides a padded leading dimension
TF32 = "TF32"


@dataclass(frozen=True)
class SurveyProblem(Problem):
    """One problem of the survey.

    Args:
        group: a name in GROUPS, or TF32.
        source: the layer that has these sizes, or "".
        lda, ldb, ldc: the leading dimensions of A, B and C in elements. ldc is N unless C is full.
        scale: beta and alpha.
    """

    group: str
    source: str
    lda: int
    ldb: int
    ldc: int
    scale: float

    @property
    def views(self) -> list[tuple[tuple, tuple]]:
        """(shape, strides) of C (if there is one), A and B."""
        c = {"full": [((self.m, self.n), (self.ldc, 1))], "bias": [((self.n,), (1,))], "none": []}[self.c]
        b_strides = (self.ldb, 1) if self.b == "row" else (1, self.ldb)
        return [*c, ((self.m, self.k), (self.lda, 1)), ((self.k, self.n), b_strides)]

    @property
    def spans(self) -> list[int]:
        """The elements from the first to the last of each of `views`."""
        return [1 + sum((size - 1) * stride for size, stride in zip(*view)) for view in self.views]

    @property
    def padded(self) -> bool:
        """Whether A, B or C is a view of wider storage."""
        return (self.lda, self.ldb, self.ldc) != (self.k, self.n if self.b == "row" else self.k, self.n)

    @property
    def alignment(self) -> int:
        """The bytes that divide every leading dimension of A, B, C and D, at most 128."""
        return math.gcd(128, *(self.itemsize * x for x in (self.lda, self.ldb, self.ldc, self.n)))


def _log_uniform(rng, low, high) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _llm(low, high, rng):
    """Draw a linear layer and between `low` and `high` tokens: 2^i or 3 * 2^i, a multiple of 8, or any, a third each."""
    model = rng.choice(list(MODELS))
    layer, n, k, sliced = rng.choice(MODELS[model])
    source, ways = f"{model} {layer}", rng.choice((1, 1, 1, 2, 4, 8))  # of tensor parallelism
    if ways > 1 and sliced and (n if sliced == "N" else k) % ways == 0:
        source += f", 1/{ways} of {sliced}"
        n, k = (n // ways, k) if sliced == "N" else (n, k // ways)
    common = [x for i in range(14) for x in (2**i, 3 * 2**i) if low <= x <= high]
    tokens = _log_uniform(rng, low, high)
    multiple = 8 * math.ceil(tokens / 8) if tokens > 8 else round(tokens)
    return source, rng.choice((rng.choice(common), multiple, round(tokens))), n, k


def _vision(rng):
    source, pixels, n, k = rng.choice(VISION)
    return source, pixels * rng.choice([2**i for i in range(9) if 2**i * pixels <= MAX_M]), n, k


def _recommender(rng):
    source, n, k = rng.choice(RECOMMENDERS)
    return source, MAX_M if rng.random() < 0.04 else rng.choice(BATCHES), n, k


def _multiples_of_8(rng):
    return "", *(8 * round(_log_uniform(rng, 1, 1250)) for _ in range(3))


def _any_sizes(rng):
    return "", *(round(_log_uniform(rng, 1, 10_000)) for _ in range(3))


# group -> (weight, draw of (source, M, N, K))
GROUPS = {
    "LLM, M <= 32": (18, partial(_llm, 1, 32)),
    "LLM, M 33-512": (27, partial(_llm, 33, 512)),
    "LLM, M > 512": (17, partial(_llm, 513, 8192)),
    "vision": (10, _vision),
    "recommenders": (7, _recommender),
    "log-uniform, multiples of 8": (14, _multiples_of_8),
    "log-uniform, any": (7, _any_sizes),
}


def _pitch(rng, width, itemsize) -> int:
    """Draw a leading dimension for rows of `width` elements: `width` itself, or a padded one of a class in PITCHES."""
    pitch, line, vector = rng.choice((None, *PITCHES)), 128 // itemsize, 16 // itemsize
    if pitch is None:
        return width
    beyond = {128: 0, 16: vector * rng.randrange(1, 8), 1: rng.randrange(1, vector)}[pitch]
    return (width // line + rng.randrange(1, 9)) * line + beyond


def _problem(rng) -> SurveyProblem:
    group = rng.choices(list(GROUPS), [weight for weight, _ in GROUPS.values()])[0]
    dtype = rng.choices(("float16", "bfloat16", "tf32"), (47, 47, 6))[0]
    b = rng.choices(("col", "row"), (90, 10))[0]
    c = rng.choices(("bias", "full", "none"), (70, 25, 5))[0]
    scale, padded, itemsize = rng.choice((0.5, 1.0)) if c == "full" else 1.0, rng.random() < 0.2, 4 if dtype == "tf32" else 2
    while True:
        source, m, n, k = GROUPS[group][1](rng)
        widths = (k, n if b == "row" else k, n)
        lda, ldb, ldc = (_pitch(rng, width, itemsize) for width in widths) if padded else widths
        label, ldc = TF32 if dtype == "tf32" else group, ldc if c == "full" else n
        problem = SurveyProblem(m, n, k, b, dtype, c, label, source, lda, ldb, ldc, scale)
        if problem.flops <= MAX_FLOPS and itemsize * (sum(problem.spans) + m * n) <= MAX_BYTES:
            return problem


def draw(seed: int, count: int) -> list[SurveyProblem]:
    """Draw `count` problems. The same seed gives the same problems, and a smaller count gives the first of them."""
    rng = random.Random(seed)
    return [_problem(rng) for _ in range(count)]


def in_float32(problems) -> list[SurveyProblem]:
    """Return the 16-bit problems in float32 without TF32, except those above MAX_FLOAT32_FLOPS or MAX_BYTES."""
    chosen = (replace(p, dtype="float32") for p in problems if p.is_16_bit)
    return [p for p in chosen if p.flops <= MAX_FLOAT32_FLOPS and p.bytes <= MAX_BYTES]
