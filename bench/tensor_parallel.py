"""A transformer block over several GPUs, by torch's own tensor parallelism, on this package's op and on torch's.

    torchrun --nproc-per-node 2 -m bench.tensor_parallel [--json FILE] [--small]

Each process holds a part of every weight: queries, keys, values and the way up by columns, the ways back by rows, after which
NCCL adds the parts. The result is compared with that of the block on one GPU, and a call of each is timed in turn: as the host
makes it, DTensor's work on the host included, and on GPUs as a CUDA graph too, without it. Without GPUs: gloo.
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

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROUNDS = 20


class Block(nn.Module):
    def __init__(self, width, head):
        super().__init__()
        self.width, self.head = width, head
        self.query, self.key, self.value, self.back = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):  # (batch, tokens, width)
        h = layer_norm(x, (self.width,))
        q, k, v = (f(h).unflatten(-1, (-1, self.head)).transpose(1, 2) for f in (self.query, self.key, self.value))
        attended = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.back(attended.transpose(1, 2).flatten(2))
        return x + self.down(gelu(self.up(layer_norm(x, (self.width,)))))


def sharded(block, mesh):
    by_columns = {name: ColwiseParallel() for name in ("query", "key", "value", "up")}
    return parallelize_module(block, mesh, by_columns | {name: RowwiseParallel() for name in ("back", "down")})


def captured(block, x):
    """A function that replays a call of the block on x as a CUDA graph, and returns its result."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL's own threads go on calling CUDA
        result = block(x)

    def replay(_):
        graph.replay()
        return result

    return replay


def milliseconds(contenders, x) -> dict:
    """Wall clock of a call, in turn, medians; every process waits for the others before each."""
    wait = torch.cuda.synchronize if DEVICE == "cuda" else lambda: None
    samples = {name: [] for name in contenders}
    for _ in range(ROUNDS + 3):
        for name, block in contenders.items():
            wait()
            dist.barrier()
            begin = time.perf_counter()
            block(x)
            wait()
            samples[name].append(1e3 * (time.perf_counter() - begin))
    return {name: statistics.median(times[3:]) for name, times in samples.items()}


def main():
    parser = argparse.ArgumentParser(prog="torchrun -m bench.tensor_parallel", description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--small", action="store_true", help="a tiny block")
    options = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if DEVICE == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    mesh = dist.device_mesh.init_device_mesh(DEVICE, (world,))

    width, head, batch, tokens = (64, 16, 2, 8) if options.small else (4096, 128, 4, 2048)
    torch.manual_seed(0)  # the same block and input in every process
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
        raise SystemExit("further from float32 than torch on one GPU")


if __name__ == "__main__":
    with torch.no_grad():  # in inference_mode DTensor works out the layout of every view anew (torch 2.11: 1 ms a layer)
        main()
    gc.collect()  # a process group that outlives the interpreter's end sometimes aborts it (gloo, torch 2.13)
    dist.barrier()
    dist.destroy_process_group()
