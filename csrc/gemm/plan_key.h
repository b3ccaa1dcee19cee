// Everything that the planner may know of a problem. The planner and its cache see nothing else, so that a cached plan cannot
// depend on anything outside the key.
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <type_traits>

#include "access.h"

namespace tc {

// The layout of a matrix without its address.
struct MatrixKey {
  int64_t row, col, batch;
  DType dtype;
  uint8_t alignment;  // of the address, in bytes: 16, 8, 4, 2 or 1; 0: no matrix
  uint8_t unused[6];  // takes the place of padding, so that keys compare as bytes
};

inline bool present(const MatrixKey& x) { return x.alignment != 0; }
inline uint64_t address_bits(const MatrixKey& x) { return x.alignment % 16; }

struct PlanKey {
  int64_t batch, m, n, k;
  MatrixKey a, b, c, d;
  Precision precision;
  Activation::Kind activation;
  bool batch_invariant, d_is_partial;
  uint8_t unused[4];
};

// The comparison covers every member, including future ones. Padding would make it fail at random, so padding does not compile.
static_assert(std::has_unique_object_representations_v<PlanKey>);
inline bool operator==(const PlanKey& x, const PlanKey& y) { return std::memcmp(&x, &y, sizeof(PlanKey)) == 0; }

inline MatrixKey key_of(const MatrixView& x) {
  const uint64_t bits = address_bits(x);
  return {x.row, x.col, x.batch, x.dtype, uint8_t(!x.data ? 0 : bits ? bits & -bits : 16), {}};
}

// `desc` is canonical (desc.h).
inline PlanKey key_of(const GemmDesc& desc) {
  return {desc.batch,
          desc.m,
          desc.n,
          desc.k,
          key_of(desc.a),
          key_of(desc.b),
          key_of(desc.c),
          key_of(desc.d),
          desc.precision,
          desc.epilogue.activation.kind,
          desc.batch_invariant,
          desc.d_is_partial,
          {}};
}

// The key of partial_products(desc).
inline PlanKey partial_products(PlanKey key, int64_t pitch) {
  key.c.alignment = 0, key.c.batch = 0;
  key.d = {pitch, 1, key.m * pitch, DType::f32, 16, {}};
  key.d_is_partial = true;
  key.activation = Activation::Kind::none;
  return key;
}

// A key as text, and back. Logs and tables of plans hold this text. parse_plan_key takes exactly what text_of writes; null
// otherwise.
//   batch=1 m=1024 n=2304 k=768 a=float16:768,1,0@16 b=... c=... d=... precision=ieee activation=none
// and " batch_invariant=1" where the problem is.
// A matrix is dtype:row stride,column stride,batch stride@alignment of its address in bytes, 0 without a matrix.
std::string text_of(const PlanKey& key);
std::optional<PlanKey> parse_plan_key(const std::string& text);

}  // namespace tc
