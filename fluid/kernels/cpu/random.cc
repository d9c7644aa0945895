// Random values by counter: element i of a variable depends on the program's seed, the variable's
// origin name and i alone, so that a slice holds the bits of the whole. Variables that are drawn
// anew every step also depend on step and shard.
#include "base/philox.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/ops/fill.h"

namespace fleet::fluid::cpu {
namespace {

struct Stream {
  RandomKey key;
  uint64_t first = 0;  // index of the first element within the origin
  bool every_step = false;

  // Word that tells steps and shards apart; 0 for what is drawn once.
  uint64_t at(const KernelContext& c) const {
    if (!every_step) return 0;
    return (c.step() + 1) << 16 | static_cast<uint64_t>(c.shard() < 0 ? 0 : c.shard());
  }
};

Stream stream_of(const PrepareContext& context, int32_t seed) {
  const VarDesc* var = context.output_var("Out");
  Stream stream;
  std::string name = context.op().output("Out").front();
  if (var != nullptr && var->slice) {
    name = var->slice->origin;
    stream.first = static_cast<uint64_t>(var->slice->offset);
  }
  stream.every_step = var != nullptr && !var->persistable;
  const uint64_t program_seed = context.block().program().random_seed();
  stream.key = RandomKey::of(seed != 0 ? static_cast<uint64_t>(seed) : program_seed, name);
  return stream;
}

template <class T>
T unit(RandomKey key, uint64_t index, uint64_t word) {
  if constexpr (std::is_same_v<T, float>) {
    return uniform_float(key, index, word);
  } else {
    return uniform_double(key, index, word);
  }
}

// Values on the diagonal, as initialisers of recurrent weights want them.
template <class T>
void set_diagonal(const UniformRandomAttrs& attrs, T* out, int64_t n) {
  for (int64_t i = 0; i < attrs.diag_num; ++i) {
    const int64_t at = i * attrs.diag_step + i;
    if (at < n) out[at] = static_cast<T>(attrs.diag_val);
  }
}

template <class T>
std::unique_ptr<Prepared> prepare_uniform(PrepareContext& context) {
  if (context.input_count("ShapeTensor") + context.input_count("ShapeTensorList") != 0) {
    return nullptr;
  }
  const auto attrs = context.attrs<UniformRandomAttrs>();
  const Shape shape(attrs.shape);
  const int64_t n = shape.numel();
  const Stream stream = stream_of(context, attrs.seed);
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    T* outs = c.out<T>(out);
    const uint64_t word = stream.at(c);
    const T low = static_cast<T>(attrs.min);
    const T width = static_cast<T>(attrs.max) - low;
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t index = stream.first + static_cast<uint64_t>(i);
      outs[i] = low + width * unit<T>(stream.key, index, word);
    }
    set_diagonal(attrs, outs, n);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_gaussian(PrepareContext& context) {
  if (context.input_count("ShapeTensor") + context.input_count("ShapeTensorList") != 0) {
    return nullptr;
  }
  const auto attrs = context.attrs<GaussianRandomAttrs>();
  const Shape shape(attrs.shape);
  const int64_t n = shape.numel();
  const Stream stream = stream_of(context, attrs.seed);
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    T* outs = c.out<T>(out);
    const uint64_t word = stream.at(c);
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t index = stream.first + static_cast<uint64_t>(i);
      outs[i] = static_cast<T>(attrs.mean + static_cast<double>(attrs.std) *
                                                normal_double(stream.key, index, word));
    }
  });
}

}  // namespace

void register_random(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    table.add_last("uniform_random", DeviceKind::kCpu, dtype_of<T>(),
                   {"philox", prepare_uniform<T>});
    table.add_last("gaussian_random", DeviceKind::kCpu, dtype_of<T>(),
                   {"philox", prepare_gaussian<T>});
  });
}

}  // namespace fleet::fluid::cpu
