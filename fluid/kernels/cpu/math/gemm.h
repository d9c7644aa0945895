// Matrix products, prepared for one set of shapes.
#pragma once

#include <memory>

#include "fluid/kernels/cpu/isa.h"
#include "fluid/kernels/kernel.h"
#include "fluid/kernels/math/matmul_products.h"

namespace fleet::fluid::cpu {

// Multiply-adds in the time of an element of a simple loop (Tiles::items).
inline constexpr int64_t kProducts = 16;

template <class T>
class Gemm {
 public:
  virtual ~Gemm() = default;
  virtual void run(const T* a, const T* b, T* c, Scratch& scratch, const Tiles& tiles) = 0;
};

// Register tiles over operands where they lie: the fastest for small products, any shape.
template <class T>
std::unique_ptr<Gemm<T>> tile_gemm(const GemmShape& shape);
// Operands packed for the caches, and the bits of tile_gemm: the fastest for large products.
template <class T>
std::unique_ptr<Gemm<T>> blocked_gemm(const GemmShape& shape);
// oneDNN's matmul, single-threaded; null when the library has no kernel for the shape. float only.
std::unique_ptr<Gemm<float>> onednn_gemm(const GemmShape& shape);
// Which of them is the fastest for a shape on this machine's instruction set, by a table that
// scripts/gemm_table.sh writes (gemm_backend.cc). Shapes have a cell of it together when their m, n
// and k each have the same power of two below.
enum class GemmBackend { kTile, kBlocked, kOneDnn };
GemmBackend gemm_backend(const GemmShape& shape);
inline constexpr int64_t kGemmTableSizes = 12;  // 1, 2 to 3, 4 to 7 ... 2048 and more
template <class T>
std::unique_ptr<Gemm<T>> fastest_gemm(const GemmShape& shape);
// Three loops.
template <class T>
std::unique_ptr<Gemm<T>> reference_gemm(const GemmShape& shape);

// Rows and columns exchanged: out[columns, rows] from x[rows, columns].
template <class T>
void transpose(const T* x, int64_t rows, int64_t columns, T* out);
// The same where rows of x start `x_stride` elements apart, and those of out `out_stride`.
template <class T>
void transpose(const T* x, int64_t rows, int64_t columns, int64_t x_stride, T* out,
               int64_t out_stride);

}  // namespace fleet::fluid::cpu
