#include "fluid/kernels/cpu/math/gemm.h"

#include <algorithm>
#include <dnnl.hpp>
#include <immintrin.h>
#include <unordered_map>

#include "fluid/kernels/cpu/one_openmp_thread_impl.h"

namespace fleet::fluid::cpu {
namespace {

// Products of more multiply-adds than this belong to oneDNN, which packs for the caches.
constexpr int64_t kTileLimit = int64_t{1} << 22;

template <class T>
class TileGemm final : public Gemm<T> {
 public:
  explicit TileGemm(const GemmShape& shape) : shape_(shape) {}

  void run(const T* a, const T* b, T* c, Scratch& scratch) override {
    const GemmShape& s = shape_;
    if (transposed_is_cheaper()) return run_transposed(a, b, c, scratch);
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
              .ldc = s.n});
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

  static void multiply(const GemmArgs<T>& args) {
    if constexpr (std::is_same_v<T, float>) {
      isa_loops().gemm_f32(args);
    } else {
      isa_loops().gemm_f64(args);
    }
  }

  // The transposed product, whose rows are long: the same chains of multiply-adds, so the same
  // bits.
  void run_transposed(const T* a, const T* b, T* c, Scratch& scratch) const {
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
              .ldc = s.m});
    transpose(product, s.n, s.m, c);
  }

  GemmShape shape_;
};

template <class T>
class ReferenceGemm final : public Gemm<T> {
 public:
  explicit ReferenceGemm(const GemmShape& shape) : shape_(shape) {}

  void run(const T* a, const T* b, T* c, Scratch&) override {
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

class OneDnnGemm final : public Gemm<float> {
 public:
  explicit OneDnnGemm(const GemmShape& s)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_), primitive_(make_primitive(s)) {}

  void run(const float* a, const float* b, float* c, Scratch& scratch) override {
    const OneOpenMpThread alone;
    a_.set_data_handle(const_cast<float*>(a));
    b_.set_data_handle(const_cast<float*>(b));
    c_.set_data_handle(c);
    scratchpad_.set_data_handle(scratch.get(scratchpad_bytes_));
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  dnnl::matmul make_primitive(const GemmShape& s) {
    const OneOpenMpThread alone;
    using dnnl::memory;
    constexpr auto kFloat = memory::data_type::f32;
    const memory::desc a({s.m, s.k}, kFloat,
                         s.transpose_a ? memory::dims{1, s.m} : memory::dims{s.k, 1});
    const memory::desc b({s.k, s.n}, kFloat,
                         s.transpose_b ? memory::dims{1, s.k} : memory::dims{s.n, 1});
    const memory::desc c({s.m, s.n}, kFloat, memory::dims{s.n, 1});
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc description(engine_, a, b, c, attributes);
#else
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), attributes,
                                                   engine_);
#endif
    a_ = memory(a, engine_, nullptr);
    b_ = memory(b, engine_, nullptr);
    c_ = memory(c, engine_, nullptr);
    scratchpad_ = memory(description.scratchpad_desc(), engine_, nullptr);
    scratchpad_bytes_ = description.scratchpad_desc().get_size();
    arguments_ = {{DNNL_ARG_SRC, a_},
                  {DNNL_ARG_WEIGHTS, b_},
                  {DNNL_ARG_DST, c_},
                  {DNNL_ARG_SCRATCHPAD, scratchpad_}};
    return dnnl::matmul(description);
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::memory a_;
  dnnl::memory b_;
  dnnl::memory c_;
  dnnl::memory scratchpad_;
  size_t scratchpad_bytes_ = 0;
  std::unordered_map<int, dnnl::memory> arguments_;
  dnnl::matmul primitive_;
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
  if constexpr (std::is_same_v<T, float>) {
    auto gemm = prefer_tiles(shape) ? nullptr : onednn_gemm(shape);
    if (gemm != nullptr) return gemm;
  }
  return tile_gemm<T>(shape);
}

bool prefer_tiles(const GemmShape& shape) {
  return shape.m * shape.n * shape.k <= kTileLimit;
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
