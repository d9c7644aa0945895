#include "fluid/kernels/cpu/math/gemm.h"

#include <algorithm>
#include <dnnl.hpp>
#include <immintrin.h>
#include <memory>
#include <unordered_map>
#include <vector>

#include "fluid/kernels/cpu/one_openmp_thread_impl.h"

namespace fleet::fluid::cpu {
namespace {

template <class T>
class TileGemm final : public Gemm<T> {
 public:
  explicit TileGemm(const GemmShape& shape) : shape_(shape) {}

  void run(const T* a, const T* b, T* c, Scratch& scratch, const Tiles& tiles) override {
    const GemmShape& s = shape_;
    if (transposed_is_cheaper()) return run_transposed(a, b, c, scratch, tiles);
    if (s.transpose_b) {
      auto* packed = take(scratch, s.k * s.n);
      transpose(b, s.n, s.k, packed);
      b = packed;
    }
    multiply({.m = s.m,
              .n = s.n,
              .k = s.k,
              .a = a,
              .lda = s.transpose_a ? s.m : s.k,
              .transpose_a = s.transpose_a,
              .b = b,
              .ldb = s.n,
              .c = c,
              .ldc = s.n},
             tiles);
  }

 private:
  // Results of few columns would leave most of a vector empty. B transposed may be more work than A
  // and the result.
  bool transposed_is_cheaper() const {
    constexpr int64_t kNarrow = 8;
    const GemmShape& s = shape_;
    if (s.n <= kNarrow) return s.m >= 2 * kNarrow;
    const int64_t transposed = s.m * s.n + (s.transpose_a ? 0 : s.m * s.k);
    return s.transpose_b && s.m > kNarrow && transposed < s.k * s.n;
  }

  static T* take(Scratch& scratch, int64_t elements) {
    return reinterpret_cast<T*>(scratch.get(static_cast<size_t>(elements) * sizeof(T)));
  }

  // Rows or columns of the result, of which there are more; in whole vectors of the loops.
  static void multiply(const GemmArgs<T>& args, const Tiles& tiles) {
    constexpr int64_t kRows = 24;
    constexpr int64_t kColumns = 64;
    // Of tiles of much the same size: a small one at the end is not worth another thread.
    const auto size_of = [&](int64_t all, int64_t step) {
      const int64_t of_one = args.m * args.n * args.k / std::max<int64_t>(all, 1);
      const int64_t count = std::max<int64_t>(1, all / Tiles::items(of_one / kProducts));
      return std::max<int64_t>(1, (all + count * step - 1) / (count * step)) * step;
    };
    if (args.m >= args.n) {
      return tiles.ranges(args.m, size_of(args.m, kRows), [&](int64_t begin, int64_t end) {
        GemmArgs<T> part = args;
        part.m = end - begin;
        part.a += args.transpose_a ? begin : begin * args.lda;
        part.c += begin * args.ldc;
        multiply(part);
      });
    }
    tiles.ranges(args.n, size_of(args.n, kColumns), [&](int64_t begin, int64_t end) {
      GemmArgs<T> part = args;
      part.n = end - begin;
      part.b += begin;
      part.c += begin;
      multiply(part);
    });
  }

  static void multiply(const GemmArgs<T>& args) {
    if constexpr (std::is_same_v<T, float>) {
      isa_loops().gemm_f32(args);
    } else {
      isa_loops().gemm_f64(args);
    }
  }

  // The transposed product, whose rows are long: the same chains of multiply-adds, so the same
  // bits.
  void run_transposed(const T* a, const T* b, T* c, Scratch& scratch, const Tiles& tiles) const {
    const GemmShape& s = shape_;
    T* product = take(scratch, s.m * s.n + (s.transpose_a ? 0 : s.k * s.m));
    if (!s.transpose_a) {
      T* packed = product + s.m * s.n;
      transpose(a, s.m, s.k, packed);
      a = packed;
    }
    multiply({.m = s.n,
              .n = s.m,
              .k = s.k,
              .a = b,
              .lda = s.transpose_b ? s.k : s.n,
              .transpose_a = !s.transpose_b,
              .b = a,
              .ldb = s.m,
              .c = product,
              .ldc = s.m},
             tiles);
    transpose(product, s.n, s.m, c);
  }

  GemmShape shape_;
};

template <class T>
class ReferenceGemm final : public Gemm<T> {
 public:
  explicit ReferenceGemm(const GemmShape& shape) : shape_(shape) {}

  void run(const T* a, const T* b, T* c, Scratch&, const Tiles&) override {
    const GemmShape& s = shape_;
    for (int64_t i = 0; i < s.m; ++i) {
      for (int64_t j = 0; j < s.n; ++j) {
        T sum{};
        for (int64_t p = 0; p < s.k; ++p) {
          const T left = s.transpose_a ? a[p * s.m + i] : a[i * s.k + p];
          const T right = s.transpose_b ? b[j * s.k + p] : b[p * s.n + j];
          sum += left * right;
        }
        c[i * s.n + j] = sum;
      }
    }
  }

 private:
  GemmShape shape_;
};

// Eight rows and columns.
void transpose_block(const float* x, int64_t x_stride, float* out, int64_t out_stride) {
  __m256 row[8];
  for (int i = 0; i < 8; ++i) row[i] = _mm256_loadu_ps(x + i * x_stride);
  __m256 pair[8];
  for (int i = 0; i < 8; i += 2) {
    pair[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
    pair[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
  }
  __m256 quad[8];
  for (int i = 0; i < 8; i += 4) {
    quad[i] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0x44);
    quad[i + 1] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0xEE);
    quad[i + 2] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0x44);
    quad[i + 3] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(out + i * out_stride, _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x20));
    _mm256_storeu_ps(out + (i + 4) * out_stride,
                     _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x31));
  }
}

void transpose_block(const double* x, int64_t x_stride, double* out, int64_t out_stride) {
  for (int64_t j = 0; j < 8; ++j) {
    for (int64_t i = 0; i < 8; ++i) out[j * out_stride + i] = x[i * x_stride + j];
  }
}

// Parts of the result by rows or columns, of which there are more: what they are comes from the
// shape, so that the bits do not depend on who computes them.
class OneDnnGemm final : public Gemm<float> {
 public:
  explicit OneDnnGemm(const GemmShape& shape) : engine_(dnnl::engine::kind::cpu, 0) {
    constexpr int64_t kStep = 64;
    const bool by_rows = shape.m >= shape.n;
    const int64_t all = by_rows ? shape.m : shape.n;
    const int64_t most = std::max<int64_t>(1, all / kPartSize);
    const int64_t count = std::clamp<int64_t>(shape.m * shape.n * shape.k / kPartProducts, 1, most);
    const int64_t size = ((all + count - 1) / count + kStep - 1) / kStep * kStep;
    for (int64_t begin = 0; begin < all; begin += size) {
      parts_.push_back(
          std::make_unique<Part>(engine_, shape, by_rows, begin, std::min(all, begin + size)));
      parts_.back()->scratch_begin = scratch_bytes_;
      scratch_bytes_ += (parts_.back()->scratch_bytes + 63) / 64 * 64;
    }
  }

  void run(const float* a, const float* b, float* c, Scratch& scratch,
           const Tiles& tiles) override {
    std::byte* const memory = scratch.get(scratch_bytes_);
    tiles.run(static_cast<int64_t>(parts_.size()),
              [&](int64_t i) { parts_[static_cast<size_t>(i)]->run(a, b, c, memory); });
  }

 private:
  // Of a part, at least: rows or columns, and multiply-adds. The library packs the other operand
  // for each part anew; parts of half the size cost a third of the time.
  static constexpr int64_t kPartSize = 512;
  static constexpr int64_t kPartProducts = int64_t{1} << 24;

  class Part {
   public:
    Part(const dnnl::engine& engine, const GemmShape& s, bool by_rows, int64_t begin, int64_t end)
        : stream_(engine) {
      const OneOpenMpThread alone;
      using dnnl::memory;
      constexpr auto kFloat = memory::data_type::f32;
      const int64_t m = by_rows ? end - begin : s.m;
      const int64_t n = by_rows ? s.n : end - begin;
      if (by_rows) {
        a_begin_ = s.transpose_a ? begin : begin * s.k;
        c_begin_ = begin * s.n;
      } else {
        b_begin_ = s.transpose_b ? begin * s.k : begin;
        c_begin_ = begin;
      }
      const memory::desc a({m, s.k}, kFloat,
                           s.transpose_a ? memory::dims{1, s.m} : memory::dims{s.k, 1});
      const memory::desc b({s.k, n}, kFloat,
                           s.transpose_b ? memory::dims{1, s.k} : memory::dims{s.n, 1});
      const memory::desc c({m, n}, kFloat, memory::dims{s.n, 1});
      dnnl::primitive_attr attributes;
      attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
      const dnnl::matmul::primitive_desc description(engine, a, b, c, attributes);
#else
      const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), attributes,
                                                     engine);
#endif
      a_ = memory(a, engine, nullptr);
      b_ = memory(b, engine, nullptr);
      c_ = memory(c, engine, nullptr);
      scratchpad_ = memory(description.scratchpad_desc(), engine, nullptr);
      scratch_bytes = description.scratchpad_desc().get_size();
      arguments_ = {{DNNL_ARG_SRC, a_},
                    {DNNL_ARG_WEIGHTS, b_},
                    {DNNL_ARG_DST, c_},
                    {DNNL_ARG_SCRATCHPAD, scratchpad_}};
      primitive_ = dnnl::matmul(description);
    }

    void run(const float* a, const float* b, float* c, std::byte* scratch) {
      const OneOpenMpThread alone;
      a_.set_data_handle(const_cast<float*>(a + a_begin_));
      b_.set_data_handle(const_cast<float*>(b + b_begin_));
      c_.set_data_handle(c + c_begin_);
      scratchpad_.set_data_handle(scratch + scratch_begin);
      primitive_.execute(stream_, arguments_);
      stream_.wait();
    }

    size_t scratch_begin = 0;
    size_t scratch_bytes = 0;

   private:
    dnnl::stream stream_;
    int64_t a_begin_ = 0;
    int64_t b_begin_ = 0;
    int64_t c_begin_ = 0;
    dnnl::memory a_;
    dnnl::memory b_;
    dnnl::memory c_;
    dnnl::memory scratchpad_;
    std::unordered_map<int, dnnl::memory> arguments_;
    dnnl::matmul primitive_;
  };

  dnnl::engine engine_;
  std::vector<std::unique_ptr<Part>> parts_;
  size_t scratch_bytes_ = 0;
};

}  // namespace

template <class T>
std::unique_ptr<Gemm<T>> tile_gemm(const GemmShape& shape) {
  return std::make_unique<TileGemm<T>>(shape);
}

std::unique_ptr<Gemm<float>> onednn_gemm(const GemmShape& shape) {
  if (shape.m == 0 || shape.n == 0 || shape.k == 0) return nullptr;
  try {
    return std::make_unique<OneDnnGemm>(shape);
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

template <class T>
std::unique_ptr<Gemm<T>> reference_gemm(const GemmShape& shape) {
  return std::make_unique<ReferenceGemm<T>>(shape);
}

template <class T>
std::unique_ptr<Gemm<T>> fastest_gemm(const GemmShape& shape) {
  const GemmBackend backend = gemm_backend(shape);
  if constexpr (std::is_same_v<T, float>) {
    auto gemm = backend == GemmBackend::kOneDnn ? onednn_gemm(shape) : nullptr;
    if (gemm != nullptr) return gemm;
  }
  return backend == GemmBackend::kBlocked ? blocked_gemm<T>(shape) : tile_gemm<T>(shape);
}

template <class T>
void transpose(const T* x, int64_t rows, int64_t columns, int64_t x_stride, T* out,
               int64_t out_stride) {
  constexpr int64_t kBlock = 8;
  const int64_t full_rows = rows - rows % kBlock;
  const int64_t full_columns = columns - columns % kBlock;
  // Sixteen columns, a whole cache line of floats, all the way down: rows whose stride is a power
  // of two would push each other out of the cache otherwise.
  for (int64_t strip = 0; strip < full_columns; strip += 2 * kBlock) {
    const int64_t end = std::min(strip + 2 * kBlock, full_columns);
    for (int64_t i = 0; i < full_rows; i += kBlock) {
      for (int64_t j = strip; j < end; j += kBlock) {
        transpose_block(x + i * x_stride + j, x_stride, out + j * out_stride + i, out_stride);
      }
    }
  }
  for (int64_t j = 0; j < columns; ++j) {
    const int64_t first = j < full_columns ? full_rows : 0;
    for (int64_t i = first; i < rows; ++i) out[j * out_stride + i] = x[i * x_stride + j];
  }
}

template <class T>
void transpose(const T* x, int64_t rows, int64_t columns, T* out) {
  transpose(x, rows, columns, columns, out, rows);
}

template std::unique_ptr<Gemm<float>> tile_gemm(const GemmShape&);
template std::unique_ptr<Gemm<double>> tile_gemm(const GemmShape&);
template std::unique_ptr<Gemm<float>> fastest_gemm(const GemmShape&);
template std::unique_ptr<Gemm<double>> fastest_gemm(const GemmShape&);
template std::unique_ptr<Gemm<float>> reference_gemm(const GemmShape&);
template std::unique_ptr<Gemm<double>> reference_gemm(const GemmShape&);
template void transpose(const float*, int64_t, int64_t, float*);
template void transpose(const double*, int64_t, int64_t, double*);
template void transpose(const float*, int64_t, int64_t, int64_t, float*, int64_t);
template void transpose(const double*, int64_t, int64_t, int64_t, double*, int64_t);

}  // namespace fleet::fluid::cpu
