#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/numbers/half.h"
#include "transport/collective/sums_impl.h"

namespace fleet::transport::collective_detail {
namespace {

constexpr size_t kBlock = 256;  // elements of a 16-bit type that are added up at a time
constexpr size_t kFew = 16;     // addends whose pointers need no memory of their own

template <class T>
void add_typed(const TreeSum& order, std::span<const Addend> addends, void* out, size_t count) {
  std::array<const T*, kFew> few;
  std::vector<const T*> many;
  if (addends.size() > kFew) many.resize(addends.size());
  const std::span<const T*> arrays(many.empty() ? few.data() : many.data(), addends.size());
  for (size_t i = 0; i < arrays.size(); ++i) arrays[i] = static_cast<const T*>(addends[i].values);
  order(std::span<const T* const>(arrays), static_cast<T*>(out), count);
}

struct Conversions {
  void (*widen)(const uint16_t*, float*, size_t);
  void (*round)(const float*, uint16_t*, size_t);
};

// Block by block, so that all addends of a block are read before its sum is written.
void add_halves(const Conversions& half, const TreeSum& order, std::span<const Addend> addends,
                void* out, Form out_form, size_t count) {
  std::vector<float> widened(addends.size() * kBlock);
  std::vector<const float*> arrays(addends.size());
  std::array<float, kBlock> sum;
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t n = std::min(kBlock, count - begin);
    for (size_t i = 0; i < addends.size(); ++i) {
      arrays[i] = static_cast<const float*>(addends[i].values) + begin;
      if (addends[i].form == Form::kSum) continue;
      half.widen(static_cast<const uint16_t*>(addends[i].values) + begin, &widened[i * kBlock], n);
      arrays[i] = &widened[i * kBlock];
    }
    order(std::span<const float* const>(arrays), sum.data(), n);
    if (out_form == Form::kSum) {
      std::memcpy(static_cast<float*>(out) + begin, sum.data(), n * sizeof(float));
    } else {
      half.round(sum.data(), static_cast<uint16_t*>(out) + begin, n);
    }
  }
}

}  // namespace

size_t size_of(ElementType type, Form form) {
  const size_t given = transport::size_of(type);
  return form == Form::kSum ? std::max(given, sizeof(float)) : given;
}

void add_up(const TreeSum& order, ElementType type, std::span<const Addend> addends, void* out,
            Form out_form, size_t count) {
  switch (type) {
    case ElementType::kFloat32:
      return add_typed<float>(order, addends, out, count);
    case ElementType::kFloat64:
      return add_typed<double>(order, addends, out, count);
    case ElementType::kInt64:
      return add_typed<int64_t>(order, addends, out, count);
    case ElementType::kFloat16:
      return add_halves({float_of_float16, float16_of_float}, order, addends, out, out_form, count);
    case ElementType::kBFloat16:
      return add_halves({float_of_bfloat16, bfloat16_of_float}, order, addends, out, out_form,
                        count);
  }
}

}  // namespace fleet::transport::collective_detail
