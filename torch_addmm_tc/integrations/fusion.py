"""Activations in compiled graphs: the operators that follow a product are matched and become its `activation`."""

import functools
import math
from functools import partial

import torch
import torch.nn.functional as F
from torch._inductor.decomposition import select_decomp_table
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg

ATEN, PRODUCTS = torch.ops.aten, (torch.ops.tc.addmm.default, torch.ops.tc.baddbmm.default)
VIEWS = (ATEN.reshape.default, ATEN.view.default)
CONVERT = torch.ops.prims.convert_element_type.default


def _gelu_tanh_by_hand(x):
    """gelu_tanh as GPT-2's authors, and transformers after them, write it."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


FORMULAS = (
    ("relu", F.relu),
    ("gelu", F.gelu),
    ("gelu_tanh", partial(F.gelu, approximate="tanh")),
    ("gelu_tanh", _gelu_tanh_by_hand),
    ("silu", F.silu),
)


@functools.cache
def patterns() -> dict:
    """Return {dtype: ((activation's name, graph of a formula as Inductor decomposes it), ...)}."""

    def trace(formula, dtype):
        return make_fx(lambda x: formula(x), select_decomp_table())(torch.empty(2, 2, dtype=dtype)).graph

    dtypes = (torch.float16, torch.bfloat16, torch.float32)
    return {dtype: tuple((name, trace(formula, dtype)) for name, formula in FORMULAS) for dtype in dtypes}


def _match(pattern, source) -> list | None:
    """Return the nodes that compute `pattern` of `source`, in order.

    None where the graph has no such nodes, or where others use an intermediate value.
    """
    nodes = {}
    for node in pattern.nodes:
        if node.op == "placeholder":
            nodes[node] = source
        elif node.op == "call_function":
            args = map_arg(node.args, nodes.get)
            users = next(x for x in args if isinstance(x, torch.fx.Node)).users
            alike = (user for user in users if user.target is node.target and user.args == args and user.kwargs == node.kwargs)
            nodes[node] = next(alike, None)
            if nodes[node] is None:
                return None
    found = list(nodes.values())
    return found[1:] if all(user in found for node in found[:-1] for user in node.users) else None


def _is_materialized(node) -> bool:
    """Whether a node's result is written to memory, for a product to read, say.

    A pointwise user would compute the activation itself while it reads the product, so that fusing it saves nothing.
    """
    for user in node.users:
        if user.target in VIEWS:
            if _is_materialized(user):
                return True
        elif user.target is not CONVERT and torch.Tag.pointwise not in getattr(user.target, "tags", ()):
            return True
    return False


def fuse(graph, product) -> str | None:
    """Move the activation that follows a call of tc.addmm or tc.baddbmm, reshaped or not, into the call.

    Args:
        graph: the torch.fx.Graph, changed in place.
        product: one of its nodes.

    Returns:
        The activation's name, or None where nothing was fused.
    """
    if product.target not in PRODUCTS or product.kwargs.get("activation", "none") != "none":
        return None
    only = next(iter(product.users)) if len(product.users) == 1 else None
    view = only if only is not None and only.target in VIEWS and only.args[0] is product else None
    for name, pattern in patterns().get(product.meta["val"].dtype, ()):
        found = _match(pattern, view or product)
        if not found or not _is_materialized(found[-1]):
            continue
        product.kwargs = {**product.kwargs, "activation": name}
        found[-1].replace_all_uses_with(view or product)
        for node in reversed(found):
            graph.erase_node(node)
        return name
    return None
