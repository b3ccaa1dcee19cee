"""The definition of a correct result.

The reference is computed in float64 from the same inputs. An element is correct if its error is within a bound. The bound
covers fp32 accumulation of K products, fp32 arithmetic on alpha and beta, and one rounding to the result's dtype (see
`reference`).
"""

import math
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F

# IEEE 754: p bits of significand give a unit roundoff of 2^-p.
UNIT_ROUNDOFF = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}
TF32_ROUNDOFF = 2.0**-11  # TF32 has the 11 bits of significand of float16
SMALLEST_SUBNORMAL = {torch.float16: 2.0**-24, torch.bfloat16: 2.0**-133, torch.float32: 2.0**-149}


@dataclass(frozen=True)
class Reference:
    """A result in float64 and the error bound of each element.

    Args:
        value: (M, N) or (B, M, N), float64, the exact result up to float64's own rounding.
        bound: the same shape, float64, the largest absolute error that a correct element may have.
        dtype: the result's dtype.
    """

    value: torch.Tensor
    bound: torch.Tensor
    dtype: torch.dtype

    def error(self, result: torch.Tensor) -> float:
        """Return the largest error of an element, as a fraction of its bound.

        Args:
            result: the tensor to check.

        Returns:
            At most 1 if the result is correct. inf if the shape or dtype differs, or if a NaN or an infinity is wrong.
        """
        if result.shape != self.value.shape or result.dtype != self.dtype:
            return math.inf
        if result.numel() == 0:
            return 0.0
        got, ref = result.double(), self.value
        same = (got == ref) | (got.isnan() & ref.isnan())
        overflow = got.isinf() & (got.sign() == ref.sign()) & (ref.abs() + self.bound > torch.finfo(self.dtype).max)
        fraction = ((got - ref).abs() / self.bound).nan_to_num(nan=math.inf, posinf=math.inf)
        return torch.where(same | overflow, 0.0, fraction).max().item()


# Name -> torch's function.
ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


def reference(self, mat1, mat2, *, beta=1.0, alpha=1.0, activation=None, out_dtype=None, tf32=False) -> Reference:
    """Compute the op's result in float64 and the error bound of each element.

    u is the unit roundoff of a dtype, x is the activation's argument. The bound is the sum of these terms:

        (K + 2) u32 |alpha| |A||B|           an fp32 dot product of length K in any order (Higham, Accuracy and Stability of
                                             Numerical Algorithms, section 3.1)
        u32 (|alpha A B| + |beta C|)         the fp32 arithmetic on alpha and beta
        ((1 + 2^-11)^2 - 1) |alpha| |A||B|   with `tf32`: the rounding of both operands to TF32
        16 u32 |x|                           with an activation: the activation's own arithmetic
        u_out |D|                            the rounding to the result's dtype
        half the smallest subnormal          gradual underflow

    An activation multiplies the first three terms by 1.13, the largest slope of all activations.

    Args:
        self: C, broadcastable to the result. It is not read when beta is 0.
        mat1: A, (M, K) or (B, M, K), float16, bfloat16 or float32.
        mat2: B, (K, N) or (B, K, N), in mat1's dtype.
        beta, alpha: numbers. They are rounded to fp32 first, as the op rounds them.
        activation: a name in ACTIVATIONS, or None.
        out_dtype: the result's dtype. Default: mat1's.
        tf32: whether the op may round float32 operands to TF32.

    Returns:
        A Reference.
    """
    dtype = out_dtype or mat1.dtype
    alpha, beta = (torch.tensor(x, dtype=torch.float32).item() for x in (alpha, beta))
    (*batch, m, k), n = mat1.shape, mat2.shape[-1]
    a, b, u32 = mat1.double(), mat2.double(), UNIT_ROUNDOFF[torch.float32]
    zeros = a.new_zeros(*batch, m, n)
    product = alpha * (a @ b) if alpha != 0 and k > 0 else zeros
    addend = beta * self.double().expand(zeros.shape) if beta != 0 else zeros
    magnitude = abs(alpha) * (a.abs() @ b.abs()) if alpha != 0 and k > 0 else zeros
    value = product + addend
    bound = (k + 2) * u32 * magnitude + u32 * (product.abs() + addend.abs())
    if tf32:
        bound += ((1 + TF32_ROUNDOFF) ** 2 - 1) * magnitude
    if activation is not None:
        bound = 1.13 * bound + 16 * u32 * value.abs()
        value = ACTIVATIONS[activation](value)
    return Reference(value, bound + UNIT_ROUNDOFF[dtype] * value.abs() + SMALLEST_SUBNORMAL[dtype] / 2, dtype)
