// Products whose operands are packed for the caches.
#include <algorithm>
#include <cstddef>

#include "fluid/kernels/cpu/math/gemm.h"
#include "fluid/kernels/cpu/tile_scratch.h"

namespace fleet::fluid::cpu {
namespace {

// Of A, packed at a time.
constexpr int64_t kMostRows = 16 * 192;
constexpr int64_t kMostDepth = 1024;
// Of what is multiplied at a time: a panel of B this deep fits into the first cache; so many
// columns of B and rows of A fit into the second together. Rows are a multiple of a panel's.
constexpr int64_t kBlockDepth = 384;
constexpr int64_t kBlockRows = 192;
constexpr int64_t kBlockColumns = 64;
// A tile is worth so many of those of Tiles::items.
constexpr int64_t kTilesOfOne = 8;

int64_t rounded_up(int64_t n, int64_t step) {
  return (n + step - 1) / step * step;
}

struct Part {
  int64_t begin = 0;
  int64_t size = 0;
};

// Elements from a panel to the next: a line more than it has, so that those beside each other do
// not push each other out of the cache.
template <class T>
int64_t panel_step(int64_t width, int64_t depth) {
  return width * depth + 64 / int64_t{sizeof(T)};
}

template <class F>
void each_part(int64_t n, int64_t most, F f) {
  for (int64_t begin = 0; begin < n; begin += most) f(Part{begin, std::min(most, n - begin)});
}

// The rows of a matrix, or its columns, in panels of so many: [panel, depth, row]. What the last
// panel lacks is zeros.
template <class T, int kWidth>
class Packer {
 public:
  // With `turned` the operand is [depth, rows], else [rows, depth]; rows of it are `stride` apart.
  Packer(const T* x, int64_t stride, bool turned) : x_(x), stride_(stride), turned_(turned) {}

  static int64_t panels(int64_t rows) { return (rows + kWidth - 1) / kWidth; }

  void pack(Part rows, Part depth, int64_t begin, int64_t end, T* packed) const {
    const int64_t whole = turned_ ? std::clamp(rows.size / kWidth, begin, end) : begin;
    const int64_t step = panel_step<T>(kWidth, depth.size);
    copy(rows.begin + begin * kWidth, whole - begin, depth, packed + begin * step);
    for (int64_t panel = whole; panel < end; ++panel) pack_one(rows, depth, panel, packed);
  }

 private:
  static constexpr int64_t kBlock = 8;  // rows that transpose() takes at a time
  static constexpr int64_t kAhead = 8;  // rows that come into the cache before they are copied

  // Panels beside each other in one go along the operand's rows.
  void copy(int64_t row, int64_t panels, Part depth, T* to) const {
    const T* from = x_ + row + depth.begin * stride_;
    const int64_t step = panel_step<T>(kWidth, depth.size);
    for (int64_t p = 0; p < depth.size; ++p, to += kWidth, from += stride_) {
      for (int64_t panel = 0; panel < panels; ++panel) {
        T* const at = to + panel * step;
        __builtin_prefetch(from + kAhead * stride_ + panel * kWidth);
        for (int i = 0; i < kWidth; ++i) at[i] = from[panel * kWidth + i];
      }
    }
  }

  void pack_one(Part rows, Part depth, int64_t panel, T* packed) const {
    const int64_t first = panel * kWidth;
    const int64_t left = rows.size - first;
    const int64_t row = rows.begin + first;
    const T* from = turned_ ? x_ + row + depth.begin * stride_ : x_ + row * stride_ + depth.begin;
    T* to = packed + panel * panel_step<T>(kWidth, depth.size);
    if (turned_ || left < kWidth) return pack_rest(from, left, depth.size, to);
    if constexpr (kWidth % kBlock == 0) {
      transpose(from, kWidth, depth.size, stride_, to, kWidth);
    } else if (left >= kBlock) {
      interleave(from, depth.size, to);
    } else {
      pack_rest(from, left, depth.size, to);
    }
  }

  // Panels of fewer rows than a block, of which the rows behind can be read, too.
  void interleave(const T* from, int64_t depth, T* to) const {
    constexpr int64_t kChunk = 64;
    T block[kChunk * kBlock];
    for (int64_t begin = 0; begin < depth; begin += kChunk) {
      const int64_t size = std::min(kChunk, depth - begin);
      transpose(from + begin, kBlock, size, stride_, block, kBlock);
      for (int64_t p = 0; p < size; ++p, to += kWidth) {
        for (int i = 0; i < kWidth; ++i) to[i] = block[p * kBlock + i];
      }
    }
  }

  void pack_rest(const T* from, int64_t rows, int64_t depth, T* to) const {
    const int64_t here = std::min<int64_t>(rows, kWidth);
    for (int64_t p = 0; p < depth; ++p, to += kWidth) {
      for (int64_t i = 0; i < here; ++i)
        to[i] = turned_ ? from[p * stride_ + i] : from[i * stride_ + p];
      for (int64_t i = here; i < kWidth; ++i) to[i] = 0;
    }
  }

  const T* x_;
  int64_t stride_;
  bool turned_;
};

// Tiles of the result each pack the columns of B that they need. A transposed is packed before,
// many rows of it.
template <class T, int kHigh, int kWide>
class BlockedGemm final : public Gemm<T> {
 public:
  explicit BlockedGemm(const GemmShape& shape) : s_(shape) {
    const int64_t groups = std::max<int64_t>(1, (s_.n + kBlockColumns - 1) / kBlockColumns);
    width_ = std::max<int64_t>(kWide, rounded_up((s_.n + groups - 1) / groups, kWide));
    const int64_t wanted =
        Tiles::items(width_ * std::min(s_.k, kMostDepth) / (kProducts * kTilesOfOne));
    height_ = std::clamp(wanted / kBlockRows * kBlockRows, kBlockRows, kMostRows);
  }

  void run(const T* a, const T* b, T* c, Scratch& scratch, const Tiles& tiles) override {
    const PackB pack_b(b, s_.transpose_b ? s_.k : s_.n, !s_.transpose_b);
    if (!s_.transpose_a) {
      const Operand rows_of_a{.a = a, .lda = s_.k, .step = kHigh * s_.k};
      return multiply(rows_of_a, pack_b, c, {0, s_.m}, {0, s_.k}, tiles);
    }
    const int64_t depth = std::min(s_.k, kMostDepth);
    const int64_t room = PackA::panels(std::min(s_.m, kMostRows)) * panel_step<T>(kHigh, depth);
    auto* panels = reinterpret_cast<T*>(scratch.get(static_cast<size_t>(room) * sizeof(T)));
    const PackA pack_a(a, s_.m, true);
    each_part(s_.k, kMostDepth, [&](Part deep) {
      const Operand packed{.a = panels, .step = panel_step<T>(kHigh, deep.size)};
      each_part(s_.m, kMostRows, [&](Part rows) {
        tiles.split(PackA::panels(rows.size), kHigh * deep.size, [&](int64_t begin, int64_t end) {
          pack_a.pack(rows, deep, begin, end, panels);
        });
        multiply(packed, pack_b, c, rows, deep, tiles);
      });
    });
  }

 private:
  using PackA = Packer<T, kHigh>;
  using PackB = Packer<T, kWide>;

  // A as it lies, or in panels (GemmBlock).
  struct Operand {
    const T* a = nullptr;
    int64_t lda = 0;
    int64_t step = 0;
  };

  void multiply(const Operand& left, const PackB& pack_b, T* c, Part rows, Part deep,
                const Tiles& tiles) const {
    const int64_t across = (s_.n + width_ - 1) / width_;
    const int64_t down = (rows.size + height_ - 1) / height_;
    tiles.run(down * across, [&](int64_t tile) {
      const int64_t i = tile / across * height_;
      const int64_t j = tile % across * width_;
      const Part columns{j, std::min(width_, s_.n - j)};
      GemmBlock<T> block{.n = columns.size, .lda = left.lda, .a_step = left.step, .ldc = s_.n};
      each_part(deep.size, kBlockDepth, [&](Part part) {
        const Part depth{deep.begin + part.begin, part.size};
        block.k = part.size;
        block.b_step = panel_step<T>(kWide, part.size);
        block.adds = depth.begin > 0;
        const int64_t count = PackB::panels(columns.size);
        T* const b_panels = tile_scratch<T>(count * block.b_step);
        pack_b.pack(columns, depth, 0, count, b_panels);
        block.b = b_panels;
        each_part(std::min(height_, rows.size - i), kBlockRows, [&](Part high) {
          const int64_t row = i + high.begin;
          block.m = high.size;
          block.a = left.a + row / kHigh * left.step + part.begin * (left.lda == 0 ? kHigh : 1);
          block.c = c + (rows.begin + row) * s_.n + j;
          isa_loops().gemm_block(block);
        });
      });
    });
  }

  const GemmShape s_;
  int64_t height_ = 0;  // of a tile
  int64_t width_ = 0;
};

}  // namespace

template <class T>
std::unique_ptr<Gemm<T>> blocked_gemm(const GemmShape& shape) {
  constexpr int kRegister = 32 / sizeof(T);
  if (isa_loops().panel_rows == 6) return std::make_unique<BlockedGemm<T, 6, 2 * kRegister>>(shape);
  return std::make_unique<BlockedGemm<T, 8, 4 * kRegister>>(shape);
}

template std::unique_ptr<Gemm<float>> blocked_gemm(const GemmShape&);
template std::unique_ptr<Gemm<double>> blocked_gemm(const GemmShape&);

}  // namespace fleet::fluid::cpu
