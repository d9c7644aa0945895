#include "base/strings.h"
#include "fluid/kernels/cpu/gemm.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/ops/mul.h"

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

// The matrices that op mul makes of its inputs: leading dimensions are rows, the others columns.
struct MulShape {
  int64_t m = 0;
  int64_t k = 0;
  int64_t n = 0;
  Shape out;
};

MulShape mul_shape(const PrepareContext& context) {
  const Shape& x = context.in("X").shape;
  const Shape& y = context.in("Y").shape;
  const auto attrs = context.attrs<MulAttrs>();
  const int x_columns = attrs.x_num_col_dims;
  const int y_columns = attrs.y_num_col_dims;
  context.require(x_columns >= 1 && x_columns < x.rank(), "X", "x_num_col_dims inside the rank",
                  str_cat(x_columns, " of ", x));
  context.require(y_columns >= 1 && y_columns < y.rank(), "Y", "y_num_col_dims inside the rank",
                  str_cat(y_columns, " of ", y));
  MulShape shape = {.m = x.numel(0, x_columns),
                    .k = x.numel(x_columns, x.rank()),
                    .n = y.numel(y_columns, y.rank()),
                    .out = {}};
  context.require(shape.k == y.numel(0, y_columns), "Y",
                  str_cat(shape.k, " rows, as X has columns"),
                  str_cat(y.numel(0, y_columns), " rows of ", y));
  for (int i = 0; i < x_columns; ++i) shape.out.push_back(x[i]);
  for (int i = y_columns; i < y.rank(); ++i) shape.out.push_back(y[i]);
  return shape;
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
    gemm->run(c.in<T>(x), c.in<T>(y), c.out<T>(out), c.scratch());
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
    if (x_grad >= 0) x_gemm->run(grad, c.in<T>(y), c.out<T>(x_grad), c.scratch());
    if (y_grad >= 0) y_gemm->run(c.in<T>(x), grad, c.out<T>(y_grad), c.scratch());
  });
}

}  // namespace

void register_matmul(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const DType dtype = dtype_of<T>();
    const auto add = [&table, dtype](const char* op, const char* name, auto prepare) {
      table.add_last(op, DeviceKind::kCpu, dtype, {.name = name, .prepare = prepare});
    };
    add("mul", "tile", prepare_mul<T, Backend::kTile>);
    add("mul_grad", "tile", prepare_mul_grad<T, Backend::kTile>);
    if constexpr (std::is_same_v<T, float>) {
      add("mul", "onednn", prepare_mul<T, Backend::kOneDnn>);
      add("mul_grad", "onednn", prepare_mul_grad<T, Backend::kOneDnn>);
    }
    add("mul", "reference", prepare_mul<T, Backend::kReference>);
    add("mul_grad", "reference", prepare_mul_grad<T, Backend::kReference>);
  });
}

}  // namespace fleet::fluid::cpu
