// Introspection for Python: which kernels there are, and what the planner thinks of a problem. The op itself is in op.cpp.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "../gemm/overlap.h"
#include "../gemm/planner.h"
#include "../layout/swizzle.h"
#include "messages.h"

namespace py = pybind11;

namespace tc {
namespace {

DType dtype_named(const std::string& name) {
  for (DType t : {DType::f16, DType::bf16, DType::f32})
    if (name == name_of(t)) return t;
  throw py::value_error("dtype must be float16, bfloat16 or float32, but got " + name);
}

using MatrixTuple = std::tuple<uintptr_t, int64_t, int64_t, std::string>;  // address, row stride, column stride, dtype

Matrix matrix(const MatrixTuple& x) {
  return {reinterpret_cast<void*>(std::get<0>(x)), std::get<1>(x), std::get<2>(x), dtype_named(std::get<3>(x))};
}

py::dict describe(const Instance& i) {
  using namespace py::literals;
  return py::dict("tile_m"_a = i.tile_m, "tile_n"_a = i.tile_n, "tile_k"_a = i.tile_k, "stages"_a = i.stages,
                  "threads"_a = i.threads,
                  "smem_bytes"_a = i.smem_bytes, "blocks_per_sm"_a = i.blocks_per_sm);
}

py::list list_kernels() {
  using namespace py::literals;
  py::list result;
  for (const Kernel& kernel : kernels()) {
    py::list operands, instances;
    for (DType t : {DType::f16, DType::bf16, DType::f32})
      if (kernel.operands & bit(t)) operands.append(name_of(t));
    if (kernel.operands & kTf32) operands.append("tf32");
    for (int i = 0; i < kernel.num_instances; ++i) instances.append(describe(kernel.instances[i]));
    result.append(py::dict("name"_a = kernel.name, "idea"_a = kernel.idea, "min_sm"_a = kernel.min_sm,
                           "operands"_a = operands, "contiguous_operands"_a = kernel.access == Access::contiguous,
                           "split_k"_a = kernel.split_k != SplitK::none,
                           "instances"_a = instances, "compiled"_a = kernel.launch != nullptr));
  }
  return result;
}

// Every instance's verdict, the planner's pick first, then in ladder order.
py::list judge_all(int64_t m, int64_t n, int64_t k, const MatrixTuple& a, const MatrixTuple& b, const MatrixTuple& c,
                   const MatrixTuple& d, float alpha, float beta, bool allow_tf32, int sm, int num_sms,
                   int64_t smem_per_block) {
  using namespace py::literals;
  const Problem given{m, n, k, matrix(a), matrix(b), matrix(c), matrix(d), alpha, beta, allow_tf32}, p = canonical(given);
  const Device device{0, sm, num_sms, smem_per_block};
  const Instance* chosen = plan(p, device).instance;
  py::list result;
  for (const Kernel& kernel : kernels())
    for (int i = 0; i < kernel.num_instances; ++i) {
      const Verdict v = judge(kernel, kernel.instances[i], p, device);
      py::dict entry("kernel"_a = kernel.name, "index"_a = i, "instance"_a = describe(*v.instance),
                     "transposed"_a = order_of(canonical(given.d, m, n)) == Order::col_major,
                     "microseconds"_a = v.microseconds, "splits"_a = v.splits, "repack_a"_a = v.repack_a,
                     "repack_b"_a = v.repack_b, "workspace_bytes"_a = workspace_of(p, v).size,
                     "rejection"_a = v.rejection ? py::object(py::str(v.rejection)) : py::object(py::none()));
      if (v.instance == chosen) result.insert(0, entry);
      else result.append(entry);
    }
  return result;
}

}  // namespace
}  // namespace tc

PYBIND11_MODULE(_C, module) {
  using namespace py::literals;
  module.doc() = "torch_addmm_tc's compiled part: importing it registers torch.ops.tc.*; its functions only describe.";
  module.def("kernels", &tc::list_kernels);
  py::list activations;
  for (const tc::NamedActivation& x : tc::kActivations) activations.append(x.name);
  module.attr("activations") = activations;
  py::dict messages;
#define TC_ADD_MESSAGE(name, text) messages[#name] = text;
  TC_MESSAGES(TC_ADD_MESSAGE)
#undef TC_ADD_MESSAGE
  module.attr("messages") = messages;
  module.def("judge", &tc::judge_all, py::kw_only(), py::arg("m"), py::arg("n"), py::arg("k"), py::arg("a"),
             py::arg("b"), py::arg("c"), py::arg("d"), py::arg("alpha"), py::arg("beta"), py::arg("allow_tf32"),
             py::arg("sm"), py::arg("num_sms"), py::arg("smem_per_block"));
  module.def("overlap", [](const tc::MatrixTuple& x, int64_t x_rows, int64_t x_cols, const tc::MatrixTuple& y,
                           int64_t y_rows, int64_t y_cols) {
    return tc::overlap(tc::matrix(x), x_rows, x_cols, tc::matrix(y), y_rows, y_cols);
  });
  module.def("overlaps_itself", [](const tc::MatrixTuple& x, int64_t rows, int64_t cols) {
    return tc::overlaps_itself(tc::matrix(x), rows, cols);
  });
  module.def("padded_offset", &tc::padded_offset, py::arg("line"), py::arg("col"), py::arg("pitch"));
  module.def("swizzled_chunk", &tc::swizzled_chunk, py::arg("line"), py::arg("chunk"), py::arg("chunks"));
  module.def("swizzled_offset", &tc::swizzled_offset, py::arg("line"), py::arg("col"), py::arg("extent"),
             py::arg("bytes"));
  module.attr("paddings") = py::dict("skew"_a = tc::kSkew, "pad_bytes"_a = tc::kPadBytes, "slab_pad"_a = tc::kSlabPad,
                                     "row_pad"_a = tc::kRowPad);
#ifdef TC_WITH_CUDA
  module.attr("with_cuda") = true;
#else
  module.attr("with_cuda") = false;
#endif
}
