"""Activations in compiled graphs: what follows a product is recognised, operator by operator, and goes into its epilogue."""

import functools
import math
from functools import partial

import torch
import torch.nn.functional as F
from torch._inductor.decomposition import select_decomp_table
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg

ATEN, TC = torch.ops.aten, torch.ops.tc
ACTIVATED = {
    TC.addmm.default: TC.addmm_activation.default,
    TC.addmm.dtype: TC.addmm_activation.dtype,
    TC.mm.default: TC.mm_activation.default,
    TC.mm.dtype: TC.mm_activation.dtype,
}
VIEWS = (ATEN.reshape.default, ATEN.view.default)
CONVERT = torch.ops.prims.convert_element_type.default


def _written_out(x):
    """gelu_tanh as GPT-2's authors wrote it, and transformers after them."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


FORMULAS = (
    ("relu", F.relu),
    ("gelu", F.gelu),
    ("gelu_tanh", partial(F.gelu, approximate="tanh")),
    ("gelu_tanh", _written_out),
    ("silu", F.silu),
)


@functools.cache
def patterns() -> dict:
    """{dtype: ((name, graph of a formula as Inductor decomposes it), ...)}"""

    def trace(formula, dtype):
        return make_fx(lambda x: formula(x), select_decomp_table())(torch.empty(2, 2, dtype=dtype)).graph

    dtypes = (torch.float16, torch.bfloat16, torch.float32)
    return {dtype: tuple((name, trace(formula, dtype)) for name, formula in FORMULAS) for dtype in dtypes}


def copy_meta(old, new):
    """What the graph knows of a node, but for the arguments that it was first called with."""
    new.meta.update({key: value for key, value in old.meta.items() if key != "eager_input_vals"})


def _found(pattern, source) -> list | None:
    """The nodes that compute `pattern` of `source`, in order; None where there are none or others use what lies between."""
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


def _is_needed_in_memory(node) -> bool:
    """By a product, say. A pointwise operator would compute the activation itself, while it reads the product."""
    for user in node.users:
        if user.target in VIEWS:
            if _is_needed_in_memory(user):
                return True
        elif user.target is not CONVERT and torch.Tag.pointwise not in getattr(user.target, "tags", ()):
            return True
    return False


def fuse(graph, product) -> str | None:
    """Puts the activation that follows a product of this package, reshaped or not, into it. Returns the activation's name."""
    if product.target not in ACTIVATED:
        return None
    only = next(iter(product.users)) if len(product.users) == 1 else None
    view = only if only is not None and only.target in VIEWS and only.args[0] is product else None
    for name, pattern in patterns().get(product.meta["val"].dtype, ()):
        found = _found(pattern, view or product)
        if not found or not _is_needed_in_memory(found[-1]):
            continue
        with graph.inserting_before(product):
            result = graph.call_function(ACTIVATED[product.target], product.args, {**product.kwargs, "activation": name})
            copy_meta(product, result)
        if view:
            with graph.inserting_before(view):
                result = graph.call_function(view.target, (result, *view.args[1:]), view.kwargs)
                copy_meta(view, result)
        found[-1].replace_all_uses_with(result)
        for node in (*reversed(found), *filter(None, (view,)), product):
            graph.erase_node(node)
        return name
    return None
