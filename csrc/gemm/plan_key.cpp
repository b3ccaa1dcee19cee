#include "plan_key.h"

#include <cinttypes>
#include <cstdio>
#include <initializer_list>

namespace tc {
namespace {

// Sets `x` to the enumerator of this name. An unknown name leaves `x` as it is, and parse_plan_key sees another text.
template <typename E>
void set_named(E& x, const char* name, std::initializer_list<E> all) {
  for (E one : all)
    if (std::strcmp(name, name_of(one)) == 0) x = one;
}

constexpr char kSizes[] = "batch=%" PRId64 " m=%" PRId64 " n=%" PRId64 " k=%" PRId64;
constexpr char kMatrix[] = " %c=%s:%" PRId64 ",%" PRId64 ",%" PRId64 "@%d";
constexpr char kRest[] = " precision=%s activation=%s";
constexpr char kBatchInvariant[] = " batch_invariant=1";

template <typename... Args>
void append(std::string& text, const char* format, Args... args) {
  char part[128];
  std::snprintf(part, sizeof(part), format, args...);
  text += part;
}

}  // namespace

std::string text_of(const PlanKey& key) {
  std::string text;
  append(text, kSizes, key.batch, key.m, key.n, key.k);
  const MatrixKey* matrices[] = {&key.a, &key.b, &key.c, &key.d};
  for (int i = 0; i < 4; ++i) {
    const MatrixKey& x = *matrices[i];
    append(text, kMatrix, 'a' + i, name_of(x.dtype), x.row, x.col, x.batch, int(x.alignment));
  }
  append(text, kRest, name_of(key.precision), name_of(key.activation));
  return key.batch_invariant ? text + kBatchInvariant : text;
}

std::optional<PlanKey> parse_plan_key(const std::string& text) {
  PlanKey key{};
  int used = 0;
  const char* at = text.c_str();
  if (std::sscanf(
          at, "batch=%" SCNd64 " m=%" SCNd64 " n=%" SCNd64 " k=%" SCNd64 "%n", &key.batch, &key.m, &key.n, &key.k, &used) != 4)
    return std::nullopt;
  for (MatrixKey* x : {&key.a, &key.b, &key.c, &key.d}) {
    char dtype[16];
    int alignment = 0;
    at += used;
    if (std::sscanf(at, " %*c=%15[a-z0-9]:%" SCNd64 ",%" SCNd64 ",%" SCNd64 "@%d%n", dtype, &x->row, &x->col, &x->batch,
                    &alignment, &used) != 5)
      return std::nullopt;
    set_named(x->dtype, dtype, {DType::f16, DType::bf16, DType::f32});
    x->alignment = uint8_t(alignment);
  }
  char precision[8], activation[8];
  at += used;
  if (std::sscanf(at, " precision=%7s activation=%7s%n", precision, activation, &used) != 2) return std::nullopt;
  set_named(key.precision, precision, {Precision::ieee, Precision::tf32});
  set_named(key.activation, activation, {Activation::Kind::none, Activation::Kind::relu, Activation::Kind::gated});
  key.batch_invariant = std::strcmp(at + used, kBatchInvariant) == 0;
  return text_of(key) == text ? std::optional<PlanKey>(key) : std::nullopt;
}

}  // namespace tc
