"""GPT-2 and a Llama-style network: a prompt's logits have the same bits alone, in a batch, and in chunks of a prefill."""

import pytest
import torch
from torch import nn

import torch_addmm_tc as tc

LONGEST = 48  # tokens of a sequence: attention reads as many keys always, because torch's softmax depends on their number


@torch.library.custom_op("torch_addmm_tc_test::attention", mutates_args=())
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, first: int) -> torch.Tensor:
    """Causal attention of queries (batch, heads, T, d), the first at position `first`, to keys (batch, key heads, LONGEST, d).

    torch's own attention and torch.bmm are not batch-invariant. Each head's products run on this package's op instead.
    """
    group = q.shape[1] // k.shape[1]
    seen = torch.arange(LONGEST, device=q.device) <= torch.arange(first, first + q.shape[2], device=q.device)[:, None]
    result = torch.empty_like(q)
    for item in range(q.shape[0]):
        for head in range(q.shape[1]):
            keys, values = k[item, head // group], v[item, head // group]
            scores = tc.mm(q[item, head], keys.t(), out_dtype=torch.float32, batch_invariant=True)
            scores = scores * q.shape[3] ** -0.5
            weights = scores.masked_fill(~seen, -torch.inf).softmax(-1).to(q.dtype)
            result[item, head] = tc.mm(weights, values, batch_invariant=True)
    return result


@attention.register_fake
def _(q, k, v, first):
    return torch.empty_like(q)


@torch.library.custom_op("torch_addmm_tc_test::norm", mutates_args=())
def norm(x: torch.Tensor, weight: torch.Tensor, rms: bool) -> torch.Tensor:
    """torch's own norms work row by row. Inductor's need not: it compiles them anew for other batches."""
    function = nn.functional.rms_norm if rms else nn.functional.layer_norm
    return function(x, weight.shape, weight)


@norm.register_fake
def _(x, weight, rms):
    return torch.empty_like(x)


def rotate(x, first):
    """Rotary positions."""
    positions = torch.arange(first, first + x.shape[2], device=x.device)
    angles = positions[:, None] * 10000 ** -torch.linspace(0, 1, x.shape[3] // 2, device=x.device)
    cos, sin, (left, right) = angles.cos(), angles.sin(), x.float().chunk(2, -1)
    return torch.cat([left * cos - right * sin, left * sin + right * cos], -1).to(x.dtype)


class Block(nn.Module):
    """A layer of GPT-2, or one of Llama: RMSNorm, rotary positions, fewer key heads, a gated MLP."""

    def __init__(self, width, heads, key_heads, inner, llama):
        super().__init__()
        self.heads, self.key_heads, self.llama = heads, key_heads, llama
        self.norms = nn.ParameterList(torch.ones(width) for _ in range(2))
        self.qkv = nn.Linear(width, width + 2 * key_heads * (width // heads), bias=not llama)
        self.out = nn.Linear(width, width, bias=not llama)
        self.up, self.down = nn.Linear(width, inner * (1 + llama), bias=not llama), nn.Linear(inner, width, bias=not llama)

    def forward(self, x, cache, first):
        batch, tokens, width = x.shape
        size = width // self.heads
        projected = self.qkv(norm(x, self.norms[0], self.llama)).view(batch, tokens, -1, size).transpose(1, 2)
        q, k, v = projected.split((self.heads, self.key_heads, self.key_heads), 1)
        if self.llama:
            q, k = rotate(q, first), rotate(k, first)
        keys, values = cache
        keys[:, :, first : first + tokens], values[:, :, first : first + tokens] = k, v
        attended = attention(q.contiguous(), keys, values, first)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, width))
        hidden = self.up(norm(x, self.norms[1], self.llama))
        if self.llama:
            gate, hidden = hidden.chunk(2, -1)
            hidden = nn.functional.silu(gate) * hidden
        else:
            hidden = nn.functional.gelu(hidden, approximate="tanh")
        return x + self.down(hidden)


class Decoder(nn.Module):
    def __init__(self, llama):
        super().__init__()
        width, heads, key_heads, inner, vocabulary = (1024, 16, 4, 2816, 32000) if llama else (768, 12, 12, 3072, 50257)
        self.embedding, self.positions = nn.Embedding(vocabulary, width), None if llama else nn.Embedding(LONGEST, width)
        self.blocks = nn.ModuleList(Block(width, heads, key_heads, inner, llama) for _ in range(3))
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.cache_shape = key_heads, LONGEST, width // heads

    def new_cache(self, batch):
        weight = self.head.weight
        return [[weight.new_zeros(batch, *self.cache_shape) for _ in range(2)] for _ in self.blocks]

    def forward(self, tokens, caches, first: int):
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[first : first + tokens.shape[1]]
        for block, cache in zip(self.blocks, caches):
            x = block(x, cache, first)
        return self.head(x)


@pytest.mark.gpu
@pytest.mark.parametrize("how", ("eager", "compiled"))
@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
@pytest.mark.parametrize("network", ("GPT-2", "Llama"))
def test_logits_do_not_depend_on_the_batch(network, dtype, how):
    model = Decoder(network == "Llama").to("cuda", dtype).requires_grad_(False)
    prompts = torch.randint(0, 32000, (64, 40), device="cuda")
    if how == "compiled":
        torch._dynamo.reset()
        forward = torch.compile(model, options=tc.compile_options(batch_invariant=True), dynamic=True)
    else:

        def forward(*args):
            with tc.enabled(batch_invariant=True):
                return model(*args)

    def logits(tokens, chunks):
        cache, first, parts = model.new_cache(len(tokens)), 0, []
        for size in chunks:
            parts.append(forward(tokens[:, first : first + size], cache, first))
            first += size
        return torch.cat(parts, 1)

    together = logits(prompts, (40,))
    assert together.isfinite().all() and together.float().std() > 0
    for row in (0, 17, 63):
        assert torch.equal(logits(prompts[row : row + 1], (40,))[0], together[row])
    assert torch.equal(logits(prompts[5:6], (17, 3, 20))[0], together[5])
    assert torch.equal(logits(prompts[20:23], (24, 16)), together[20:23])
