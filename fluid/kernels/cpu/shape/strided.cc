#include "fluid/kernels/cpu/shape/strided.h"

#include <algorithm>
#include <cstring>

#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/tile_copy.h"

namespace fleet::fluid::cpu {
namespace {

template <class Word>
void copy_row(const Word* from, Word* to, int64_t n, int64_t from_step, int64_t to_step) {
  if (from_step == 1 && to_step == 1) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(Word));
  } else if (to_step == 1) {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * from_step];
  } else {
    for (int64_t i = 0; i < n; ++i) to[i * to_step] = from[i * from_step];
  }
}

template <class Word>
void copy_part(const Move& move, int64_t begin, int64_t end) {
  const auto* from = reinterpret_cast<const Word*>(move.from);
  auto* to = reinterpret_cast<Word*>(move.to);
  move.walk->rows(begin, end, [=](int64_t f, int64_t t, int64_t n, int64_t fs, int64_t ts) {
    copy_row(from + f, to + t, n, fs, ts);
  });
}

// Elements begin to end - 1 of the walk.
void copy_part(const Move& move, size_t word, int64_t begin, int64_t end) {
  switch (word) {
    case 1:
      return copy_part<uint8_t>(move, begin, end);
    case 2:
      return copy_part<uint16_t>(move, begin, end);
    case 4:
      return copy_part<uint32_t>(move, begin, end);
    default:
      return copy_part<uint64_t>(move, begin, end);
  }
}

// Of an element, in those of a simple loop.
int64_t cost_of(const Move& move) {
  return move.walk->dense_rows() ? 1 : 4;
}

// The work of all moves in a row is cut into tiles.
void copy_each(const KernelContext& c, std::span<const Move> moves, size_t word) {
  int64_t total = 0;
  for (const Move& move : moves) total += move.walk->elements() * cost_of(move);
  const int64_t size = c.tiles().parallel() ? Tiles::items(1) : total;
  if (total == 0) return;
  c.tiles().ranges(total, size, [=](int64_t begin, int64_t end) {
    for (const Move& move : moves) {
      const int64_t cost = cost_of(move);
      const int64_t work = move.walk->elements() * cost;
      const auto element_at = [=](int64_t at) {
        return (std::clamp<int64_t>(at, 0, work) + cost - 1) / cost;
      };
      copy_part(move, word, element_at(begin), element_at(end));
      begin -= work;
      end -= work;
    }
  });
}

void copy(const KernelContext& c, const StridedWalk& walk, size_t word, const std::byte* from,
          std::byte* to) {
  const Move move{&walk, from, to};
  copy_each(c, std::span(&move, 1), word);
}

template <class T>
void fill_with(const Tiles& tiles, uint64_t bits, std::byte* to, int64_t n) {
  fill_in_tiles(tiles, reinterpret_cast<T*>(to), n, static_cast<T>(bits));
}

void fill(const KernelContext& c, uint64_t value, size_t word, std::byte* to, int64_t n) {
  switch (word) {
    case 1:
      return fill_with<uint8_t>(c.tiles(), value, to, n);
    case 2:
      return fill_with<uint16_t>(c.tiles(), value, to, n);
    case 4:
      return fill_with<uint32_t>(c.tiles(), value, to, n);
    default:
      return fill_with<uint64_t>(c.tiles(), value, to, n);
  }
}

const Mover& cpu_mover() {
  static const Mover kMover = {.device = DeviceKind::kCpu,
                               .copy = copy,
                               .copy_all = [](const KernelContext& c, const Tensor& from,
                                              Tensor& to) { copy_elements(c.tiles(), from, to); },
                               .fill = fill,
                               .copy_each = copy_each};
  return kMover;
}

}  // namespace

void register_manipulation(KernelTable& table) {
  register_moves(table, cpu_mover());
  register_boxes(table, cpu_mover());
}

}  // namespace fleet::fluid::cpu
