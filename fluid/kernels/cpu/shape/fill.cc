// Constants, scaling, copies and casts.
#include "fluid/ops/shape/fill.h"

#include <cmath>

#include "base/strings.h"
#include "fluid/kernels/checked_inputs.h"
#include "fluid/kernels/cpu/math/row_sums.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/tensor_attributes.h"
#include "fluid/kernels/cpu/tile_copy.h"
#include "fluid/kernels/half/convert.h"
#include "fluid/kernels/half/widened.h"
#include "fluid/kernels/shape/constant.h"
#include "fluid/kernels/shape/mover.h"
#include "fluid/ops/math/scale.h"
#include "fluid/ops/shape/shape_ops.h"

namespace fleet::fluid::cpu {
namespace {

template <class T>
std::unique_ptr<Prepared> prepare_fill_constant(PrepareContext& context) {
  const auto attrs = context.attrs<FillConstantAttrs>();
  const Shape shape(attrs.shape);
  context.require(shape.known(), "Out", "dimensions >= 0", shape.to_string());
  const int64_t n = shape.numel();
  const T constant = constant_of<T>(context, attrs.value, attrs.str_value);
  const int given = optional_scalar_input<T>(context, "ValueTensor");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    fill_in_tiles(c.tiles(), c.out<T>(out), n, given >= 0 ? *c.in<T>(given) : constant);
  });
}

std::unique_ptr<Prepared> prepare_fill_like_batch(PrepareContext& context) {
  const auto attrs = context.attrs<FillConstantBatchSizeLikeAttrs>();
  std::unique_ptr<Prepared> prepared;
  for_types<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>(
      [&]<class T>(std::type_identity<T>) {
        if (attrs.dtype != dtype_of<T>()) return;
        const T value = constant_of<T>(context, attrs.value, attrs.str_value);
        prepared = make_prepared([value, fill = batch_fill_of(context)](const KernelContext& c) {
          Tensor& tensor = fill.output(c);
          fill_in_tiles(c.tiles(), tensor.data<T>(), tensor.numel(), value);
        });
      });
  return prepared;
}

// Rounded up, so that the last number is still before End.
template <class T>
int64_t range_length(T start, T end, T step) {
  if (step == T{}) {
    throw_error(ErrorCode::kInvalidArgument, {.what = "a range needs a step",
                                              .where = "op range, slot 'Step'",
                                              .expected = "a number other than 0",
                                              .got = "0",
                                              .fix = "give the distance between numbers"});
  }
  const double count = std::ceil((static_cast<double>(end) - static_cast<double>(start)) /
                                 static_cast<double>(step));
  return count > 0 ? static_cast<int64_t>(count) : 0;
}

template <class T>
std::unique_ptr<Prepared> prepare_range(PrepareContext& context) {
  for (const char* slot : {"Start", "End", "Step"}) {
    const ValueSpec& spec = context.in(slot);
    context.require(spec.dtype == dtype_of<T>() && spec.shape.numel() == 1, slot,
                    str_cat("one element of ", dtype_name(dtype_of<T>())),
                    str_cat(dtype_name(spec.dtype), spec.shape));
  }
  const int start = context.input("Start");
  const int end = context.input("End");
  const int step = context.input("Step");
  const int out = context.own_output("Out");
  return make_prepared([=](const KernelContext& c) {
    const T first = *c.in<T>(start);
    const T distance = *c.in<T>(step);
    const int64_t n = range_length(first, *c.in<T>(end), distance);
    T* outs = c.make_dense(out, dtype_of<T>(), Shape{n}).template data<T>();
    c.tiles().split(n, 1, [=](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i) outs[i] = first + static_cast<T>(i) * distance;
    });
  });
}

std::unique_ptr<Prepared> prepare_zeros_like(PrepareContext& context) {
  const ValueSpec& x = context.in("X");
  const int out = context.set_output("Out", x.shape, x.dtype);
  return make_prepared([=](const KernelContext& c) {
    Tensor& tensor = c.output(out);
    zero_in_tiles(c.tiles(), tensor.raw(), tensor.bytes());
  });
}

// The shape only; zeros, so that nothing is ever read that nobody wrote.
std::unique_ptr<Prepared> prepare_fake_init(PrepareContext& context) {
  const Shape shape(context.attrs<FakeInitAttrs>().shape);
  const int out = context.set_output("Out", shape, DType::kFloat32);
  return make_prepared([=](const KernelContext& c) {
    Tensor& tensor = c.output(out);
    zero_in_tiles(c.tiles(), tensor.raw(), tensor.bytes());
  });
}

// Integers are scaled by factors cut to integers.
template <class T>
std::unique_ptr<Prepared> prepare_scale(PrepareContext& context) {
  const auto attrs = context.attrs<ScaleAttrs>();
  const Shape shape = context.in("X").shape;
  const int64_t n = shape.numel();
  const int x = context.input("X");
  const int factor = optional_scalar_input<T>(context, "ScaleTensor");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  const T bias = static_cast<T>(attrs.bias);
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    T* outs = c.out<T>(out);
    const T scale = factor >= 0 ? *c.in<T>(factor) : static_cast<T>(attrs.scale);
    const bool bias_after_scale = attrs.bias_after_scale;
    c.tiles().split(n, 1, [=](int64_t begin, int64_t end) {
      if (bias_after_scale) {
        for (int64_t i = begin; i < end; ++i) outs[i] = xs[i] * scale + bias;
      } else {
        for (int64_t i = begin; i < end; ++i) outs[i] = (xs[i] + bias) * scale;
      }
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_increment(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  context.require(shape.numel() == 1, "X", "one element", shape.to_string());
  const T step = static_cast<T>(context.attrs<IncrementAttrs>().step);
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) { *c.out<T>(out) = *c.in<T>(x) + step; });
}

template <class T>
std::unique_ptr<Prepared> prepare_clip(PrepareContext& context) {
  const auto attrs = context.attrs<ClipAttrs>();
  const Shape shape = context.in("X").shape;
  const int64_t n = shape.numel();
  const int x = context.input("X");
  const int min = optional_scalar_input<T>(context, "Min");
  const int max = optional_scalar_input<T>(context, "Max");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T low = min >= 0 ? *c.in<T>(min) : static_cast<T>(attrs.min);
    const T high = max >= 0 ? *c.in<T>(max) : static_cast<T>(attrs.max);
    const T* xs = c.in<T>(x);
    T* outs = c.out<T>(out);
    c.tiles().split(n, 1, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        outs[i] = xs[i] < low ? low : xs[i] > high ? high : xs[i];
      }
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_clip_grad(PrepareContext& context) {
  const auto attrs = context.attrs<ClipAttrs>();
  const Shape shape = context.in("X").shape;
  const int64_t n = shape.numel();
  const int x = context.input("X");
  const int grad = context.input("Out@GRAD");
  const int min = optional_scalar_input<T>(context, "Min");
  const int max = optional_scalar_input<T>(context, "Max");
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T low = min >= 0 ? *c.in<T>(min) : static_cast<T>(attrs.min);
    const T high = max >= 0 ? *c.in<T>(max) : static_cast<T>(attrs.max);
    const T* xs = c.in<T>(x);
    const T* grads = c.in<T>(grad);
    T* outs = c.out<T>(out);
    c.tiles().split(n, 1, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        outs[i] = xs[i] > low && xs[i] < high ? grads[i] : T{};
      }
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_clip_by_norm(PrepareContext& context) {
  const T max_norm = static_cast<T>(context.attrs<ClipByNormAttrs>().max_norm);
  const Shape shape = context.in("X").shape;
  const int64_t n = shape.numel();
  const int64_t rows = shape.rank() == 0 ? 1 : shape[0];
  const int64_t length = rows == 0 ? 0 : shape.numel() / rows;
  const int sums = context.input("SquaredRowSums");
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    T* outs = c.out<T>(out);
    const double square = sums >= 0 ? sum_rows(c.in<double>(sums), c.input(sums).numel())
                                    : squared_sum(c.tiles(), xs, rows, length);
    const T norm = static_cast<T>(std::sqrt(square));
    const T factor = norm > max_norm ? max_norm / norm : T{1};
    c.tiles().split(n, 1, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) outs[i] = xs[i] * factor;
    });
  });
}

std::unique_ptr<Prepared> prepare_assign(PrepareContext& context) {
  const ValueSpec& spec = context.in("X");
  const int x = context.input("X");
  const int out = context.set_output("Out", spec.shape, spec.dtype);
  return make_prepared(
      [=](const KernelContext& c) { copy_elements(c.tiles(), c.input(x), c.output(out)); });
}

template <class From, class To>
std::unique_ptr<Prepared> prepare_cast_to(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  const int64_t n = shape.numel();
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<To>());
  return make_prepared([=](const KernelContext& c) {
    const From* xs = c.in<From>(x);
    To* outs = c.out<To>(out);
    c.tiles().split(n, 1, [=](int64_t begin, int64_t end) {
      // An int8 is a number here. NOLINTNEXTLINE(bugprone-signed-char-misuse)
      for (int64_t i = begin; i < end; ++i) outs[i] = static_cast<To>(xs[i]);
    });
  });
}

template <class From>
std::unique_ptr<Prepared> prepare_cast_to_half(PrepareContext& context, DType half) {
  const Shape shape = context.in("X").shape;
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, half);
  return make_prepared([=, wide = Tensor(DType::kFloat32, shape)](const KernelContext& c) mutable {
    const From* xs = c.in<From>(x);
    auto* floats = wide.data<float>();
    c.tiles().split(wide.numel(), 1, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) floats[i] = static_cast<float>(xs[i]);
    });
    convert_half(wide, c.output(out), nullptr, c.tiles());
  });
}

template <class From>
std::unique_ptr<Prepared> prepare_cast(PrepareContext& context) {
  const DType wanted = context.attrs<CastAttrs>().out_dtype;
  if (is_half(wanted)) return prepare_cast_to_half<From>(context, wanted);
  std::unique_ptr<Prepared> prepared;
  for_types<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>(
      [&]<class To>(std::type_identity<To>) {
        if (wanted == dtype_of<To>()) prepared = prepare_cast_to<From, To>(context);
      });
  return prepared;
}

}  // namespace

void register_fill(KernelTable& table) {
  for (const DType dtype : kElementTypes) {
    table.add_last("assign", DeviceKind::kCpu, dtype, {.name = "copy", .prepare = prepare_assign});
  }
  add_casts_of_halves(table, DeviceKind::kCpu, {.name = "loop", .prepare = prepare_cast<float>});
  const TensorAttribute shape{.name = "shape", .whole = "ShapeTensor", .list = "ShapeTensorList"};
  for_types<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>(
      [&]<class T>(std::type_identity<T>) {
        const auto add = [&table](const char* op, const auto& prepare) {
          table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), {.name = "loop", .prepare = prepare});
        };
        add("fill_constant", with_tensor_attributes(prepare_fill_constant<T>, {shape}));
        add("fill_constant_batch_size_like", prepare_fill_like_batch);
        add("fill_zeros_like", prepare_zeros_like);
        add("cast", prepare_cast<T>);
        if constexpr (std::is_same_v<T, float>) add("fake_init", prepare_fake_init);
        if constexpr (sizeof(T) >= 4) {
          table.add_last("scale", DeviceKind::kCpu, dtype_of<T>(),
                         {.name = "loop",
                          .prepare = prepare_scale<T>,
                          .images = ImageOrder::kElements,
                          .in_place = true});
          add("increment", prepare_increment<T>);
          add("range", prepare_range<T>);
        }
        if constexpr (std::is_floating_point_v<T>) {
          add("clip", prepare_clip<T>);
          add("clip_grad", prepare_clip_grad<T>);
          add("clip_by_norm", prepare_clip_by_norm<T>);
        }
      });
}

}  // namespace fleet::fluid::cpu
