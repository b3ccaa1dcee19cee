"""The table of this package's ops, and the roles that their arguments play.

autocast.py, fake.py, flops.py, sharding.py and vmap.py register each op of the table with torch. A new op is one entry here
beside its C++ definition (csrc/op/op.cpp): names, positions and defaults of its arguments come from its schema.
"""

from dataclasses import dataclass
from functools import cached_property

import torch

from torch_addmm_tc import _C  # noqa: F401  (defines the ops)


@dataclass(frozen=True)
class Op:
    """A product of matrices, D = activation(beta * addend + alpha * (A @ B)).

    Every field but `name` and `rank` names an argument in the op's schema, or is None where the op has none in that role.

    Attributes:
        name: the op is torch.ops.tc.<name>.
        operands: A and B.
        addend: what is added to the product; it broadcasts to the result.
        out: the tensor that the result is written to. An op without one returns a new tensor.
        activation: the name of the activation.
        precision: "ieee" or "tf32".
        batch_invariant: whether rows must not depend on the batch.
        out_dtype: the result's dtype.
        rank: dimensions of A, B and D: 2, or 3 where a batch comes first.
        of_batch: the name of the op that computes a batch of these products, in the table too. It differs in the operands'
            names alone. None where there is none, and for ops of batches themselves.
    """

    name: str
    operands: tuple[str, str] = ("mat1", "mat2")
    addend: str | None = "self"
    out: str | None = None
    activation: str | None = "activation"
    precision: str | None = "precision"
    batch_invariant: str | None = "batch_invariant"
    out_dtype: str | None = "out_dtype"
    rank: int = 2
    of_batch: str | None = None

    @property
    def qualified_name(self) -> str:
        return f"tc::{self.name}"

    @cached_property
    def packet(self):
        return getattr(torch.ops.tc, self.name)

    @cached_property
    def overload(self):
        return self.packet.default

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """Names of all arguments, in the schema's order."""
        return tuple(argument.name for argument in self.overload._schema.arguments)

    @cached_property
    def positional(self) -> tuple[str, ...]:
        """Names of the arguments that a call may pass by position."""
        return tuple(argument.name for argument in self.overload._schema.arguments if not argument.kwarg_only)

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """Names of the tensors that the op reads, in the schema's order."""
        roles = (self.addend, *self.operands)
        return tuple(name for name in self.arguments if name in roles)

    @cached_property
    def defaults(self) -> dict:
        arguments = self.overload._schema.arguments
        return {argument.name: argument.default_value for argument in arguments if argument.has_default_value()}

    def bind(self, args, kwargs) -> "Call":
        """The arguments of a call of the op, by name, with defaults filled in."""
        return Call(self, {**self.defaults, **dict(zip(self.arguments, args)), **kwargs})


@dataclass(frozen=True)
class Call:
    """A call of an op: its arguments by the roles that they play."""

    op: Op
    values: dict

    def role(self, name: str):
        """The argument in a role, or None where the op or the call has none."""
        return self.values.get(getattr(self.op, name))

    def run(self, replaced: dict):
        """Call the op with these arguments, those in `replaced` ({name: value}) exchanged."""
        values = {**self.values, **replaced}
        positional = [values.pop(name) for name in self.op.positional]
        return self.op.overload(*positional, **values)

    @property
    def operands(self) -> tuple:
        return tuple(self.values[name] for name in self.op.operands)

    @property
    def activated(self) -> bool:
        return self.role("activation") not in (None, "none")

    @property
    def result_dtype(self):
        out = self.role("out")
        return (self.role("out_dtype") or self.operands[0].dtype) if out is None else out.dtype


_BATCHES = {"operands": ("batch1", "batch2"), "rank": 3}

OPS = (
    Op("addmm", of_batch="baddbmm"),
    Op("addmm_out", out="out", out_dtype=None),
    Op("baddbmm", **_BATCHES),
    Op("baddbmm_out", out="out", out_dtype=None, **_BATCHES),
)
