// Introspection for Python: which kernels there are, and what the planner thinks of a problem. The op itself is in op.cpp.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>

#include "../gemm/feasibility.h"
#include "../gemm/overlap.h"
#include "../gemm/plans.h"
#include "../layout/swizzle.h"
#include "checks.h"
#include "messages.h"
#ifdef TC_WITH_CUDA
#include "device_spec.h"
#endif

namespace py = pybind11;

namespace tc {
namespace {

using namespace py::literals;

DType dtype_named(const std::string& name) {
  for (DType t : {DType::f16, DType::bf16, DType::f32})
    if (name == name_of(t)) return t;
  throw py::value_error("dtype must be float16, bfloat16 or float32, but got " + name);
}

// Address, batch stride, row stride, column stride, dtype.
using MatrixTuple = std::tuple<uintptr_t, int64_t, int64_t, int64_t, std::string>;

MatrixView matrix(const MatrixTuple& x) {
  const auto& [address, batch, row, col, dtype] = x;
  return {reinterpret_cast<void*>(address), row, col, batch, dtype_named(dtype)};
}

py::dict describe(const KernelTraits& kernel, int i) {
  const Config& c = kernel.configs[i];
  py::list archs, compiled_for, maths;
  for (Math math : kMaths)
    if (multiplies(kernel, c, math)) maths.append(name_of(math));
  if (c.archs & kAmpere) archs.append("ampere");
  if (c.archs & kHopper) archs.append("hopper");
  for (int arch : kernel.code[i].archs)
    if (arch) compiled_for.append(arch);
  return py::dict("tile_m"_a = c.tile_m, "tile_n"_a = c.tile_n, "tile_k"_a = c.tile_k, "stages"_a = c.stages,
                  "threads"_a = c.threads, "smem_bytes"_a = c.smem_bytes, "blocks_per_sm"_a = c.blocks_per_sm,
                  "warp_slices"_a = c.warp_slices, "boxes"_a = c.boxes, "pingpong"_a = c.pingpong, "alignment"_a = c.alignment,
                  "fp32_d"_a = c.fp32_d, "maths"_a = maths, "archs"_a = archs, "compiled_for"_a = compiled_for);
}

py::tuple tuple_of(const Cluster& x) { return py::make_tuple(x.m, x.n, x.k); }

py::list list_kernels() {
  py::list result;
  for (const KernelTraits& kernel : kernels()) {
    py::list maths, in_order, configs, clusters, narrower;
    for (int columns : kernel.narrower) narrower.append(columns);
    for (const Cluster& x : kernel.clusters) clusters.append(tuple_of(x));
    for (Math math : kMaths)
      if (kernel.maths.has(math)) maths.append(name_of(math));
    for (Math math : kMaths)
      if (kernel.in_order.has(math)) in_order.append(name_of(math));
    bool compiled = false;
    for (int i = 0; i < kernel.configs.count; ++i) {
      configs.append(describe(kernel, i));
      compiled |= kernel.code[i].launch != nullptr;
    }
    result.append(py::dict("name"_a = kernel.name, "idea"_a = kernel.idea, "min_sm"_a = kernel.min_sm,
                           "unit"_a = name_of(kernel.unit), "maths"_a = maths, "in_order"_a = in_order,
                           "contiguous_operands"_a = kernel.access == OperandAccess::contiguous, "split_k"_a = kernel.split_k,
                           "clusters"_a = clusters, "narrower"_a = narrower, "configs"_a = configs, "compiled"_a = compiled));
  }
  return result;
}

py::dict describe(const KnownGpu& gpu) {
  return py::dict("fp32_tflops"_a = gpu.fp32_tflops, "mma_sync_tflops"_a = gpu.mma_sync_tflops,
                  "wgmma_tflops"_a = gpu.wgmma_tflops, "dram_gb_per_s"_a = gpu.dram_gb_per_s);
}

// The peaks of a GPU by the driver's name for it; where the table has none, those that its SMs would have at 1.7 GHz, with 20
// GB/s of bandwidth for each.
py::dict gpu_peaks(const std::string& name, int sm, int num_sms) {
  const KnownGpu* known = find_gpu(name, sm, num_sms);
  return describe(known ? *known : derived_gpu(sm, num_sms, 1.7, 20.0 * num_sms));
}

std::string problem_text(int64_t batch, int64_t m, int64_t n, int64_t k, const MatrixTuple& a, const MatrixTuple& b,
                         const MatrixTuple& c, const MatrixTuple& d, float alpha, float beta, const std::string& activation,
                         bool tf32, bool batch_invariant) {
  const Activation* found = find_activation(activation);
  if (!found) throw py::value_error("activation must be one of _C.activations, but got " + activation);
  const Precision precision = tf32 ? Precision::tf32 : Precision::ieee;
  const EpilogueArgs epilogue{alpha, beta, *found};
  const GemmDesc given{batch, m, n, k, matrix(a), matrix(b), matrix(c), matrix(d), precision, batch_invariant, false, epilogue};
  GemmDesc desc = canonical(given);
  desc.batch = std::min(desc.batch, kMostProducts);  // the first part, as run_cuda launches it
  return text_of(key_of(canonical(desc)));
}

PlanKey key_named(const std::string& text) {
  const std::optional<PlanKey> key = parse_plan_key(text);
  if (!key) throw py::value_error("a problem must be written as torch_addmm_tc.log_problems writes it, but got '" + text + "'");
  return *key;
}

// The parts of a problem's text: {"m": ..., "a": (dtype, row stride, column stride, batch stride, alignment), ...}.
py::dict describe_problem(const std::string& text) {
  const PlanKey p = key_named(text);
  const auto of = [](const MatrixKey& x) { return py::make_tuple(name_of(x.dtype), x.row, x.col, x.batch, x.alignment); };
  return py::dict("batch"_a = p.batch, "m"_a = p.m, "n"_a = p.n, "k"_a = p.k, "a"_a = of(p.a), "b"_a = of(p.b), "c"_a = of(p.c),
                  "d"_a = of(p.d), "precision"_a = name_of(p.precision), "activation"_a = name_of(p.activation),
                  "batch_invariant"_a = p.batch_invariant);
}

// A GPU by Gpu.facts of tools/planning.py. Its ordinal is none of a CUDA device's, so that the cache tells them apart.
DeviceSpec described(const py::dict& gpu) {
  const auto peak = [&](const char* name) { return gpu[name].cast<double>(); };
  return {-1,
          gpu["smem_per_block"].cast<int64_t>(),
          {"", gpu["sm"].cast<int>(), gpu["num_sms"].cast<int>(), peak("fp32_tflops"), peak("mma_sync_tflops"),
           peak("wgmma_tflops"), peak("dram_gb_per_s")},
          gpu["name"].cast<std::string>()};
}

Scope scope_named(const std::string& name) {
  const std::optional<Scope> scope = find_scope(name);
  if (!scope) throw py::value_error("there is no kernel '" + name + "'");
  return *scope;
}

// Every candidate that a name allows, or every one for "": the plan first, then in ladder order. A table's plan whose modes are
// not the planner's is one more candidate.
py::list list_candidates(const std::string& problem, const py::dict& gpu, const std::string& name) {
  const PlanKey key = key_named(problem);
  const DeviceSpec device = described(gpu);
  const Scope scope = scope_named(name);
  const Candidate pick = name.empty() ? table_or_plan(key, device) : plan(key, device, scope);
  py::list result;
  const auto append = [&](const Candidate& x) {
    const bool fixed = x.from_table || scope.k_slices;
    const Scope free{x.kernel, x.config, x.modes.cluster, x.modes.columns};
    const bool forced = fixed && plan(key, device, free).modes.k_slices != x.modes.k_slices;
    result.append(py::dict(
        "kernel"_a = x.kernel->name, "index"_a = x.index(), "config"_a = describe(*x.kernel, x.index()),
        "math"_a = name_of(x.math), "exchanged"_a = x.exchanged, "microseconds"_a = x.microseconds,
        "k_slices"_a = x.modes.k_slices, "k_slices_forced"_a = forced,
        "cluster"_a = x.kernel->clusters.count > 1 ? py::object(tuple_of(x.modes.cluster)) : py::none(),
        "columns"_a = x.modes.columns, "repack_a"_a = x.repack_a, "repack_b"_a = x.repack_b,
        "workspace_bytes"_a = workspace_of(key, x).size, "from_table"_a = x.from_table,
        "reason"_a = x.reason ? py::object(py::str(x.reason)) : py::object(py::none())));
  };
  if (pick.kernel) append(pick);
  for (const Candidate& x : candidates(key, device, scope))
    if (x.config != pick.config || x.math != pick.math || !(x.modes == pick.modes)) append(x);
  return result;
}

// The "NAME/INDEX" and the K slices that a name runs; for "" the plan of this thread's cache, where described GPUs are one.
py::tuple planned(const std::string& problem, const py::dict& gpu, const std::string& name) {
  const PlanKey key = key_named(problem);
  const DeviceSpec device = described(gpu);
  const Scope scope = scope_named(name);
  Candidate x;
  {
    const py::gil_scoped_release release;
    x = name.empty() ? cached_plan(key, device) : plan(key, device, scope);
  }
  if (!x.kernel) return py::make_tuple(py::none(), 0);
  return py::make_tuple(std::string(x.kernel->name) + "/" + std::to_string(x.index()), x.modes.k_slices);
}

constexpr char kKernelsDoc[] = R"(Return a dict for each kernel, in ladder order.

Its "configs" are the configurations, each a dict; their place is the index in names such as "wgmma_tma/3". The other keys: name; idea;
min_sm, 10 times the least compute capability; unit, that multiplies; maths; in_order, the maths whose sums it adds in the order of K;
contiguous_operands, whether operands need a direction of stride 1; split_k; clusters, as (m, n, k); narrower, columns that a launch may
leave out of a tile; compiled, whether this build has code of it.

Keys of a configuration: tile_m, tile_n, tile_k; stages, K tiles in flight; threads and smem_bytes of a block; blocks_per_sm; warp_slices,
groups of warps that share a K tile; boxes, of C and D in shared memory for each warpgroup; pingpong; alignment, bytes at whose
multiples rows must begin, or they are copied first; fp32_d, whether an fp32 D of 16-bit operands is compiled; maths; archs, the families of
GPUs that it is for; compiled_for, compute capabilities times 100.)";

void load_plans(const std::string& gpu, int sm, int num_sms, const std::map<std::string, std::string>& plans) {
  auto table = std::make_shared<PlanTable>(PlanTable{gpu, sm, num_sms, {}});
  for (const auto& [problem, name] : plans) {
    const std::optional<Scope> scope = find_scope(name);
    if (!scope || !scope->config)
      throw py::value_error(
          "there is no plan '" + name + "'; a plan is 'NAME/INDEX[/MxN[xK]][/nC][/kS]' of torch_addmm_tc.kernels()");
    table->plans.emplace(key_named(problem), *scope);
  }
  set_plan_table(table);
}

}  // namespace
}  // namespace tc

PYBIND11_MODULE(_C, module) {
  using namespace tc;
  module.doc() = "torch_addmm_tc's compiled part: importing it registers torch.ops.tc.*; its functions only describe.";
  module.def("kernels", &list_kernels, kKernelsDoc);
  py::list activations;
  for (const NamedActivation& x : kActivations) activations.append(x.name);
  module.attr("activations") = activations;
  py::dict messages;
#define TC_ADD_MESSAGE(name, text) messages[#name] = text;
  TC_MESSAGES(TC_ADD_MESSAGE)
#undef TC_ADD_MESSAGE
  module.attr("messages") = messages;
  module.def("gpu_peaks", &gpu_peaks, py::arg("name"), py::arg("sm"), py::arg("num_sms"));
  module.def("problem", &problem_text, py::kw_only(), py::arg("batch"), py::arg("m"), py::arg("n"), py::arg("k"), py::arg("a"),
             py::arg("b"), py::arg("c"), py::arg("d"), py::arg("alpha"), py::arg("beta"), py::arg("activation"),
             py::arg("tf32"), py::arg("batch_invariant"));
  module.def("enter_batch_invariant_block", [] { ++BatchInvariantBlocks::of_this_thread; });
  module.def("exit_batch_invariant_block", [] { --BatchInvariantBlocks::of_this_thread; });
  module.def("in_batch_invariant_block", [] { return BatchInvariantBlocks::of_this_thread > 0; });
  module.def("describe_problem", &describe_problem, py::arg("problem"));
  module.def("candidates", &list_candidates, py::arg("problem"), py::arg("gpu"), py::arg("name"));
  module.def("planned", &planned, py::arg("problem"), py::arg("gpu"), py::arg("name"));
  module.def("load_plans", &load_plans, py::arg("gpu"), py::arg("sm"), py::arg("num_sms"), py::arg("plans"));
  module.def("unload_plans", [] { set_plan_table(nullptr); });
  module.def("log_problems", &log_problems, py::arg("path"));
  module.def(
      "overlap", [](const MatrixTuple& x, int64_t x_rows, int64_t x_cols, const MatrixTuple& y, int64_t y_rows, int64_t y_cols,
                    int64_t batch) { return overlap(matrix(x), x_rows, x_cols, matrix(y), y_rows, y_cols, batch); });
  module.def("overlaps_itself", [](const MatrixTuple& x, int64_t rows, int64_t cols, int64_t batch) {
    return overlaps_itself(matrix(x), rows, cols, batch);
  });
  module.def("padded_offset", &padded_offset, py::arg("line"), py::arg("col"), py::arg("pitch"));
  module.def("swizzled_chunk", &swizzled_chunk, py::arg("line"), py::arg("chunk"), py::arg("chunks"));
  module.def("swizzled_offset", &swizzled_offset, py::arg("line"), py::arg("col"), py::arg("extent"), py::arg("bytes"));
  module.attr("paddings") =
      py::dict("skew"_a = kSkew, "pad_bytes"_a = kPadBytes, "slab_pad"_a = kSlabPad, "row_pad"_a = kRowPad);
#ifdef TC_WITH_CUDA
  module.attr("with_cuda") = true;
  const auto spec_by = [](Status (*read)(int, DeviceSpec&)) {
    return [read](int ordinal) {
      DeviceSpec spec;
      const Status status = read(ordinal, spec);
      if (!status.ok()) throw std::runtime_error(std::string(status.call) + " failed");
      return describe(spec.gpu);
    };
  };
  module.def("device_peaks", spec_by(&read_device_spec), py::arg("ordinal"));
  module.def("measure_device_peaks", spec_by(&measure_device_spec), py::arg("ordinal"));
#else
  module.attr("with_cuda") = false;
#endif
}
