#include <cstring>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "fluid/kernels/checked_inputs.h"
#include "fluid/kernels/cpu/math/gemm.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/math/matmul_products.h"
#include "fluid/ops/math/mul.h"

namespace fleet::fluid::cpu {
namespace {

enum class Backend { kTile, kOneDnn, kReference };

template <class T>
std::unique_ptr<Gemm<T>> make_gemm(Backend backend, const GemmShape& shape) {
  if (backend == Backend::kTile) return tile_gemm<T>(shape);
  if (backend == Backend::kReference) return reference_gemm<T>(shape);
  if constexpr (std::is_same_v<T, float>) return onednn_gemm(shape);
  return nullptr;
}

template <class T, Backend backend>
std::unique_ptr<Prepared> prepare_mul(PrepareContext& context) {
  const MulShape shape = mul_shape(context);
  const GemmShape product = {.m = shape.m, .n = shape.n, .k = shape.k};
  if (backend == Backend::kTile && !prefer_tiles(product) && std::is_same_v<T, float>)
    return nullptr;
  std::shared_ptr<Gemm<T>> gemm = make_gemm<T>(backend, product);
  if (gemm == nullptr) return nullptr;
  const int x = context.input("X");
  const int y = context.input("Y");
  const int out = context.set_output("Out", shape.out, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    gemm->run(c.in<T>(x), c.in<T>(y), c.out<T>(out), c.scratch(), c.tiles());
  });
}

template <class T, Backend backend>
std::unique_ptr<Prepared> prepare_mul_grad(PrepareContext& context) {
  const MulShape shape = mul_shape(context);
  const GemmShape x_product = {.m = shape.m, .n = shape.k, .k = shape.n, .transpose_b = true};
  const GemmShape y_product = {.m = shape.k, .n = shape.n, .k = shape.m, .transpose_a = true};
  if (backend == Backend::kTile && !prefer_tiles(x_product) && std::is_same_v<T, float>) {
    return nullptr;
  }
  std::shared_ptr<Gemm<T>> x_gemm = make_gemm<T>(backend, x_product);
  std::shared_ptr<Gemm<T>> y_gemm = make_gemm<T>(backend, y_product);
  if (x_gemm == nullptr || y_gemm == nullptr) return nullptr;
  const int x = context.input("X");
  const int y = context.input("Y");
  const int out_grad = context.input("Out@GRAD");
  context.require(context.in("Out@GRAD").shape.numel() == shape.m * shape.n, "Out@GRAD",
                  shape.out.to_string(), context.in("Out@GRAD").shape.to_string());
  const int x_grad = context.set_output("X@GRAD", context.in("X").shape, dtype_of<T>());
  const int y_grad = context.set_output("Y@GRAD", context.in("Y").shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T* grad = c.in<T>(out_grad);
    if (x_grad >= 0) x_gemm->run(grad, c.in<T>(y), c.out<T>(x_grad), c.scratch(), c.tiles());
    if (y_grad >= 0) y_gemm->run(c.in<T>(x), grad, c.out<T>(y_grad), c.scratch(), c.tiles());
  });
}

template <class T>
class BatchedGemm {
 public:
  BatchedGemm(const BatchedProduct& product, std::shared_ptr<Gemm<T>> gemm, float alpha)
      : product_(product), gemm_(std::move(gemm)), alpha_(static_cast<T>(alpha)) {
    const bool adds = product.count > 1 && product.c_stride == 0;
    part_.resize(adds ? static_cast<size_t>(product.shape.m * product.shape.n) : 0);
  }

  void run(const T* a, const T* b, T* c, Scratch& scratch, const Tiles& tiles) {
    const int64_t n = product_.shape.m * product_.shape.n;
    for (int64_t i = 0; i < product_.count; ++i) {
      const bool adds = i > 0 && !part_.empty();
      T* to = adds ? part_.data() : c + i * product_.c_stride;
      gemm_->run(a + i * product_.a_stride, b + i * product_.b_stride, to, scratch, tiles);
      for (int64_t j = 0; adds && j < n; ++j) c[j] += part_[static_cast<size_t>(j)];
    }
    if (alpha_ == T{1}) return;
    const int64_t all = product_.c_stride == 0 ? n : n * product_.count;
    for (int64_t j = 0; j < all; ++j) c[j] *= alpha_;
  }

 private:
  BatchedProduct product_;
  std::shared_ptr<Gemm<T>> gemm_;
  T alpha_;
  std::vector<T> part_;
};

// Null when the backend does not want the product.
template <class T, Backend backend>
std::unique_ptr<BatchedGemm<T>> make_batched(const BatchedProduct& product, float alpha) {
  if (backend == Backend::kTile && !prefer_tiles(product.shape) && std::is_same_v<T, float>) {
    return nullptr;
  }
  std::shared_ptr<Gemm<T>> gemm = make_gemm<T>(backend, product.shape);
  if (gemm == nullptr) return nullptr;
  return std::make_unique<BatchedGemm<T>>(product, std::move(gemm), alpha);
}

// Without elements in the result there is nothing to multiply; gradients are 0.
std::unique_ptr<Prepared> fill_zeros(std::vector<int> outputs) {
  return make_prepared([outputs = std::move(outputs)](const KernelContext& c) {
    for (const int out : outputs) {
      if (out < 0) continue;
      Tensor& tensor = c.output(out);
      if (tensor.bytes() != 0) std::memset(tensor.raw(), 0, tensor.bytes());
    }
  });
}

template <class T, Backend backend>
std::unique_ptr<Prepared> prepare_matmul(PrepareContext& context) {
  const MatmulShape s = checked_matmul_shape(context);
  if (s.out.numel() == 0) return fill_zeros({context.set_output("Out", s.out, dtype_of<T>())});
  const BatchedProduct product = forward_product(s);
  std::shared_ptr<BatchedGemm<T>> gemm =
      make_batched<T, backend>(product, context.attrs<MatmulAttrs>().alpha);
  if (gemm == nullptr) return nullptr;
  const int x = context.input("X");
  const int y = context.input("Y");
  const int out = context.set_output("Out", s.out, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    gemm->run(c.in<T>(x), c.in<T>(y), c.out<T>(out), c.scratch(), c.tiles());
  });
}

template <class T, Backend backend>
std::unique_ptr<Prepared> prepare_matmul_grad(PrepareContext& context) {
  const MatmulShape s = checked_matmul_shape(context);
  if (s.out.numel() == 0) {
    return fill_zeros({context.set_output("X@GRAD", context.in("X").shape, dtype_of<T>()),
                       context.set_output("Y@GRAD", context.in("Y").shape, dtype_of<T>())});
  }
  const float alpha = context.attrs<MatmulAttrs>().alpha;
  const BatchedProduct to_x = x_product(s);
  const BatchedProduct to_y = y_product(s);
  std::shared_ptr<BatchedGemm<T>> x_gemm = make_batched<T, backend>(to_x, alpha);
  std::shared_ptr<BatchedGemm<T>> y_gemm = make_batched<T, backend>(to_y, alpha);
  if (x_gemm == nullptr || y_gemm == nullptr) return nullptr;
  context.require(context.in("Out@GRAD").shape.numel() == s.out.numel(), "Out@GRAD",
                  s.out.to_string(), context.in("Out@GRAD").shape.to_string());
  const int x = context.input("X");
  const int y = context.input("Y");
  const int grad = context.input("Out@GRAD");
  const int x_grad = context.set_output("X@GRAD", context.in("X").shape, dtype_of<T>());
  const int y_grad = context.set_output("Y@GRAD", context.in("Y").shape, dtype_of<T>());
  const bool x_turned = s.x.transpose;
  const bool y_turned = s.y.transpose;
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    const T* ys = c.in<T>(y);
    const T* gs = c.in<T>(grad);
    if (x_grad >= 0) {
      x_gemm->run(x_turned ? ys : gs, x_turned ? gs : ys, c.out<T>(x_grad), c.scratch(), c.tiles());
    }
    if (y_grad >= 0) {
      y_gemm->run(y_turned ? gs : xs, y_turned ? xs : gs, c.out<T>(y_grad), c.scratch(), c.tiles());
    }
  });
}

}  // namespace

void register_matmul(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const DType dtype = dtype_of<T>();
    const auto add = [&table, dtype](const char* op, const char* name, auto prepare) {
      table.add_last(op, DeviceKind::kCpu, dtype, {.name = name, .prepare = prepare});
    };
    add("matmul", "tile", prepare_matmul<T, Backend::kTile>);
    add("matmul_grad", "tile", prepare_matmul_grad<T, Backend::kTile>);
    add("mul", "tile", prepare_mul<T, Backend::kTile>);
    add("mul_grad", "tile", prepare_mul_grad<T, Backend::kTile>);
    if constexpr (std::is_same_v<T, float>) {
      add("matmul", "onednn", prepare_matmul<T, Backend::kOneDnn>);
      add("matmul_grad", "onednn", prepare_matmul_grad<T, Backend::kOneDnn>);
      add("mul", "onednn", prepare_mul<T, Backend::kOneDnn>);
      add("mul_grad", "onednn", prepare_mul_grad<T, Backend::kOneDnn>);
    }
    add("matmul", "reference", prepare_matmul<T, Backend::kReference>);
    add("matmul_grad", "reference", prepare_matmul_grad<T, Backend::kReference>);
    add("mul", "reference", prepare_mul<T, Backend::kReference>);
    add("mul_grad", "reference", prepare_mul_grad<T, Backend::kReference>);
  });
}

}  // namespace fleet::fluid::cpu
