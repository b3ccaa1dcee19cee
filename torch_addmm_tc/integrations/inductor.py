"""Compiled models: torch.compile(model, options=torch_addmm_tc.compile_options()).

An Inductor pass runs on the graph that is about to be lowered, after autograd and decompositions. It replaces aten.addmm and
aten.mm by tc.addmm, and aten.baddbmm and aten.bmm by tc.baddbmm, where routing.py allows it. It also moves an activation that
follows one into the call (fusion.py). Forward and backward graphs are treated alike, because gradients are formulas by then.

The logger `torch_addmm_tc.inductor` says what was replaced (INFO, TORCH_LOGS=torch_addmm_tc). It also says what was left and
why (DEBUG, TORCH_LOGS=+torch_addmm_tc).
"""

import logging
from collections import Counter
from numbers import Number

import torch
from torch._inductor import config, list_mode_options
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.fx.experimental.symbolic_shapes import statically_known_true

from torch_addmm_tc.integrations import fusion, routing
from torch_addmm_tc.ops import tf32_allowed

log = logging.getLogger("torch_addmm_tc.inductor")

ATEN = torch.ops.aten
NOT_INVARIANT = "torch_addmm_tc: batch-invariant results were asked for, but {} {} stays with torch, because {}"
# Otherwise Inductor rounds an intermediate where it fuses less, pads where its benchmark says so, and sums a single row itself.
INVARIANT = {"emulate_precision_casts": True, "shape_padding": False, "coordinate_descent_tuning": False}

# Products by the dimensions of their operands: the op, torch's without and with an addend.
OPS = {2: torch.ops.tc.addmm.default, 3: torch.ops.tc.baddbmm.default}
PLAIN = {ATEN.mm.default: 2, ATEN.mm.dtype: 2, ATEN.bmm.default: 3, ATEN.bmm.dtype: 3}
WITH_ADDEND = {ATEN.addmm.default: 2, ATEN.addmm.dtype: 2, ATEN.baddbmm.default: 3, ATEN.baddbmm.dtype: 3}
PRODUCTS = PLAIN | WITH_ADDEND
SUMMED = {ATEN.mm.default: 2, ATEN.bmm.default: 3}  # the products whose sum with a tensor is one call


def _value(x):
    return x.meta.get("val") if isinstance(x, torch.fx.Node) else x


def _arguments(node) -> tuple[tuple, dict]:
    """Return the arguments with which the op computes what a node of PRODUCTS computes."""
    addend, (a, b, *rest) = (node.args[0], node.args[1:]) if node.target in WITH_ADDEND else (None, node.args)
    kwargs = dict(node.kwargs)
    if rest:
        kwargs["out_dtype"] = rest[0]
    return (addend, a, b), kwargs


def _unsupported_reason(node, *, batch_invariant=False) -> str | None:
    """Return why a node of PRODUCTS stays with torch, or None where the op takes it."""
    (_, *operands), kwargs = _arguments(node)
    a, b = map(_value, operands)
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return "the graph does not say what its operands are"
    if not all(isinstance(kwargs.get(name, 1), Number) for name in ("beta", "alpha")):
        return "beta or alpha is not a number"
    return routing.unsupported_reason(a, b, rank=PRODUCTS[node.target], batch_invariant=batch_invariant)


def _replace(graph, node, args, kwargs, batch_invariant):
    """Put a call of the op in the place of `node`, with what the graph knows of the node's result."""
    kwargs = kwargs | ({"precision": "tf32"} if tf32_allowed() else {})
    kwargs = kwargs | ({"batch_invariant": True} if batch_invariant else {})
    with graph.inserting_before(node):
        new = graph.call_function(OPS[node.meta["val"].dim()], args, kwargs)
    # The arguments that the node was first called with ("eager_input_vals") are not those of the new call.
    new.meta.update({key: value for key, value in node.meta.items() if key != "eager_input_vals"})
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def _match_sum(node) -> tuple | None:
    """Return (addend, product) where `node` adds a tensor that broadcasts to a product, which nothing else uses."""
    if node.target is not ATEN.add.Tensor or node.kwargs.get("alpha", 1) != 1:
        return None
    for product, addend in (node.args, node.args[::-1]):
        if not isinstance(product, torch.fx.Node) or (rank := SUMMED.get(product.target)) is None:
            continue
        if len(product.users) > 1 or addend is product:
            continue
        c, d = _value(addend), _value(node)
        if isinstance(c, torch.Tensor) and c.dtype == d.dtype == _value(product).dtype and c.dim() <= rank == d.dim():
            same = all(statically_known_true(x == y) for x, y in zip(d.shape, _value(product).shape))
            if same and c.device == d.device and not _unsupported_reason(product):
                return addend, product
    return None


class Pass(CustomGraphPass):
    """Rewrites a graph in place.

    Args:
        before: the user's own passes, which run first.
        batch_invariant: whether the calls are batch-invariant. A product that stays with torch is then an error.
    """

    def __init__(self, before=(), batch_invariant=False):
        self.before, self.batch_invariant = tuple(before), batch_invariant

    def __call__(self, graph):
        for other in self.before:
            other(graph)
        replaced, left = Counter(), Counter()
        for node in list(graph.nodes):
            if matched := _match_sum(node):
                addend, product = matched
                _replace(graph, node, (addend, *product.args), {}, self.batch_invariant)
                graph.erase_node(product)
                replaced[f"{product.target.overloadpacket} + aten.add"] += 1
        for node in list(graph.nodes):
            if node.target not in PRODUCTS:
                continue
            if reason := _unsupported_reason(node, batch_invariant=self.batch_invariant):
                if self.batch_invariant:
                    raise RuntimeError(NOT_INVARIANT.format(node.target, node.name, reason))
                left[str(node.target)] += 1
                log.debug("left %s %s: %s", node.target, node.name, reason)
                continue
            replaced[str(node.target)] += 1
            _replace(graph, node, *_arguments(node), self.batch_invariant)
        for node in list(graph.nodes):
            if name := fusion.fuse(graph, node):
                replaced[f"{node.target} + {name}"] += 1
        if replaced or left:
            log.info("replaced %s; left %s", dict(replaced) or "nothing", dict(left) or "nothing")

    def uuid(self):
        """Return a key for torch's graph cache: it changes with the pass, the setting that it reads and the user's passes.

        None, which turns caching off, where a pass of the user's has no uuid.
        """
        theirs = [other.uuid() if isinstance(other, CustomGraphPass) else None for other in self.before]
        own = get_hash_for_files((__file__, fusion.__file__, routing.__file__))
        return None if None in theirs else (own, torch.torch_version.__version__, tf32_allowed(), self.batch_invariant, *theirs)


def compile_options(mode=None, options=None, *, batch_invariant=False) -> dict:
    """Make options with which torch.compile runs a model's products on this package's op.

    Args:
        mode: one of torch.compile's modes, "reduce-overhead" say, because torch.compile takes no mode beside options. None is
            torch's default mode.
        options: further Inductor options, which win over the mode's. A post_grad_custom_pre_pass among them, or else in
            torch._inductor.config, still runs, before this package's pass. {"shape_padding": False} keeps torch from padding
            odd sizes: it pads them where its own kernels gain, and a sum or an activation after a padded product is not fused.
        batch_invariant: whether the op's calls are batch-invariant (torch_addmm_tc.addmm). The kernel is chosen when the graph
            runs, so that a graph of dynamic shapes serves every batch. A product that the op does not take is then an error of
            the compilation. What Inductor decides by the batch is off: its own operators round 16-bit intermediates as eager
            ones do (emulate_precision_casts), and no product is padded (shape_padding) or becomes a sum
            (coordinate_descent_tuning).

    Returns:
        The `options` for torch.compile, or the `inductor_configs` for torch._inductor.aoti_compile_and_package.

    Raises:
        RuntimeError: torch's, for an unknown mode.
    """
    options = dict(options or {})
    theirs = options.pop("post_grad_custom_pre_pass", config.post_grad_custom_pre_pass)
    theirs = () if theirs is None else theirs if isinstance(theirs, (list, tuple)) else (theirs,)
    theirs = [p for other in theirs for p in (other.before if isinstance(other, Pass) else (other,))]
    of_mode = list_mode_options(mode) if mode else {}
    if batch_invariant:
        options = {**INVARIANT, **options}
    return {**of_mode, **options, "post_grad_custom_pre_pass": Pass(theirs, batch_invariant)}
