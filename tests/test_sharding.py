"""DTensor on two CPU processes (gloo): every rule of registration/sharding.py, and torch's tensor parallelism on tc.Linear."""

import functools
import gc
import multiprocessing
import os

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

import torch_addmm_tc as tc
from torch_addmm_tc.testing.cases import Case

ADDMM = torch.ops.tc.addmm.default
WORLD = 2
BROADCASTS = ("()", "(1)", "(N)", "(1,N)", "(M,1)", "(M,N)")


def run_in_process(rank, store, body):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # gloo would use the address of the host name, which may be unreachable
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    body(dist.device_mesh.init_device_mesh("cpu", (WORLD,)))
    gc.collect()  # a group that outlives the interpreter sometimes aborts the process (gloo, torch 2.13)
    dist.barrier()
    dist.destroy_process_group()


multiprocessing.set_forkserver_preload(
    ["torch.distributed.tensor", "torch_addmm_tc.testing.cases"]
)  # once, not in each process


def run_in_two_processes(tmp_path, body):
    mp.start_processes(run_in_process, (tmp_path / "store", body), WORLD, start_method="forkserver")


def check_every_placement(mesh):
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    from torch_addmm_tc.registration import sharding  # noqa: F401

    def partial(x):
        """Return x as a Partial DTensor: the local tensors of the two processes add up to x."""
        torch.manual_seed(1)
        first = torch.randn_like(x)
        return DTensor.from_local(first if mesh.get_rank() == 0 else x - first, mesh, [Partial()], run_check=False)

    placements = {  # of mat1, of mat2, and of a result that needs no communication
        "replicated": (Replicate(), Replicate(), Replicate()),
        "rows": (Shard(0), Replicate(), Shard(0)),
        "columns": (Replicate(), Shard(1), Shard(1)),
        "K": (Shard(1), Shard(0), Partial()),
        "partial": (Partial(), Replicate(), Partial()),
    }
    for broadcast in BROADCASTS:
        torch.manual_seed(0)
        c, a, b = Case(6, 10, 8, torch.float32, broadcast=broadcast).inputs("cpu")
        sharded_c = [distribute_tensor(c, mesh, [Replicate()])]
        sharded_c += [distribute_tensor(c, mesh, [Shard(d)]) for d in range(c.dim()) if c.shape[d] > 1]
        for name, (of_a, of_b, of_d) in placements.items():
            place = lambda x, p: partial(x) if p.is_partial() else distribute_tensor(x, mesh, [p])  # noqa: E731
            da, db = place(a, of_a), place(b, of_b)
            for options in ({}, {"out_dtype": torch.float32}):
                result = ADDMM(None, da, db, **options)
                assert result.placements == (of_d,) and torch.allclose(result.full_tensor(), a @ b, atol=1e-5), name
            for dc in sharded_c:
                expected = torch.addmm(c, a, b, beta=0.5, alpha=2)
                for options in ({}, {"out_dtype": torch.float32}):
                    result = ADDMM(dc, da, db, beta=0.5, alpha=2, **options)
                    assert torch.allclose(result.full_tensor(), expected, atol=1e-5), (broadcast, name, dc.placements)
                    assert dc is not sharded_c[0] or result.placements == (of_d,), (broadcast, name)
                # DTensor caches its decisions. A decision for a call without activation must not serve a call with one.
                activated = ADDMM(dc, da, db, activation="gelu", beta=0.5, alpha=2)
                assert not activated.placements[0].is_partial()
                assert torch.allclose(activated.full_tensor(), torch.nn.functional.gelu(expected), atol=1e-5), (broadcast, name)
            relu = ADDMM(None, da, db, out_dtype=torch.float32, activation="relu").full_tensor()
            assert torch.allclose(relu, torch.relu(a @ b), atol=1e-5), name


def check_batches(mesh):
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    from torch_addmm_tc.registration import sharding  # noqa: F401

    placements = {  # of batch1, of batch2, and of a result that needs no communication
        "batches": (Shard(0), Shard(0), Shard(0)),
        "rows": (Shard(1), Replicate(), Shard(1)),
        "columns": (Replicate(), Shard(2), Shard(2)),
        "K": (Shard(2), Shard(1), Partial()),
    }
    for broadcast in ("()", "(N)", "(B,1,N)", "(1,M,1)", "(B,M,N)"):
        torch.manual_seed(0)
        c, a, b = Case(6, 10, 8, torch.float32, batch=4, broadcast=broadcast).inputs("cpu")
        dc = distribute_tensor(c, mesh, [Replicate()])
        for name, (of_a, of_b, of_d) in placements.items():
            da, db = distribute_tensor(a, mesh, [of_a]), distribute_tensor(b, mesh, [of_b])
            result = torch.ops.tc.baddbmm(None, da, db)
            assert result.placements == (of_d,) and torch.allclose(result.full_tensor(), a @ b, atol=1e-5), name
            result = torch.ops.tc.baddbmm(dc, da, db, beta=0.5, alpha=2)
            expected = torch.baddbmm(c, a, b, beta=0.5, alpha=2)
            assert torch.allclose(result.full_tensor(), expected, atol=1e-5), (broadcast, name)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = tc.Linear(16, 32), tc.Linear(32, 16)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def check_tensor_parallel(mesh, dtype):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(0)
    block, x = Block().to(dtype).requires_grad_(False), torch.randn(2, 5, 16).to(dtype)
    expected = block(x)
    sharded = parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        result = sharded(x)
    ran = {event.key for event in profile.key_averages()}
    assert "tc::addmm" in ran and not ran & {"aten::addmm", "aten::linear"}
    assert torch.allclose(result, expected, atol=1e-5 if dtype == torch.float32 else 0.05)


def check_batch_invariance(mesh):
    from torch.distributed.tensor.parallel import RowwiseParallel, parallelize_module

    for layer, context in ((tc.Linear, tc.batch_invariant), (nn.Linear, lambda: tc.enabled("cpu", batch_invariant=True))):
        down = nn.Sequential(layer(16, 8).requires_grad_(False))
        parallelize_module(down, mesh, {"0": RowwiseParallel()})
        x = torch.randn(2, 5, 8)
        assert down(x).shape == (2, 5, 8)
        with context(), pytest.raises(RuntimeError, match="K is divided over processes"):
            down(x)


def test_batch_invariant_blocks_refuse_parts_of_k(tmp_path):
    run_in_two_processes(tmp_path, check_batch_invariance)


def check_uneven_shards(mesh):
    """Two processes cannot halve these sizes. The result, a DTensor, must have the shape and strides of the full result."""
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    torch.manual_seed(0)
    colwise = tc.Linear(16, 33), Shard(0), Shard(0), Replicate()
    rowwise = tc.Linear(17, 9), Shard(1), Replicate(), Shard(2)
    for layer, of_weight, of_bias, of_x in (colwise, rowwise):
        layer.requires_grad_(False)
        x = torch.randn(2, 5, layer.in_features)
        expected = layer(x)
        layer.weight = nn.Parameter(distribute_tensor(layer.weight, mesh, [of_weight]), requires_grad=False)
        layer.bias = nn.Parameter(distribute_tensor(layer.bias, mesh, [of_bias]), requires_grad=False)
        result = layer(distribute_tensor(x, mesh, [of_x]))
        assert isinstance(result, DTensor) and (result.shape, result.stride()) == (expected.shape, expected.stride())
        assert torch.allclose(result.full_tensor(), expected, atol=1e-5)


def check_wrong_sizes(mesh):
    """Every process must raise, even where its shard fits. A process that went on would wait for the others."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    x = distribute_tensor(torch.randn(2, 5), mesh, [Shard(1)])
    for k, n in ((6, 8), (5, 7)):
        layer = tc.Linear(k, 8).requires_grad_(False)
        layer.weight = nn.Parameter(distribute_tensor(layer.weight, mesh, [Shard(1)]), requires_grad=False)
        layer.bias = nn.Parameter(distribute_tensor(torch.randn(n), mesh, [Replicate()]), requires_grad=False)
        with pytest.raises(RuntimeError):
            layer(x)


def test_wrong_sizes_raise_in_every_process(tmp_path):
    run_in_two_processes(tmp_path, check_wrong_sizes)


def check_rank_outside_the_mesh(_):
    """A layer on a mesh of one rank returns an empty result on the other rank, like nn.Linear."""
    from torch.distributed.tensor import DeviceMesh, Replicate, Shard, distribute_tensor

    mesh = DeviceMesh("cpu", [1])  # rank 1 only
    ones = lambda shape, placement: distribute_tensor(torch.ones(shape), mesh, [placement])  # noqa: E731
    layer = tc.Linear(6, 8).requires_grad_(False)
    layer.weight = nn.Parameter(ones((8, 6), Shard(1)), requires_grad=False)
    layer.bias = nn.Parameter(ones((8,), Replicate()), requires_grad=False)
    result = layer(ones((2, 6), Shard(1))).to_local()
    assert (result == 7).all() and result.numel() == (16 if dist.get_rank() == 1 else 0)


def test_rank_outside_the_mesh_gets_an_empty_result(tmp_path):
    run_in_two_processes(tmp_path, check_rank_outside_the_mesh)


def test_uneven_shards_keep_the_full_shape_and_strides(tmp_path):
    run_in_two_processes(tmp_path, check_uneven_shards)


def test_batches(tmp_path):
    run_in_two_processes(tmp_path, check_batches)


def test_every_placement_matches_torch(tmp_path):
    run_in_two_processes(tmp_path, check_every_placement)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
def test_torchs_tensor_parallelism_runs_on_the_op(tmp_path, dtype):
    run_in_two_processes(tmp_path, functools.partial(check_tensor_parallel, dtype=dtype))
