"""Wrong calls raise torch.addmm's message where torch has one, and they change no tensor."""

import re
import warnings

import pytest
import torch

import torch_addmm_tc as tc

OPS = torch.ops.tc


def randn(*shape, dtype=torch.float16):
    return torch.randn(shape).to(dtype)


TORCH_ERRORS = {
    "mat1 is 1-D": lambda: (randn(3, 5), randn(4), randn(4, 5)),
    "mat2 is 1-D": lambda: (randn(3, 5), randn(3, 4), randn(4)),
    "mat1 is 3-D": lambda: (randn(3, 5), randn(1, 3, 4), randn(4, 5)),
    "inner sizes": lambda: (randn(3, 5), randn(3, 4), randn(3, 5)),
    "self does not expand, columns": lambda: (randn(3), randn(3, 4), randn(4, 5)),
    "self does not expand, rows": lambda: (randn(4, 5), randn(3, 4), randn(4, 5)),
    "self is empty": lambda: (randn(0), randn(3, 4), randn(4, 5)),
    "self dtype": lambda: (randn(3, 5, dtype=torch.float32), randn(3, 4), randn(4, 5)),
    "mat1 dtype": lambda: (randn(3, 5), randn(3, 4, dtype=torch.float32), randn(4, 5)),
    "mat2 dtype": lambda: (randn(3, 5), randn(3, 4), randn(4, 5, dtype=torch.float32)),
}


def first_line(raised):
    """Return the message's first line in the wording of torch before 2.15.

    torch 2.15 starts some messages with "addmm: " and calls mat1 self in them.
    """
    line = str(raised.value).split("\n")[0]
    return line.removeprefix("addmm: ").replace("self must be a matrix", "mat1 must be a matrix")


@pytest.mark.parametrize("make", TORCH_ERRORS.values(), ids=TORCH_ERRORS)
def test_errors_are_those_of_torch_addmm(device, make):
    args = [x.to(device) for x in make()]
    with pytest.raises(RuntimeError) as theirs:
        torch.addmm(*args)
    with pytest.raises(RuntimeError) as ours:
        tc.addmm(*args)
    assert first_line(ours) == first_line(theirs)


def test_self_with_three_dimensions_raises(device):
    with pytest.raises(RuntimeError, match=r"the number of sizes provided \(2\) must be greater or equal"):
        tc.addmm(randn(1, 3, 5).to(device), randn(3, 4).to(device), randn(4, 5).to(device))


@pytest.mark.parametrize("dtype", (torch.float64, torch.int32, torch.bool, torch.complex64, torch.uint8), ids=str)
def test_unsupported_dtype_error_lists_the_supported_dtypes(device, dtype):
    x = torch.ones(4, 4).to(dtype).to(device)
    with pytest.raises(RuntimeError, match="supports float16, bfloat16 and float32 tensors, but mat1 has dtype"):
        tc.addmm(x, x, x)


@pytest.mark.parametrize("dtype, out_dtype", [(torch.float16, torch.bfloat16), (torch.float32, torch.float16)])
def test_unsupported_out_dtype_raises(device, dtype, out_dtype):
    x = torch.ones(4, 4, dtype=dtype, device=device)
    with pytest.raises(RuntimeError, match="out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs"):
        tc.addmm(x, x, x, out_dtype=out_dtype)


def test_scalar_of_wrong_type_error_names_the_argument(device):
    x = torch.ones(4, 4, device=device)
    for name, value in (("beta", "1"), ("alpha", 1j), ("beta", None)):
        with pytest.raises(RuntimeError, match=f"(?s)Expected a value of type 'float' for argument '{name}'"):
            tc.addmm(x, x, x, **{name: value})


TENSORS = ("self", "mat1", "mat2", "out")
LAYOUTS = {
    "torch.sparse_coo": torch.Tensor.to_sparse,
    "torch.sparse_csr": torch.Tensor.to_sparse_csr,
    "torch._mkldnn": torch.Tensor.to_mkldnn,
}


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("position, name", list(enumerate(TENSORS)))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_other_than_strided_raise(device, position, name, layout):
    if layout == "torch._mkldnn" and device == "cuda":
        pytest.skip("mkldnn tensors are on the CPU")
    tensors = [torch.eye(4, device=device) for _ in TENSORS]
    tensors[position] = LAYOUTS[layout](tensors[position])
    message = f"takes strided tensors, but {name} has layout {layout}. Pass {name}.to_dense()."
    *args, out = tensors
    if name != "out":
        with pytest.raises(RuntimeError, match=re.escape(message)):
            OPS.addmm(*args)
    with pytest.raises(RuntimeError, match=re.escape(message)):
        OPS.addmm_out(*args, out=out)


def test_calls_release_their_tensors(device):
    """The stable ABI hands a kernel owned references, so the kernel must release them, also where it raises."""
    x, sparse = torch.ones(4, 4, device=device), torch.eye(4, device=device).to_sparse()
    references = lambda: torch._C._storage_Use_Count(x.untyped_storage()._cdata)  # noqa: E731
    before = references()
    for args in ((x, x, sparse), (x, x, x[:2]), (x, None, x), (x, x, x.double())):
        with pytest.raises(RuntimeError):
            OPS.addmm(*args)
        with pytest.raises(RuntimeError):
            OPS.addmm_out(*args, out=x.clone())
    OPS.addmm(x, x, x, activation="relu", out_dtype=torch.float32)
    OPS.addmm_out(None, x, x, out=x.clone())
    assert references() == before


@pytest.mark.parametrize("where", ("eager", "meta", "vmap", "autocast"))
@pytest.mark.parametrize("position, name", [(1, "mat1"), (2, "mat2")])
def test_missing_operand_error_names_the_operand(device, where, position, name):
    args = [torch.ones(4, 4, device="meta" if where == "meta" else device) for _ in range(3)]
    if where == "vmap":
        args[0] = args[0].expand(2, 4, 4)
    args[position] = None
    dims = tuple(0 if x is args[0] else None for x in args)
    for function in (OPS.addmm.default, tc.addmm):
        call = torch.vmap(function, dims) if where == "vmap" else function
        message = f"{name} must be a tensor, but got None. Only self may be None"
        with torch.autocast(device, torch.bfloat16, enabled=where == "autocast"), pytest.raises(RuntimeError, match=message):
            call(*args)
    if where == "eager":
        with pytest.raises(RuntimeError, match=f"{name} must be a tensor"):
            tc.addmm(*args, out=torch.ones(4, 4, device=device))


OPTIONS = {
    "activation": ("elu", "activation must be one of none, relu, gelu, gelu_tanh, silu, but got 'elu'"),
    "precision": (
        "high",
        "precision must be 'ieee' (float32 products in float32) or 'tf32' (float32 operands rounded to TF32), ",
    ),
}


@pytest.mark.parametrize("where", ("eager", "meta"))
@pytest.mark.parametrize("option", OPTIONS)
def test_unsupported_option_value_raises(device, where, option):
    x = torch.ones(4, 4, device="meta" if where == "meta" else device)
    out = torch.full_like(x, 7)
    value, message = OPTIONS[option]
    with pytest.raises(RuntimeError, match=re.escape(message)):
        OPS.addmm(x, x, x, **{option: value})
    with pytest.raises(RuntimeError, match=re.escape(message)):
        OPS.addmm_out(x, x, x, **{option: value}, out=out)
    assert where == "meta" or (out == 7).all()


def test_kernel_name_needs_cuda_tensors():
    x = torch.ones(4, 4)
    with pytest.raises(RuntimeError, match="kernel_name 'simt' runs on CUDA tensors, but got tensors on the CPU"):
        OPS.addmm_out(x, x, x, kernel_name="simt", out=torch.empty(4, 4))


META_ERRORS = {
    **TORCH_ERRORS,
    "dtype": lambda: (torch.ones(4, 4, dtype=torch.int32),) * 3,
}


@pytest.mark.parametrize("make", META_ERRORS.values(), ids=META_ERRORS)
def test_meta_tensors_raise_the_eager_errors(make):
    """registration/fake.py repeats the compiled checks and shares their messages."""
    args = make()
    with pytest.raises(RuntimeError) as eager:
        OPS.addmm(*args)
    with pytest.raises(RuntimeError) as meta:
        OPS.addmm(*(x.to("meta") for x in args))
    assert first_line(meta) == first_line(eager)


@pytest.mark.parametrize("make", TORCH_ERRORS.values(), ids=TORCH_ERRORS)
def test_out_and_plan_raise_the_same_errors(device, make):
    args = [x.to(device) for x in make()]
    out = torch.empty(3, 5, dtype=args[1].dtype, device=device)
    with pytest.raises(RuntimeError) as expected:
        tc.addmm(*args)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError) as raised:
            tc.addmm(*args, out=out)
    assert first_line(raised) == first_line(expected)
    with pytest.raises(RuntimeError) as planned:
        tc.plan(*args)
    assert first_line(planned) == first_line(expected)


def test_zero_dimensional_operand_with_out_raises(device):
    x, out = torch.ones(4, 4, device=device), torch.empty(4, 4, device=device)
    for args in ((x, x[0, 0], x), (x, x, x[0, 0])):
        with pytest.raises(RuntimeError, match="must be a matrix, got 0-D tensor"):
            tc.addmm(*args, out=out)


@pytest.mark.gpu
def test_devices_must_agree():
    cpu, gpu = torch.ones(4, 4), torch.ones(4, 4, device="cuda")
    for args in ((cpu, gpu, gpu), (gpu, cpu, gpu), (gpu, gpu, cpu), (cpu[0, 0], gpu, gpu)):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            tc.addmm(*args)
    with pytest.raises(RuntimeError, match="Expected out tensor to be on the same device"):
        tc.addmm(gpu, gpu, gpu, out=torch.empty(4, 4))


@pytest.mark.gpu
def test_errors_leave_no_sticky_cuda_error():
    x = torch.ones(4, 4, device="cuda")
    for bad in (lambda: tc.addmm(x, x, x[:2]), lambda: tc.addmm(x, x.double(), x.double())):
        with pytest.raises(RuntimeError):
            bad()
    torch.cuda.synchronize()
    assert torch.equal(tc.addmm(x, x, x), torch.full((4, 4), 5.0, device="cuda"))


def test_failed_call_does_not_write_out(device):
    out = torch.full((3, 5), 7.0, dtype=torch.float16, device=device)
    with pytest.raises(RuntimeError):
        tc.addmm(randn(3).to(device), randn(3, 4).to(device), randn(4, 5).to(device), out=out)
    assert (out == 7).all()


FORWARD_ONLY = "{} requires grad and grad mode is on"


@pytest.mark.parametrize("position, name", [(0, "self"), (1, "mat1"), (2, "mat2")])
@pytest.mark.parametrize("leaf", (True, False))
def test_inputs_that_require_grad_raise(device, position, name, leaf):
    args = [torch.ones(4, 4, device=device) for _ in range(3)]
    args[position].requires_grad_()
    if not leaf:
        args[position] = args[position] * 1
    with pytest.raises(RuntimeError, match=re.escape(FORWARD_ONLY.format(name)) + ".*no_grad.*detach"):
        tc.addmm(*args)
    with pytest.raises(RuntimeError, match="torch.addmm"):
        tc.addmm(*args, out_dtype=torch.float32)
    with pytest.raises(RuntimeError, match=FORWARD_ONLY.format(name)):
        tc.addmm(*args, out=torch.empty(4, 4, device=device))
    with torch.no_grad():
        assert not tc.addmm(*args).requires_grad
    with torch.inference_mode():
        assert not tc.addmm(*args).requires_grad
    args[position] = args[position].detach()
    assert not tc.addmm(*args).requires_grad


def test_torch_warns_where_a_transform_hides_the_gradient(device):
    """Inside torch.func.grad, no kernel can see that an argument requires grad (docs/semantics.md)."""
    x = torch.ones(4, 4, device=device)
    with pytest.warns(UserWarning, match="tc::addmm: an autograd kernel was not registered"):
        torch.func.grad(lambda mat1: tc.addmm(x, mat1, x).sum())(x)


def test_out_that_requires_grad_raises_like_torch(device):
    x = torch.ones(4, 4, device=device)
    with pytest.raises(RuntimeError, match="out=... arguments don't support automatic differentiation"):
        tc.addmm(x, x, x, out=torch.empty(4, 4, device=device, requires_grad=True))


def test_compiled_call_with_an_input_that_requires_grad_raises(device):
    x, w = torch.ones(4, 4, device=device), torch.ones(4, 4, device=device, requires_grad=True)
    with pytest.raises(Exception, match=FORWARD_ONLY.format("mat2")):
        torch.compile(tc.addmm, fullgraph=True)(x, x, w)


def test_failed_allocation_raises_torchs_words():
    """torch tells its words to extensions since 2.13."""
    tells = torch.__version__ >= torch.torch_version.TorchVersion("2.13")
    a = torch.ones(1, 1).expand(2**24, 1)
    with pytest.raises(RuntimeError, match="can't allocate memory" if tells else "allocating the result failed"):
        tc.mm(a, a.t())  # 2^50 bytes


def test_plan_raises_the_errors_of_unknown_names():
    x = torch.empty(8, 8, device="meta")
    with pytest.raises(RuntimeError, match="activation must be one of none, relu, gelu, gelu_tanh, silu, but got 'elu'"):
        tc.plan(x, x, x, activation="elu")
    with pytest.raises(RuntimeError, match="precision must be 'ieee' .* but got 'fp32'"):
        tc.plan(x, x, x, precision="fp32")
