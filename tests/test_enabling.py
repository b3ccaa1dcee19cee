"""enabled(): inside the block, this thread's addmm and mm run on the op. After the block, torch computes them again."""

import threading
import warnings
from contextlib import nullcontext
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import torch_addmm_tc as tc
from torch_addmm_tc.integrations import enabled


@pytest.fixture
def calls(interception, monkeypatch):
    """Record (name, thread) of each call that enabled() passes to this package."""
    seen = []
    plain = {"ADDMM": "mm", "BADDBMM": "bmm"}  # what an op is called for without an addend
    for name in ("addmm", "mm", "ADDMM", "baddbmm", "bmm", "BADDBMM"):
        function = getattr(enabled, name)

        def spy(*args, name=name, function=function, **kwargs):
            called = plain[name] if name in plain and args[0] is None else name.lower()
            seen.append((called, threading.current_thread()))
            return function(*args, **kwargs)

        monkeypatch.setattr(enabled, name, spy)
    return seen


def names(calls):
    return [name for name, _ in calls]


def operands(device, dtype=torch.bfloat16):
    return (torch.randn(s, device=device).to(dtype) for s in ((9,), (6, 17), (17, 9)))


def close(result, expected):
    return result.shape == expected.shape and torch.allclose(result, expected, rtol=0.02, atol=0.02)


def test_torch_calls_run_on_the_op(device, calls):
    c, a, b = operands(device)
    layer = nn.Linear(17, 9, device=device, dtype=torch.bfloat16).requires_grad_(False)
    expected = torch.addmm(c, a, b, beta=0.5, alpha=2), layer(a), layer(a[None]), a @ b
    assert calls == []
    with tc.enabled(torch.device(device)):
        results = torch.addmm(c, a, b, beta=0.5, alpha=2), layer(a), layer(a[None]), a @ b
    assert names(calls) == ["addmm"] * 3 + ["mm"]
    assert all(close(result, theirs) for result, theirs in zip(results, expected, strict=True))
    torch.addmm(c, a, b), a @ b
    assert len(calls) == 4


def test_batches_run_on_the_op(device, calls):
    """torch cannot view some inputs of layers as matrices, and makes batches that share the weight: each is one product."""
    head, other = (nn.Linear(17, 9, False, device=device, dtype=torch.bfloat16).requires_grad_(False) for _ in range(2))
    x = torch.randn(3, 5, 17, device=device).bfloat16()
    inputs = x[:, -1:], x.transpose(0, 1), x[:1, -2:], torch.randn(4, 3, 5, 17, device=device).bfloat16()[:, :, 1:3]
    expected = [head(each) for each in inputs] + [torch.einsum("abk,nk->abn", x[:, :2], other.weight)]
    with tc.enabled(device):
        results = [head(each) for each in inputs] + [torch.einsum("abk,nk->abn", x[:, :2], other.weight)]
        assert len(calls) == 5 and set(names(calls)) <= {"mm", "bmm"}  # a batch of one product is either
        expected += [torch.einsum("abk,ack->abc", x.float(), x.float()), x[:0, :, :5], (x[:2].float() @ x[:2, :3].float().mT)]
        batches = torch.bmm(x, x.transpose(1, 2)), torch.bmm(x[:0], x[:0].transpose(1, 2)), torch.bmm(x[:2], x[:2, :3].mT)
        with pytest.raises(RuntimeError, match="batch2"):
            torch.bmm(x, head.weight.expand(3, 9, 17))
    assert names(calls)[5:8] == ["bmm"] * 3
    assert all(close(result.float(), theirs.float()) for result, theirs in zip([*results, *batches], expected, strict=True))


@pytest.mark.parametrize("dtype", (torch.float16, torch.float32), ids=str)
def test_an_empty_batch_may_share_its_right_operand(device, dtype):
    a, b = torch.ones(0, 5, 3, dtype=dtype, device=device), torch.ones(1, 3, 4, dtype=dtype, device=device)
    with tc.enabled(device), torch.inference_mode():
        assert (a @ b).shape == torch.bmm(a, b.expand(0, 3, 4)).shape == (0, 5, 4)


def test_other_dtypes_devices_and_errors_stay_with_torch(device, calls):
    c, a, b = operands(device, torch.float64)
    expected = torch.addmm(c, a, b, beta=2)
    with tc.enabled(device):
        assert torch.equal(torch.addmm(c, a, b, beta=2), expected) and torch.equal(a @ b, torch.mm(a, b))
        with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
            torch.mm(a, b[1:])
    with tc.enabled("cuda" if device == "cpu" else "cpu"):
        _ = torch.mm(a.bfloat16(), b.bfloat16())
    assert calls == []


@pytest.mark.parametrize("operands", [((6, 8), (8,)), ((8,), (8, 9)), ((6, 8, 1), (8, 9))], ids=str)
def test_calls_that_torch_rejects_raise_torchs_errors(device, calls, operands):
    a, b = (torch.randn(shape, device=device).bfloat16() for shape in operands)
    for mat1, mat2 in ((a, b), (torch.ones(6, 8, device=device).bfloat16(), torch.ones(8, 9, device=device))):
        messages = []
        for context in (nullcontext(), tc.enabled(device)):
            with context, pytest.raises(RuntimeError) as error:
                torch.mm(mat1, mat2)
            messages.append(str(error.value))
        assert messages[0] == messages[1]
    assert calls == []


def test_dispatch_modes_see_the_call(device, calls):
    """FlopCounterMode counts the call, and the op computes it."""
    _, a, b = operands(device)
    with tc.enabled(device), FlopCounterMode(display=False) as counter:
        result = torch.mm(a, b)
    assert names(calls) == ["mm"] and counter.get_total_flops() == 2 * 6 * 17 * 9
    assert torch.equal(result, tc.mm(a, b))


def test_torch_computes_gradients(device, calls):
    layer, x = nn.Linear(17, 9, device=device, dtype=torch.bfloat16), torch.randn(6, 17, device=device).bfloat16()
    layer(x).sum().backward()
    expected = layer.weight.grad
    layer.zero_grad()
    with tc.enabled(device):
        loss = layer(x).sum()
        assert calls == []
        loss.backward()  # the backward multiplies tensors that need no gradient, so the op may run
        gradient = torch.func.grad(lambda weight: torch.mm(x, weight).sum())(layer.weight.detach().t())
        tangent = torch.func.jvp(lambda x: torch.mm(x, layer.weight.detach().t()), (x,), (x,))[1]
    assert "addmm" not in names(calls)
    assert torch.equal(layer.weight.grad, expected) and close(gradient, expected.t())
    assert close(tangent, torch.mm(x, layer.weight.detach().t()))


@pytest.mark.parametrize("requires_grad", (False, True))
def test_autocast_casts_before_the_op_runs(device, calls, requires_grad):
    layer, x = nn.Linear(17, 9, device=device).requires_grad_(requires_grad), torch.randn(6, 17, device=device)
    with tc.enabled(device), torch.autocast(device, dtype=torch.bfloat16):
        result = layer(x)
    assert result.dtype == torch.bfloat16 and result.requires_grad == requires_grad
    assert names(calls) == ([] if requires_grad else ["addmm"])


def test_subclasses_meta_tensors_and_traced_calls_stay_with_torch(device, calls):
    """Subclasses have arithmetic of their own. A graph of torch.compile outlives the block, so it must hold torch's ops."""

    class Subclass(torch.Tensor):
        """A subclass that inherits its arithmetic from Tensor.__torch_function__."""

    _, a, b = operands(device)
    with tc.enabled(device):
        torch.mm(a.as_subclass(Subclass), b)
        torch.mm(a.to("meta"), b.to("meta"))
        assert calls == []
        compiled = torch.compile(lambda a, b: torch.mm(a, b).relu(), backend="aot_eager")
        expected = compiled(a, b)
    calls.clear()
    assert close(compiled(a, b), expected) and calls == []


def test_vmap_and_inference_mode(device, calls):
    _, a, b = operands(device)
    expected = a @ b
    with tc.enabled(device), torch.inference_mode():
        assert close(torch.vmap(torch.mm, (0, None))(torch.stack([a, a]), b)[1], expected)
        assert close(a @ b, expected)
    assert "mm" in names(calls)


def test_sparse_operand_stays_with_torch(device, calls):
    """The dtype is fp32 with TF32 allowed: torch has no 16-bit product of a sparse matrix on CUDA."""
    a, b = torch.eye(4, device=device), torch.ones(4, 4, device=device)
    previous = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with tc.enabled(device):
            assert torch.equal(torch.mm(a.to_sparse(), b), b)
            assert calls == []
            assert torch.equal(torch.mm(a, b), b)
    finally:
        torch.set_float32_matmul_precision(previous)
    assert names(calls) == ["mm"]


def test_nested_addend_stays_with_torch(device, calls):
    c, a, b = operands(device)
    nested, messages = torch.nested.nested_tensor([c, c]), []
    for context in (nullcontext(), tc.enabled(device)):
        with context, pytest.raises((RuntimeError, NotImplementedError)) as error:
            torch.addmm(nested, a, b)
        # The first sentence alone is compared. The others list all backends, and a mode adds to the list.
        messages.append((error.type, str(error.value).split(".")[0]))
    assert messages[0] == messages[1] and calls == []


def test_blocks_nest_and_end_on_exceptions(device, calls):
    _, a, b = operands(device)
    with tc.enabled(device):
        with tc.enabled(device), pytest.raises(ZeroDivisionError), tc.enabled(device):
            raise ZeroDivisionError
        a @ b
    a @ b
    assert names(calls) == ["mm"]


def test_blocks_may_end_in_the_order_in_which_they_began(device, calls):
    """Generators and asynchronous tasks end blocks in this order."""

    def block():
        with tc.enabled(device):
            yield

    _, a, b = operands(device)
    first, second = block(), block()
    next(first), next(second)
    first.close()
    a @ b
    assert names(calls) == ["mm"]
    second.close()
    a @ b
    assert names(calls) == ["mm"]


def test_blocks_do_not_affect_other_threads(device, calls):
    """Four threads enter blocks repeatedly while four threads stay outside."""
    c, a, b = operands(device)
    expected, failures = torch.addmm(c, a, b), []

    def loop(inside):
        try:
            for _ in range(50):
                if inside:
                    with tc.enabled(device):
                        result = torch.addmm(c, a, b)
                else:
                    result = torch.addmm(c, a, b)
                if not close(result, expected):
                    failures.append("result")
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=loop, args=(i % 2 == 0,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(calls) == 4 * 50 and {thread for _, thread in calls} == set(threads[::2])


def test_dispatch_key_works():
    assert enabled._key_kernels is not None and enabled._key_kernels.work()


class GuardWithoutExit:
    """A guard that enters its block and never exits."""

    def __init__(self, guard):
        self.enter = guard.__enter__

    def __enter__(self):
        self.enter()

    def __exit__(self, *error):
        pass


def test_unknown_dispatch_key_selects_the_fallback(monkeypatch):
    monkeypatch.setattr(enabled, "KEY_NAME", "NoSuchKey")
    assert enabled.key_kernels() is None


def test_probe_detects_kernels_that_are_not_reached(monkeypatch):
    monkeypatch.setattr(enabled.KeyKernels, "guard", lambda self: nullcontext())
    assert not enabled._key_kernels.work()


def test_probe_detects_unexpected_dispatch_keys():
    with patch.dict(enabled._key_kernels.plain, clear=True):
        assert not enabled._key_kernels.work()


def test_probe_detects_a_key_that_stays_active(monkeypatch):
    guards = []

    def guard(self):
        guards.append(torch._C._IncludeDispatchKeyGuard(self.key))
        return GuardWithoutExit(guards[0])

    monkeypatch.setattr(enabled.KeyKernels, "guard", guard)
    try:
        assert not enabled._key_kernels.work()
    finally:
        guards[0].__exit__(None, None, None)


def test_fallback_warns_once(device, monkeypatch):
    monkeypatch.setattr(enabled, "_key_kernels", None)
    monkeypatch.setattr(enabled, "_warned", False)
    _, a, b = operands(device)
    with pytest.warns(UserWarning, match="A TorchDispatchMode takes its place.*swap_linears"), tc.enabled(device):
        assert torch.equal(a @ b, tc.mm(a, b))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with tc.enabled(device):
            assert torch.equal(a @ b, tc.mm(a, b))
