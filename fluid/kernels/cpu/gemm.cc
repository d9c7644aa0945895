#include "fluid/kernels/cpu/gemm.h"

#include <algorithm>
#include <dnnl.hpp>
#include <omp.h>
#include <unordered_map>

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
    if (s.transpose_b) {
      auto* packed = reinterpret_cast<T*>(scratch.get(static_cast<size_t>(s.k * s.n) * sizeof(T)));
      transpose(b, s.n, s.k, packed);
      b = packed;
    }
    const GemmArgs<T> args = {.m = s.m,
                              .n = s.n,
                              .k = s.k,
                              .a = a,
                              .lda = s.transpose_a ? s.m : s.k,
                              .transpose_a = s.transpose_a,
                              .b = b,
                              .ldb = s.n,
                              .c = c,
                              .ldc = s.n};
    if constexpr (std::is_same_v<T, float>) {
      isa_loops().gemm_f32(args);
    } else {
      isa_loops().gemm_f64(args);
    }
  }

 private:
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

// Debian's oneDNN uses OpenMP: the calling thread asks for one thread, once.
void use_one_openmp_thread() {
  thread_local const bool kDone = [] {
    omp_set_num_threads(1);
    return true;
  }();
  static_cast<void>(kDone);
}

class OneDnnGemm final : public Gemm<float> {
 public:
  explicit OneDnnGemm(const GemmShape& s)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_), primitive_(make_primitive(s)) {}

  void run(const float* a, const float* b, float* c, Scratch& scratch) override {
    use_one_openmp_thread();
    a_.set_data_handle(const_cast<float*>(a));
    b_.set_data_handle(const_cast<float*>(b));
    c_.set_data_handle(c);
    scratchpad_.set_data_handle(scratch.get(scratchpad_bytes_));
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  dnnl::matmul make_primitive(const GemmShape& s) {
    use_one_openmp_thread();
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

bool prefer_tiles(const GemmShape& shape) {
  return shape.m * shape.n * shape.k <= kTileLimit;
}

template <class T>
void transpose(const T* x, int64_t rows, int64_t columns, T* out) {
  constexpr int64_t kBlock = 8;
  const int64_t full_rows = rows - rows % kBlock;
  for (int64_t j0 = 0; j0 < columns; j0 += kBlock) {
    const int64_t j1 = std::min(j0 + kBlock, columns);
    for (int64_t i0 = 0; i0 < full_rows; i0 += kBlock) {
      for (int64_t j = j0; j < j1; ++j) {
        for (int64_t i = 0; i < kBlock; ++i) {
          out[j * rows + i0 + i] = x[(i0 + i) * columns + j];
        }
      }
    }
    for (int64_t i = full_rows; i < rows; ++i) {
      for (int64_t j = j0; j < j1; ++j) out[j * rows + i] = x[i * columns + j];
    }
  }
}

template std::unique_ptr<Gemm<float>> tile_gemm(const GemmShape&);
template std::unique_ptr<Gemm<double>> tile_gemm(const GemmShape&);
template std::unique_ptr<Gemm<float>> reference_gemm(const GemmShape&);
template std::unique_ptr<Gemm<double>> reference_gemm(const GemmShape&);
template void transpose(const float*, int64_t, int64_t, float*);
template void transpose(const double*, int64_t, int64_t, double*);

}  // namespace fleet::fluid::cpu
