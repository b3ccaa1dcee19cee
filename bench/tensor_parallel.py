"""A transformer block under torch's tensor parallelism, with this package's op and with torch's.

    torchrun --nproc-per-node 2 -m bench.tensor_parallel [--json FILE] [--small]

Each process holds a shard of every weight. The projections of queries, keys and values and the MLP's up projection are sharded
by columns. The attention's output projection and the MLP's down projection are sharded by rows, and NCCL sums their results.

Every result is compared with that of a float32 block on one GPU. Every block is timed in turn. An eager call includes DTensor's
work on the host. On GPUs the blocks are also timed as CUDA graphs, which leave the host's work out. Processes without a GPU
communicate through gloo.
"""

import argparse
import copy
import gc
import json
import os
import statistics
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention

import torch_addmm_tc as tc
from bench.timing import record
from torch_addmm_tc import timing

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROUNDS = 20


class Block(nn.Module):
    """A transformer block with causal attention.

    Args:
        width: features of a token.
        head: features of an attention head.
    """

    def __init__(self, width, head):
        super().__init__()
        self.width, self.head = width, head
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):  # (batch, tokens, width)
        h = layer_norm(x, (self.width,))
        q, k, v = (f(h).unflatten(-1, (-1, self.head)).transpose(1, 2) for f in (self.query, self.key, self.value))
        attended = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(gelu(self.up(layer_norm(x, (self.width,)))))


def sharded(block, mesh):
    """Shard a block's weights over the mesh, in place. Return the block."""
    by_columns = {name: ColwiseParallel() for name in ("query", "key", "value", "up")}
    return parallelize_module(block, mesh, by_columns | {name: RowwiseParallel() for name in ("out", "down")})


def captured(block, x):
    """Return a function that replays block(x) as a CUDA graph and returns its result."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL's threads call CUDA meanwhile
        result = block(x)

    def replay(_):
        graph.replay()
        return result

    return replay


def milliseconds(contenders, x) -> dict:
    """Time a call of each contender in turn. The processes synchronise before each call.

    Args:
        contenders: name -> block.
        x: (batch, tokens, width), the input.

    Returns:
        name -> median wall-clock milliseconds.
    """
    wait = torch.cuda.synchronize if DEVICE == "cuda" else lambda: None
    samples = {name: [] for name in contenders}
    for _, name in timing.in_turn(contenders, ROUNDS + 3):  # the same order in all processes
        wait()
        dist.barrier()
        begin = time.perf_counter()
        contenders[name](x)
        wait()
        samples[name].append(1e3 * (time.perf_counter() - begin))
    return {name: statistics.median(times[3:]) for name, times in samples.items()}


def main():
    parser = argparse.ArgumentParser(prog="torchrun -m bench.tensor_parallel", description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--small", action="store_true", help="run a tiny block")
    options = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if DEVICE == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    mesh = dist.device_mesh.init_device_mesh(DEVICE, (world,))

    width, head, batch, tokens = (64, 16, 2, 8) if options.small else (4096, 128, 4, 2048)
    torch.manual_seed(0)  # every process makes the same block and input
    block = Block(width, head).to(DEVICE).half().requires_grad_(False)
    x = torch.randn(batch, tokens, width, device=DEVICE).half()
    contenders = {
        "one GPU, torch": block,
        "one GPU, torch_addmm_tc": tc.swap_linears(copy.deepcopy(block)),
        "sharded, torch": sharded(copy.deepcopy(block), mesh),
        "sharded, torch_addmm_tc": sharded(tc.swap_linears(copy.deepcopy(block)), mesh),
    }
    exact = copy.deepcopy(block).float()(x.float())
    result = {"processes": world, "block": [batch, tokens, width], "milliseconds": milliseconds(contenders, x)}
    graphs = {f"{name}, CUDA graph": captured(run, x) for name, run in contenders.items()} if DEVICE == "cuda" else {}
    result["milliseconds"] |= milliseconds(graphs, x)
    errors = {name: float((run(x).float() - exact).norm() / exact.norm()) for name, run in (contenders | graphs).items()}
    result["error"] = errors
    if rank == 0:
        print(json.dumps(result, indent=1))
        if options.json:
            options.json.write_text(json.dumps({"record": record() if DEVICE == "cuda" else {}} | result, indent=1) + "\n")
    if not all(error <= 1.05 * errors["one GPU, torch"] for error in errors.values()):
        raise SystemExit(f"an error against float32 exceeds 1.05 times that of torch on one GPU: {errors}")


if __name__ == "__main__":
    with torch.no_grad():  # in inference_mode DTensor recomputes the layout of every view (torch 2.11: 1 ms per layer)
        main()
    gc.collect()  # a process group that still exists at interpreter exit sometimes aborts the process (gloo, torch 2.13)
    dist.barrier()
    dist.destroy_process_group()
