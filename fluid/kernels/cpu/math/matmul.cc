#include <cstring>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "fluid/kernels/checked_inputs.h"
#include "fluid/kernels/cpu/math/gemm.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/tile_scratch.h"
#include "fluid/kernels/math/matmul_products.h"
#include "fluid/ops/math/mul.h"

namespace fleet::fluid::cpu {
namespace {

enum class Backend { kFastest, kReference };

template <class T, Backend backend>
std::shared_ptr<Gemm<T>> make_gemm(const GemmShape& shape) {
  return backend == Backend::kFastest ? fastest_gemm<T>(shape) : reference_gemm<T>(shape);
}

template <class T, Backend backend>
std::unique_ptr<Prepared> prepare_mul(PrepareContext& context) {
  const MulShape shape = mul_shape(context);
  const auto gemm = make_gemm<T, backend>({.m = shape.m, .n = shape.n, .k = shape.k});
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
  const auto x_gemm = make_gemm<T, backend>(x_product);
  const auto y_gemm = make_gemm<T, backend>(y_product);
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
    if (!part_.empty()) {
      add_up(a, b, c, scratch, tiles);
    } else if (of_tiles()) {
      tiles.split(product_.count, n * product_.shape.k / kProducts,
                  [&](int64_t begin, int64_t end) {
                    Scratch& own = scratch_of_thread();
                    for (int64_t i = begin; i < end; ++i) one(i, a, b, c, own, Tiles());
                  });
    } else {
      for (int64_t i = 0; i < product_.count; ++i) one(i, a, b, c, scratch, tiles);
    }
    if (alpha_ == T{1}) return;
    const int64_t all = product_.c_stride == 0 ? n : n * product_.count;
    tiles.split(all, 1, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) c[j] *= alpha_;
    });
  }

 private:
  // Whether a tile has whole products, of which there are many. oneDNN's are run by one thread.
  bool of_tiles() const {
    return product_.count >= 16 && gemm_backend(product_.shape) != GemmBackend::kOneDnn;
  }

  void one(int64_t i, const T* a, const T* b, T* c, Scratch& scratch, const Tiles& tiles) const {
    gemm_->run(a + i * product_.a_stride, b + i * product_.b_stride, c + i * product_.c_stride,
               scratch, tiles);
  }

  void add_up(const T* a, const T* b, T* c, Scratch& scratch, const Tiles& tiles) {
    one(0, a, b, c, scratch, tiles);
    for (int64_t i = 1; i < product_.count; ++i) {
      gemm_->run(a + i * product_.a_stride, b + i * product_.b_stride, part_.data(), scratch,
                 tiles);
      tiles.split(product_.shape.m * product_.shape.n, 1, [&](int64_t begin, int64_t end) {
        for (int64_t j = begin; j < end; ++j) c[j] += part_[static_cast<size_t>(j)];
      });
    }
  }

  BatchedProduct product_;
  std::shared_ptr<Gemm<T>> gemm_;
  T alpha_;
  std::vector<T> part_;
};

template <class T, Backend backend>
std::shared_ptr<BatchedGemm<T>> make_batched(const BatchedProduct& product, float alpha) {
  return std::make_shared<BatchedGemm<T>>(product, make_gemm<T, backend>(product.shape), alpha);
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
  const auto gemm = make_batched<T, backend>(product, context.attrs<MatmulAttrs>().alpha);
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
  const auto x_gemm = make_batched<T, backend>(to_x, alpha);
  const auto y_gemm = make_batched<T, backend>(to_y, alpha);
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
    add("matmul", "gemm", prepare_matmul<T, Backend::kFastest>);
    add("matmul_grad", "gemm", prepare_matmul_grad<T, Backend::kFastest>);
    add("mul", "gemm", prepare_mul<T, Backend::kFastest>);
    add("mul_grad", "gemm", prepare_mul_grad<T, Backend::kFastest>);
    add("matmul", "reference", prepare_matmul<T, Backend::kReference>);
    add("matmul_grad", "reference", prepare_matmul_grad<T, Backend::kReference>);
    add("mul", "reference", prepare_mul<T, Backend::kReference>);
    add("mul_grad", "reference", prepare_mul_grad<T, Backend::kReference>);
  });
}

}  // namespace fleet::fluid::cpu
