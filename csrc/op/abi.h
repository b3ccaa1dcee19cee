// LibTorch's stable ABI as of torch 2.11: one binary serves that torch and later ones. Include this before any torch header.
// It is no build flag, because torch's own pybind11 refuses to be compiled with it.
#pragma once

#define TORCH_TARGET_VERSION 0x020b000000000000
