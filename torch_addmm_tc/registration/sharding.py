"""DTensor: how the ops' arguments may be sharded over GPUs, so that tensor-parallel models run on them.

Importing this module registers the rules with torch.distributed.tensor, which is slow to import. Linear imports it when it
meets its first DTensor. Calls of the ops on DTensors of your own need the import.
"""

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._op_schema import OpStrategy, RuntimeSchemaInfo
from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy

from torch_addmm_tc import _C
from torch_addmm_tc.registration.fake import check
from torch_addmm_tc.registration.table import OPS


def linear(x, weight, bias, product):
    """Compute a layer as ColwiseParallel and RowwiseParallel lay it out, each process on its own part.

    One result is wrapped. DTensor itself would wrap the result of every view and product.

    Args:
        x: (..., K), a DTensor.
        weight: (N, K), a DTensor.
        bias: (N), a DTensor, or None.
        product: product(x, weight.t(), bias) computes plain tensors, and returns None where the op does not take them.

    Returns:
        A DTensor, (..., N). None for other layouts, and where product returns None.
    """
    mesh = weight.device_mesh
    others = (x,) if bias is None else (x, bias)
    if mesh.ndim != 1 or not all(isinstance(t, DTensor) and t.device_mesh == mesh for t in others):
        return None
    place = mesh.get_coordinate()  # None in a process that the mesh leaves out
    # DTensor refuses wrong sizes in every process. Of the local sizes only some may be wrong.
    if not place or x.shape[-1] != weight.shape[1] or (bias is not None and bias.shape != weight.shape[:1]):
        return None
    (of_x,), (of_weight,), last = x.placements, weight.placements, x.dim() - 1
    of_bias = of_weight if bias is None else bias.placements[0]
    if of_x.is_replicate() and of_weight.is_shard(0) and of_bias.is_shard(0):
        of_result = Shard(last)
    elif of_x.is_shard(last) and of_weight.is_shard(1) and (bias is None or of_bias.is_replicate()):
        check(not _C.in_batch_invariant_block(), "batch_invariant_parts_of_k")
        of_result = Partial()
        bias = bias if place[0] == 0 else None  # added once
    else:
        return None
    local = product(x.to_local(), weight.to_local().t(), None if bias is None else bias.to_local())
    if local is None:
        return None
    shape = torch.Size((*x.shape[:-1], weight.shape[0]))
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(local, mesh, (of_result,), run_check=False, shape=shape, stride=stride)


def _placements(call) -> list[dict]:
    """Return the acceptable placements on one dimension of a device mesh: {argument's name, or "result": placement}.

    `call` holds objects with the shapes of the arguments. A partial sum does not pass an activation: the activation of a sum is
    not the sum of the parts' activations.
    """
    name_a, name_b = call.op.operands
    addend, rank, rules = call.role("addend"), call.op.rank, []

    def rule(of_result, of_addend, of_a, of_b):
        placements = {"result": of_result, name_a: of_a, name_b: of_b}
        if addend is not None:
            placements[call.op.addend] = of_addend
        rules.append(placements)

    def shard(dim, of_a, of_b):  # of the result
        own = dim - rank + len(addend.shape) if addend is not None else -1  # the addend's dimension that broadcasts along it
        rule(Shard(dim), Shard(own) if own >= 0 and addend.shape[own] > 1 else Replicate(), of_a, of_b)

    m, n = rank - 2, rank - 1
    rule(Replicate(), Replicate(), Replicate(), Replicate())
    for batch in range(rank - 2):
        shard(batch, Shard(batch), Shard(batch))
    shard(m, Shard(m), Replicate())
    shard(n, Replicate(), Shard(n))
    if not call.activated and not call.role("batch_invariant"):  # a sum over processes adds in the order of their collective
        rule(Partial(), Partial(), Shard(rank - 1), Shard(rank - 2))  # parts of K
        rule(Partial(), Partial(), Partial(), Replicate())
        rule(Partial(), Partial(), Replicate(), Partial())
    return rules


def register(op):
    # torch.distributed.tensor.experimental.register_sharding does not do: of the arguments that are not tensors, it caches a
    # decision by the integers alone. One taken without an activation would hold for a call with an activation.
    def strategy(schema):
        spec = lambda x: x.strategies[0].output_spec if isinstance(x, OpStrategy) else x  # noqa: E731
        args, kwargs = [spec(x) for x in schema.args_schema], {name: spec(x) for name, x in schema.kwargs_schema.items()}
        call = op.bind(args, kwargs)
        mesh = call.operands[0].mesh
        passed = [*op.arguments[: len(args)], *kwargs]
        rules = [[rule["result"], *(rule.get(name) for name in passed)] for rule in _placements(call)]
        return expand_to_full_mesh_op_strategy(mesh, schema, rules)

    # Of the keywords, those that placements depend on.
    decisive = [name for name in (op.activation, op.batch_invariant) if name] or None
    propagator = DTensor._op_dispatcher.sharding_propagator
    propagator.register_op_strategy(op.overload, strategy, RuntimeSchemaInfo(static_kwargkey=decisive, needs_pytree=True))


for _op in OPS:
    if _op.out is None:  # DTensor has no rules for results that a custom op writes to an argument
        register(_op)
