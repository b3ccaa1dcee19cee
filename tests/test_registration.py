"""registration/: an op needs one entry in the table of ops and nothing else. The tests register an op of their own."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from torch_addmm_tc.registration import autocast, fake, flops, vmap
from torch_addmm_tc.registration.table import OPS, Op

REGISTRATIONS = (fake, autocast, vmap, flops)
LIBRARIES = []  # keeps each op alive, because torch removes an op together with its library


def register_test_op(schema, compute, **roles) -> Op:
    """Define an op that `compute` runs on the CPU, and register it from one table entry."""
    library = torch.library.Library("tc", "FRAGMENT")
    name = library.define(schema)
    library.impl(name, compute, "CPU")
    LIBRARIES.append(library)
    op = Op(name, **{"activation": None, "precision": None, "batch_invariant": None, "out_dtype": None, **roles})
    for module in REGISTRATIONS:
        module.register(op)
    return op


@pytest.fixture(scope="module")
def batched():
    return register_test_op(
        "made_up_baddbmm(Tensor? bias, Tensor batch1, Tensor batch2, *, str then='none') -> Tensor",
        lambda bias, a, b, then="none": (a @ b if bias is None else bias + a @ b).contiguous(),
        operands=("batch1", "batch2"), addend="bias", activation="then", rank=3,
    )  # fmt: skip


def test_op_arguments_come_from_the_schema():
    functional, out = OPS[:2]
    assert functional.positional == out.positional == ("self", "mat1", "mat2") == functional.tensors
    assert functional.defaults["activation"] == "none" and "mat1" not in functional.defaults
    call = functional.bind((1, 2), {"mat2": 3, "activation": "relu"})
    assert call.operands == (2, 3) and call.role("addend") == 1 and call.activated and call.role("precision") == "ieee"
    assert out.out == "out" and "out" in out.arguments and out.out_dtype is None


def test_every_op_is_in_the_table():
    defined = {name.split("::")[1].split(".")[0] for name in torch._C._dispatch_get_all_op_names() if name.startswith("tc::")}
    assert {name for name in defined if not name.startswith("made_up")} == {op.name for op in OPS}


def test_table_entry_registers_a_fake(batched):
    a, b = torch.empty(2, 3, 4, device="meta"), torch.empty(2, 4, 5, device="meta")
    assert batched.packet(None, a, b).shape == batched.packet(a[:, :, :1], a, b).shape == (2, 3, 5)
    with pytest.raises(RuntimeError, match="batch2 must be a 3D tensor, but got a 2-D tensor"):
        batched.packet(None, a, b[0])
    with pytest.raises(RuntimeError, match="batch1 must be a tensor, but got None"):
        batched.packet(None, None, b)
    with pytest.raises(RuntimeError, match="activation must be one of none, relu"):
        batched.packet(None, a, b, then="elu")
    with pytest.raises(RuntimeError, match="forward-only, but batch2 requires grad"):
        batched.packet(None, a, b.requires_grad_())


def test_table_entry_registers_autocast_and_flop_counting(batched):
    a, b = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16), FlopCounterMode(display=False) as counter:
        assert batched.packet(a[:, :, :1], a, b).dtype == torch.bfloat16
    assert counter.get_total_flops() == 2 * 2 * 3 * 4 * 5


def test_table_entry_registers_vmap(batched):
    c, a, b = torch.randn(6, 2, 3, 1), torch.randn(2, 6, 3, 4), torch.randn(2, 4, 5)
    result = torch.vmap(batched.packet.default, (0, 1, None))(c, a, b)
    assert torch.allclose(result, c + a.movedim(1, 0) @ b, atol=1e-5)


def test_op_of_a_table_entry_compiles(batched):
    a, b = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
    compiled = torch.compile(lambda a, b: batched.packet(None, a, b).relu(), fullgraph=True, dynamic=True, backend="aot_eager")
    assert torch.allclose(compiled(a, b), (a @ b).relu(), atol=1e-5)
