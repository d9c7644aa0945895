#include <type_traits>

#include "fluid/kernels/cuda/divisor_impl.h"
#include "fluid/kernels/cuda/math/binary_loops_impl.h"
#include "fluid/kernels/cuda/math/reduce_impl.h"
#include "fluid/kernels/functions/binary.h"

namespace fleet::fluid::cuda {
namespace {

using namespace functions;  // NOLINT(google-build-using-namespace)

// The operands' elements that make an element of the result.
using OperandPlaces = Places<2>;

OperandPlaces places_of(const BroadcastDims& dims) {
  return {dims.rank, dims.size, {dims.x_step, dims.y_step}};
}

template <class F, class T, class R>
struct ValueLoop {
  OperandPlaces places;
  const T* x;
  const T* y;
  R* out;
  __device__ R element(int64_t i) const {
    const auto at = places.at(i);
    using C = Computed<T>;
    return R(F::value(static_cast<C>(x[at.of[0]]), static_cast<C>(y[at.of[1]])));
  }
};
template <class F, class T, class R>
void value(RawStream stream, const BroadcastDims& dims, const T* x, const T* y, R* out, int64_t n) {
  launch_each(stream, "binary", n, ValueLoop<F, T, R>{places_of(dims), x, y, out});
}

template <class F, class T>
struct BackValue {
  OperandPlaces places;
  const T* x;
  const T* y;
  const T* grad;
  __device__ Computed<T> operator()(int64_t i) const {
    using C = Computed<T>;
    const auto at = places.at(i);
    return F::back(static_cast<C>(x[at.of[0]]), static_cast<C>(y[at.of[1]]),
                   static_cast<C>(grad[i]));
  }
};
// Passes the gradient itself; the operands may have no memory any more.
struct Same {};
template <class T>
struct BackValue<Same, T> {
  OperandPlaces places;
  const T* x;
  const T* y;
  const T* grad;
  __device__ Computed<T> operator()(int64_t i) const { return grad[i]; }
};
template <class T>
struct BackValue<Negative, T> {
  OperandPlaces places;
  const T* x;
  const T* y;
  const T* grad;
  __device__ Computed<T> operator()(int64_t i) const { return -static_cast<Computed<T>>(grad[i]); }
};

// One of the functions, chosen when the kernel runs: sums over broadcast dimensions are one kernel
// for all that read their operands, since each compiles for seconds.
template <class... F>
struct OneOf {
  template <class G>
  FLEET_HOST_DEVICE static constexpr int number_of() {
    int number = 0;
    (void)((std::is_same_v<F, G> || (++number, false)) || ...);
    return number;
  }

  template <class C>
  __device__ static C back(int number, C x, C y, C grad) {
    C result{};
    (void)(((number == number_of<F>()) && (result = F::back(x, y, grad), true)) || ...);
    return result;
  }
};
using Summed = OneOf<TimesY, TimesX, DivToX, DivToY, WhereXIsLarger, WhereXIsNotLarger,
                     WhereXIsSmaller, WhereXIsNotSmaller, PowToX, PowToY>;

template <class T>
struct SummedValue {
  OperandPlaces places;
  const T* x;
  const T* y;
  const T* grad;
  int number;
  __device__ Computed<T> operator()(int64_t i) const {
    using C = Computed<T>;
    const auto at = places.at(i);
    return Summed::back(number, static_cast<C>(x[at.of[0]]), static_cast<C>(y[at.of[1]]),
                        static_cast<C>(grad[i]));
  }
};

template <class Value, class T>
struct BackLoop {
  Value of;
  T* out;
  __device__ T element(int64_t i) const { return T(of(i)); }
};

template <class F, class T>
void back(RawStream stream, const BroadcastDims& dims, const SumDims& sums, const T* x, const T* y,
          const T* grad, Computed<T>* partial, T* out) {
  if (out == grad) return;  // a view
  const BackValue<F, T> value{places_of(dims), x, y, grad};
  const auto sum = [&](const auto& values) {
    launch_reduce<Computed<T>, SumOf>(stream, "binary_back", sums, values, Computed<T>{1}, partial,
                                      out);
  };
  if (sums.gone_rank == 0) {
    launch_each(stream, "binary_back", sums.results, BackLoop<BackValue<F, T>, T>{value, out});
  } else if constexpr (std::is_same_v<F, Same> || std::is_same_v<F, Negative>) {
    sum(value);
  } else {
    sum(SummedValue<T>{places_of(dims), x, y, grad, Summed::number_of<F>()});
  }
}

template <class ToX, class ToY, class T>
constexpr BinaryGradient<T> gradient(const char* op) {
  return {op, back<ToX, T>, back<ToY, T>};
}

template <class Row, int count>
BinaryRows<Row> rows_of(const Row (&rows)[count]) {
  return {rows, count};
}

}  // namespace

template <class T>
BinaryRows<BinaryFunction<T, T>> binary_functions() {
  using Row = BinaryFunction<T, T>;
  if constexpr (std::is_integral_v<T>) {
    static constexpr Row kWhole[] = {
        {"elementwise_add", value<Add, T, T>}, {"elementwise_sub", value<Sub, T, T>},
        {"elementwise_mul", value<Mul, T, T>}, {"elementwise_max", value<Max, T, T>},
        {"elementwise_min", value<Min, T, T>}, {"elementwise_pow", value<Pow, T, T>}};
    return rows_of(kWhole);
  } else {
    static constexpr Row kReal[] = {{"elementwise_add", value<Add, T, T>},
                                    {"elementwise_sub", value<Sub, T, T>},
                                    {"elementwise_mul", value<Mul, T, T>},
                                    {"elementwise_max", value<Max, T, T>},
                                    {"elementwise_min", value<Min, T, T>},
                                    {"elementwise_pow", value<Pow, T, T>},
                                    {"elementwise_div", value<RealDiv, T, T>},
                                    {"elementwise_floordiv", value<RealFloorDiv, T, T>},
                                    {"elementwise_mod", value<RealMod, T, T>}};
    return rows_of(kReal);
  }
}

template <class T>
BinaryRows<BinaryGradient<T>> binary_gradients() {
  static constexpr BinaryGradient<T> kAll[] = {
      gradient<Same, Same, T>("elementwise_add_grad"),
      gradient<Same, Negative, T>("elementwise_sub_grad"),
      gradient<TimesY, TimesX, T>("elementwise_mul_grad"),
      gradient<DivToX, DivToY, T>("elementwise_div_grad"),
      gradient<WhereXIsLarger, WhereXIsNotLarger, T>("elementwise_max_grad"),
      gradient<WhereXIsSmaller, WhereXIsNotSmaller, T>("elementwise_min_grad"),
      gradient<PowToX, PowToY, T>("elementwise_pow_grad")};
  return rows_of(kAll);
}

template <class T>
BinaryRows<BinaryFunction<T, bool>> comparisons() {
  static constexpr BinaryFunction<T, bool> kAll[] = {
      {"less_than", value<Less, T, bool>},       {"less_equal", value<LessEqual, T, bool>},
      {"greater_than", value<Greater, T, bool>}, {"greater_equal", value<GreaterEqual, T, bool>},
      {"equal", value<Equal, T, bool>},          {"not_equal", value<NotEqual, T, bool>}};
  return rows_of(kAll);
}

BinaryRows<BinaryFunction<bool, bool>> logical_functions() {
  static constexpr BinaryFunction<bool, bool> kAll[] = {{"logical_and", value<And, bool, bool>},
                                                        {"logical_or", value<Or, bool, bool>},
                                                        {"logical_xor", value<Xor, bool, bool>}};
  return rows_of(kAll);
}

template BinaryRows<BinaryFunction<float, float>> binary_functions();
template BinaryRows<BinaryFunction<double, double>> binary_functions();
template BinaryRows<BinaryFunction<__half, __half>> binary_functions();
template BinaryRows<BinaryFunction<__nv_bfloat16, __nv_bfloat16>> binary_functions();
template BinaryRows<BinaryFunction<int32_t, int32_t>> binary_functions();
template BinaryRows<BinaryFunction<int64_t, int64_t>> binary_functions();
template BinaryRows<BinaryGradient<float>> binary_gradients();
template BinaryRows<BinaryGradient<double>> binary_gradients();
template BinaryRows<BinaryGradient<__half>> binary_gradients();
template BinaryRows<BinaryGradient<__nv_bfloat16>> binary_gradients();
template BinaryRows<BinaryFunction<bool, bool>> comparisons();
template BinaryRows<BinaryFunction<int32_t, bool>> comparisons();
template BinaryRows<BinaryFunction<int64_t, bool>> comparisons();
template BinaryRows<BinaryFunction<float, bool>> comparisons();
template BinaryRows<BinaryFunction<double, bool>> comparisons();

}  // namespace fleet::fluid::cuda
