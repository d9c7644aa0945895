#include "fluid/kernels/cpu/shape/strided.h"

#include "fluid/kernels/cpu/register.h"

namespace fleet::fluid::cpu {
namespace {

template <class Word>
void copy_words(const StridedWalk& walk, const std::byte* from_bytes, std::byte* to_bytes) {
  const auto* from = reinterpret_cast<const Word*>(from_bytes);
  auto* to = reinterpret_cast<Word*>(to_bytes);
  walk.rows([=](int64_t f, int64_t t, int64_t n, int64_t from_step, int64_t to_step) {
    if (from_step == 1 && to_step == 1) {
      std::memcpy(to + t, from + f, static_cast<size_t>(n) * sizeof(Word));
    } else if (to_step == 1) {
      for (int64_t i = 0; i < n; ++i) to[t + i] = from[f + i * from_step];
    } else {
      for (int64_t i = 0; i < n; ++i) to[t + i * to_step] = from[f + i * from_step];
    }
  });
}

}  // namespace

void strided_copy(const StridedWalk& walk, size_t word, const std::byte* from, std::byte* to) {
  switch (word) {
    case 1:
      return copy_words<uint8_t>(walk, from, to);
    case 2:
      return copy_words<uint16_t>(walk, from, to);
    case 4:
      return copy_words<uint32_t>(walk, from, to);
    default:
      return copy_words<uint64_t>(walk, from, to);
  }
}

namespace {

const Mover& cpu_mover() {
  static const Mover kMover = {
      .device = DeviceKind::kCpu,
      .copy = [](const KernelContext&, const StridedWalk& walk, size_t word, const std::byte* from,
                 std::byte* to) { strided_copy(walk, word, from, to); },
      .copy_all =
          [](const KernelContext&, const Tensor& from, Tensor& to) {
            if (to.raw() != from.raw()) to.copy_from(from);
          },
      .fill =
          [](const KernelContext&, uint64_t value, size_t word, std::byte* to, int64_t n) {
            StridedWalk repeated;
            repeated.add(n, 0, 1);
            std::byte pattern[sizeof(value)];
            std::memcpy(pattern, &value, sizeof(value));
            strided_copy(repeated, word, pattern, to);
          }};
  return kMover;
}

}  // namespace

void register_manipulation(KernelTable& table) {
  register_moves(table, cpu_mover());
  register_boxes(table, cpu_mover());
}

}  // namespace fleet::fluid::cpu
