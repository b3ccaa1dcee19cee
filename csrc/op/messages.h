// Every error text of the ops, once, for the compiled checks and, through _C.messages, for Python's (registration/fake.py).
// {} stands for a value. Where torch.addmm has words for an error, these are they.
#pragma once

#define TC_MESSAGES(X)                                                                                                         \
  X(not_a_tensor,                                                                                                              \
    "torch_addmm_tc: {} must be a tensor, but got None. Only self may be None, for the product without an addend.")            \
  X(not_strided, "torch_addmm_tc takes strided tensors, but {} has layout {}. Pass {}.to_dense().")                            \
  X(not_on_cpu_or_cuda, "torch_addmm_tc runs on CPU and CUDA tensors, but {} is on {}. Move it, or use torch's product.")      \
  X(not_a_matrix, "{} must be a matrix, got {}-D tensor")                                                                      \
  X(not_a_batch, "{} must be a 3D tensor, but got a {}-D tensor")                                                              \
  X(batch_sizes_differ, "Expected size for first two dimensions of batch2 tensor to be: [{}, {}] but got: [{}, {}].")          \
  X(inner_sizes_differ, "mat1 and mat2 shapes cannot be multiplied ({}x{} and {}x{})")                                         \
  X(devices_differ, "Expected all tensors to be on the same device, but got {} is on {}, different from other tensors on {}")  \
  X(self_dtype_differs, "self and {} must have the same dtype, but got {} and {}")                                             \
  X(mat_dtypes_differ, "{} and {} must have the same dtype, but got {} and {}")                                                \
  X(dtype_unsupported, "torch_addmm_tc supports float16, bfloat16 and float32 tensors, but {} has dtype {}")                   \
  X(out_dtype_unsupported, "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs, but got {} for {} inputs") \
  X(expand_rank,                                                                                                               \
    "expand({}, size={}): the number of sizes provided ({}) must be greater or equal to the number of dimensions in "          \
    "the tensor ({})")                                                                                                         \
  X(expand_size,                                                                                                               \
    "The expanded size of the tensor ({}) must match the existing size ({}) at non-singleton dimension {}.  "                  \
    "Target sizes: {}.  Tensor sizes: {}")                                                                                     \
  X(forward_only,                                                                                                              \
    "torch_addmm_tc is forward-only, but {} requires grad and grad mode is on, so its gradient would be lost. Call it under "  \
    "torch.no_grad() or torch.inference_mode(), or pass {}.detach(); to train, use torch's product.")                          \
  X(activation_unknown, "torch_addmm_tc: activation must be one of {}, but got '{}'")                                          \
  X(precision_unknown,                                                                                                         \
    "torch_addmm_tc: precision must be 'ieee' (float32 products in float32) or 'tf32' (float32 operands rounded to TF32), "    \
    "but "                                                                                                                     \
    "got '{}'")                                                                                                                \
  X(batch_invariant_on_cpu,                                                                                                    \
    "torch_addmm_tc: batch-invariant results are promised for CUDA tensors, but got tensors on the CPU, where ATen's "         \
    "products "                                                                                                                \
    "depend on the batch. Move them, or leave batch_invariant out.")                                                           \
  X(batch_invariant_parts_of_k,                                                                                                \
    "torch_addmm_tc: K is divided over processes (RowwiseParallel), whose collective adds the parts in an order that may "     \
    "depend on the batch. Divide N (ColwiseParallel), or leave the batch_invariant() block.")                                  \
  X(kernel_on_cpu,                                                                                                             \
    "torch_addmm_tc: kernel_name '{}' runs on CUDA tensors, but got tensors on the CPU. Move them, or leave kernel_name "      \
    "out.")                                                                                                                    \
  X(out_dtype_differs, "Expected out tensor to have dtype {}, but got {} instead")                                             \
  X(out_device_differs,                                                                                                        \
    "Expected out tensor to be on the same device, but got out is on {}, different from other tensors on {}")                  \
  X(out_requires_grad,                                                                                                         \
    "addmm(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires "    \
    "grad.")                                                                                                                   \
  X(out_shares_storage,                                                                                                        \
    "torch_addmm_tc: out of shape {} shares its storage with {}, so it cannot be resized to {}. Pass an out of that "          \
    "shape, or one with its own storage.")                                                                                     \
  X(out_shape_when_traced, "torch_addmm_tc: a traced graph cannot resize out, so out needs shape {}, but got {}")              \
  X(out_overlaps_itself,                                                                                                       \
    "unsupported operation: more than one element of the written-to tensor refers to a single memory location. Please "        \
    "clone() the tensor before performing the operation.")                                                                     \
  X(out_overlaps_input,                                                                                                        \
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. "   \
    "Please clone() the tensor before performing the operation.")                                                              \
  X(kernel_unknown,                                                                                                            \
    "torch_addmm_tc: there is no kernel '{}'; there are {}, and 'NAME/INDEX[/MxN[xK]][/nC][/kS]' for a configuration in "      \
    "clusters of M x N x K blocks, with C columns of a tile and S K slices")                                                   \
  X(no_kernel, "torch_addmm_tc: no kernel accepts this problem on a GPU of compute capability {}{}")                           \
  X(no_workspace,                                                                                                              \
    "CUDA out of memory. torch_addmm_tc needs a workspace of {} bytes on cuda:{}. Free some memory, or use a smaller batch.")  \
  X(torch_failed, "torch_addmm_tc: {} failed")                                                                                 \
  X(cuda_failed, "torch_addmm_tc: {} failed: {}: {}")                                                                          \
  X(no_stream, "torch_addmm_tc: torch has no current CUDA stream on cuda:{}")                                                  \
  X(too_many_gpus, "torch_addmm_tc: got device cuda:{}, but only the first {} GPUs of a process are supported")                \
  X(no_cuda_kernels,                                                                                                           \
    "torch_addmm_tc: this build of torch_addmm_tc is for the CPU alone, but got CUDA tensors. Reinstall it with a CUDA build " \
    "of "                                                                                                                      \
    "torch and "                                                                                                               \
    "nvcc, where a GPU is present or with TORCH_CUDA_ARCH_LIST set.")

namespace tc::message {

#define TC_DEFINE_MESSAGE(name, text) inline constexpr char name[] = text;
TC_MESSAGES(TC_DEFINE_MESSAGE)
#undef TC_DEFINE_MESSAGE

}  // namespace tc::message
