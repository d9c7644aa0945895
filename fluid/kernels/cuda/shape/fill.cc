// Constants, scaling, copies, random values.
#include "fluid/ops/shape/fill.h"

#include <string>

#include "fluid/kernels/checked_inputs.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cuda/register_impl.h"
#include "fluid/kernels/shape/constant.h"
#include "fluid/ops/math/scale.h"

namespace fleet::fluid::cuda {
namespace {

template <class T>
std::unique_ptr<Prepared> prepare_fill_constant(PrepareContext& context) {
  const auto attrs = context.attrs<FillConstantAttrs>();
  const Shape shape(attrs.shape);
  const int64_t n = shape.numel();
  const T value = constant_of<T>(context, attrs.value, attrs.str_value);
  const int given = optional_scalar_input<T>(context, "ValueTensor");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    if (given >= 0) {
      fill_quotient<T>(stream_of(c).raw(), c.in<T>(given), T{1}, c.out<T>(out), n);
    } else {
      fill<T>(stream_of(c).raw(), value, c.out<T>(out), n);
    }
  });
}

std::unique_ptr<Prepared> prepare_fill_like_batch(PrepareContext& context) {
  const auto attrs = context.attrs<FillConstantBatchSizeLikeAttrs>();
  std::unique_ptr<Prepared> prepared;
  cpu::for_types<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>(
      [&]<class T>(std::type_identity<T>) {
        if (attrs.dtype != dtype_of<T>()) return;
        const T value = constant_of<T>(context, attrs.value, attrs.str_value);
        prepared = make_prepared([value, to = batch_fill_of(context)](const KernelContext& c) {
          Tensor& tensor = to.output(c);
          fill<T>(stream_of(c).raw(), value, reinterpret_cast<T*>(tensor.raw()), tensor.numel());
        });
      });
  return prepared;
}

template <class T>
std::unique_ptr<Prepared> prepare_zeros_like(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  const int64_t n = shape.numel();
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared(
      [=](const KernelContext& c) { fill<T>(stream_of(c).raw(), T{}, c.out<T>(out), n); });
}

template <class T>
std::unique_ptr<Prepared> prepare_scale(PrepareContext& context) {
  const auto attrs = context.attrs<ScaleAttrs>();
  const Shape shape = context.in("X").shape;
  const int64_t n = shape.numel();
  const int x = context.input("X");
  const int factor = optional_scalar_input<T>(context, "ScaleTensor");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const ScaleArgs<T> args = {.scale = static_cast<T>(attrs.scale),
                               .bias = static_cast<T>(attrs.bias),
                               .bias_after_scale = attrs.bias_after_scale,
                               .factor = factor >= 0 ? c.in<T>(factor) : nullptr};
    scale<T>(stream_of(c).raw(), args, c.in<T>(x), c.out<T>(out), n);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_increment(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  context.require(shape.numel() == 1, "X", "one element", shape.to_string());
  const T step = static_cast<T>(context.attrs<IncrementAttrs>().step);
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    scale<T>(stream_of(c).raw(), {.scale = T{1}, .bias = step}, c.in<T>(x), c.out<T>(out), 1);
  });
}

// Key and first element as the CPU kernels have them; `every_step` values also depend on step and
// shard.
struct Source {
  RandomStream random;
  bool every_step = false;

  RandomStream at(const KernelContext& c) const {
    RandomStream now = random;
    const uint64_t shard = static_cast<uint64_t>(c.shard() < 0 ? 0 : c.shard());
    if (every_step) now.word = (c.step() + 1) << 16 | shard;
    return now;
  }
};

Source source_of(const PrepareContext& context, int32_t seed) {
  const VarDesc* var = context.output_var("Out");
  Source source;
  std::string name = context.op().output("Out").front();
  if (var != nullptr && var->slice) {
    name = var->slice->origin;
    source.random.first = static_cast<uint64_t>(var->slice->offset);
  }
  source.every_step = var != nullptr && !var->persistable && !var->slice;
  const uint64_t program_seed = context.block().program().random_seed();
  source.random.key = RandomKey::of(seed != 0 ? static_cast<uint64_t>(seed) : program_seed, name);
  return source;
}

bool has_shape_input(const PrepareContext& context) {
  return context.input_count("ShapeTensor") + context.input_count("ShapeTensorList") != 0;
}

template <class T>
std::unique_ptr<Prepared> prepare_uniform(PrepareContext& context) {
  const auto attrs = context.attrs<UniformRandomAttrs>();
  if (has_shape_input(context) || attrs.diag_num != 0) return nullptr;
  const Shape shape(attrs.shape);
  const int64_t n = shape.numel();
  const Source source = source_of(context, attrs.seed);
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T low = static_cast<T>(attrs.min);
    const T width = static_cast<T>(attrs.max) - low;
    uniform<T>(stream_of(c).raw(), source.at(c), low, width, c.out<T>(out), n);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_gaussian(PrepareContext& context) {
  const auto attrs = context.attrs<GaussianRandomAttrs>();
  if (has_shape_input(context)) return nullptr;
  const Shape shape(attrs.shape);
  const int64_t n = shape.numel();
  const Source source = source_of(context, attrs.seed);
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    gaussian<T>(stream_of(c).raw(), source.at(c), static_cast<double>(attrs.mean),
                static_cast<double>(attrs.std), c.out<T>(out), n);
  });
}

}  // namespace

void register_fill(KernelTable& table) {
  cpu::for_types<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>(
      [&table]<class T>(std::type_identity<T>) {
        const auto list = [&table](const char* op, const char* name, auto prepare) {
          table.add_last(op, DeviceKind::kCuda, dtype_of<T>(), {.name = name, .prepare = prepare});
        };
        list("fill_constant", "loop", prepare_fill_constant<T>);
        list("fill_constant_batch_size_like", "loop", prepare_fill_like_batch);
        list("fill_zeros_like", "loop", prepare_zeros_like<T>);
        if constexpr (sizeof(T) >= 4) {
          list("scale", "loop", prepare_scale<T>);
          list("increment", "loop", prepare_increment<T>);
        }
        if constexpr (std::is_floating_point_v<T>) {
          list("uniform_random", "philox", prepare_uniform<T>);
          list("gaussian_random", "philox", prepare_gaussian<T>);
        }
      });
}

}  // namespace fleet::fluid::cuda
