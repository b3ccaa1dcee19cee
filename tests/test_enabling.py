"""enabled(): torch's own calls reach the op inside the block, in this thread, and nothing of it is left behind."""

import threading
import warnings

import pytest
import torch
from torch import nn

import torch_addmm_tc as tc
from torch_addmm_tc import enabling


@pytest.fixture
def calls(monkeypatch):
    """The names of this package's functions that torch's calls arrive at."""
    names = []
    for name in ("addmm", "mm"):
        function = getattr(enabling, name)
        monkeypatch.setattr(
            enabling,
            name,
            lambda *args, name=name, function=function, **kwargs: names.append(name) or function(*args, **kwargs),
        )
    return names


def operands(device, dtype=torch.bfloat16):
    return (torch.randn(s, device=device).to(dtype) for s in ((9,), (6, 17), (17, 9)))


def test_torchs_calls_arrive(device, calls):
    c, a, b = operands(device)
    layer = nn.Linear(17, 9, device=device, dtype=torch.bfloat16)
    expected = torch.addmm(c, a, b, beta=0.5, alpha=2), layer(a), layer(a[None]), a @ b
    assert calls == []
    with tc.enabled(device):
        results = torch.addmm(c, a, b, beta=0.5, alpha=2), layer(a), layer(a[None]), a @ b
    assert calls == ["addmm"] * 3 + ["mm"]
    for result, theirs in zip(results, expected, strict=True):
        assert result.shape == theirs.shape and torch.allclose(result, theirs, rtol=0.02, atol=0.02)


def test_the_rest_is_torchs(device, calls):
    c, a, b = operands(device, torch.float64)
    expected = torch.addmm(c, a, b, beta=2)
    with tc.enabled(device):
        assert torch.equal(torch.addmm(c, a, b, beta=2), expected) and torch.equal(a @ b, torch.mm(a, b))
        with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
            torch.mm(a, b[1:])
    assert calls == []


def test_gradients_are_torchs(device, calls):
    layer, x = nn.Linear(17, 9, device=device, dtype=torch.bfloat16), torch.randn(6, 17, device=device).bfloat16()
    layer(x).sum().backward()
    expected = layer.weight.grad
    layer.zero_grad()
    with tc.enabled(device):
        layer(x).sum().backward()
    assert "addmm" in calls and torch.allclose(layer.weight.grad, expected, rtol=0.02, atol=0.02)


def test_autocast_arrives_too(device, calls):
    layer, x = nn.Linear(17, 9, device=device).requires_grad_(False), torch.randn(6, 17, device=device)
    with tc.enabled(device), torch.autocast(device, dtype=torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    assert calls == ["addmm"]


def test_nothing_is_left_behind(device, calls):
    _, a, b = operands(device)
    before = torch._C._dispatch_dump("aten::mm"), torch._C._dispatch_dump("aten::addmm")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            with tc.enabled(device), tc.enabled(device):
                pass
            with pytest.raises(ZeroDivisionError), tc.enabled(device):
                raise ZeroDivisionError
    assert (torch._C._dispatch_dump("aten::mm"), torch._C._dispatch_dump("aten::addmm")) == before
    a @ b
    assert calls == []


def test_only_the_threads_inside(device, calls):
    _, a, b = operands(device)
    entered, leave = threading.Event(), threading.Event()

    def inside():
        with tc.enabled(device):
            entered.set()
            leave.wait(60)
            a @ b

    thread = threading.Thread(target=inside)
    thread.start()
    assert entered.wait(60)
    a @ b
    assert calls == []
    with tc.enabled(device):
        a @ b
    assert calls == ["mm"]
    a @ b
    leave.set()
    thread.join()
    assert calls == ["mm", "mm"]


def test_many_threads_come_and_go(device):
    _, a, b = operands(device)
    expected, wrong = (a.double() @ b.double()).float(), []

    def loop():
        for _ in range(20):
            with tc.enabled(device):
                if not torch.allclose((a @ b).float(), expected, rtol=0.02, atol=0.05):
                    wrong.append(1)

    threads = [threading.Thread(target=loop) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and not enabling._inside
