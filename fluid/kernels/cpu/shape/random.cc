// Random values by counter: element i of a variable depends on the program's seed, the variable's
// origin name and i alone, so that a slice holds the bits of the whole. Variables that are drawn
// anew every step also depend on step and shard.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/numbers/normal_quantile.h"
#include "base/numbers/philox_words.h"
#include "base/strings.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/tensor_attributes.h"
#include "fluid/ops/shape/fill.h"
#include "fluid/ops/shape/initialize.h"
#include "fluid/program/interleaved.h"

namespace fleet::fluid::cpu {
namespace {

struct Stream {
  RandomKey key;
  uint64_t first = 0;  // index of the first element within the origin
  uint64_t row = 1;    // elements of a row, and how many rows of the origin apart rows are
  uint64_t row_stride = 1;
  bool every_step = false;

  // The element of the origin that element i is.
  uint64_t index(int64_t i) const {
    const auto at = static_cast<uint64_t>(i);
    return row_stride == 1 ? first + at : first + at / row * row * row_stride + at % row;
  }

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
    stream.row =
        static_cast<uint64_t>(std::max<int64_t>(1, var->shape.numel(1, var->shape.rank())));
    stream.row_stride = static_cast<uint64_t>(row_stride(context.block().program(), *var));
  }
  stream.every_step = var != nullptr && !var->persistable && !var->slice;
  const uint64_t program_seed = context.block().program().random_seed();
  stream.key = RandomKey::of(seed != 0 ? static_cast<uint64_t>(seed) : program_seed, name);
  return stream;
}

// Of a number that is drawn alone, in elements of a simple loop.
constexpr int64_t kOneByOne = 50;

// Values on the diagonal among elements begin to end - 1, as initialisers of recurrent weights want
// them.
template <class T>
void set_diagonal(const UniformRandomAttrs& attrs, T* out, int64_t begin, int64_t end) {
  for (int64_t i = 0; i < attrs.diag_num; ++i) {
    const int64_t at = i * attrs.diag_step + i;
    if (at >= begin && at < end) out[at] = static_cast<T>(attrs.diag_val);
  }
}

// The numbers of one run: element i is drawn with the key at index(i) and word.
struct Draw {
  const Stream& stream;
  RandomKey key;
  uint64_t word;
  uint64_t index(int64_t i) const { return stream.index(i); }
};

// fill(draw, outs, begin, end) fills elements begin to end - 1 of output Out, whose shape the
// attributes have; an element costs as much as `cost` of a simple loop.
template <class T, class Attrs, class Fill>
std::unique_ptr<Prepared> prepare_draw(PrepareContext& context, const Attrs& attrs, int64_t cost,
                                       Fill fill) {
  const Shape shape(attrs.shape);
  context.require(shape.known(), "Out", "dimensions >= 0", shape.to_string());
  const int64_t n = shape.numel();
  const Stream stream = stream_of(context, attrs.seed);
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const Draw draw{stream, stream.key, stream.at(c)};
    T* outs = c.out<T>(out);
    c.tiles().split(n, cost, [&](int64_t begin, int64_t end) { fill(draw, outs, begin, end); });
  });
}

// Uniform in [0, 1).
void fill_unit(const Draw& draw, float* outs, int64_t begin, int64_t end) {
  // Elements of a row follow each other in the origin, and where it is whole, all do.
  const auto row = draw.stream.row_stride == 1 ? end : static_cast<int64_t>(draw.stream.row);
  for (int64_t i = begin; i < end;) {
    const int64_t next = std::min(end, (i / row + 1) * row);
    const auto count = static_cast<size_t>(next - i);
    uniform_floats(draw.key, draw.index(i), draw.word, std::span(outs + i, count));
    i = next;
  }
}
void fill_unit(const Draw& draw, double* outs, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    outs[i] = uniform_double(draw.key, draw.index(i), draw.word);
  }
}

template <class T>
std::unique_ptr<Prepared> prepare_uniform(PrepareContext& context) {
  const auto attrs = context.attrs<UniformRandomAttrs>();
  const int64_t cost = sizeof(T) == sizeof(float) ? 4 : kOneByOne;
  return prepare_draw<T>(context, attrs, cost,
                         [attrs](const Draw& draw, T* outs, int64_t begin, int64_t end) {
                           const T low = static_cast<T>(attrs.min);
                           const T width = static_cast<T>(attrs.max) - low;
                           fill_unit(draw, outs, begin, end);
                           for (int64_t i = begin; i < end; ++i) outs[i] = low + width * outs[i];
                           set_diagonal(attrs, outs, begin, end);
                         });
}

template <class T>
std::unique_ptr<Prepared> prepare_gaussian(PrepareContext& context) {
  const auto attrs = context.attrs<GaussianRandomAttrs>();
  const auto fill = [attrs](const Draw& draw, T* outs, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      outs[i] = static_cast<T>(attrs.mean + static_cast<double>(attrs.std) *
                                                normal_double(draw.key, draw.index(i), draw.word));
    }
  };
  return prepare_draw<T>(context, attrs, kOneByOne, fill);
}

template <class T>
std::unique_ptr<Prepared> prepare_truncated(PrepareContext& context) {
  const auto attrs = context.attrs<TruncatedGaussianRandomAttrs>();
  const auto fill = [attrs](const Draw& draw, T* outs, int64_t begin, int64_t end) {
    constexpr double kTail = kNormalTailBelowTwo;
    for (int64_t i = begin; i < end; ++i) {
      const double p =
          kTail + (1.0 - 2.0 * kTail) * uniform_double(draw.key, draw.index(i), draw.word);
      outs[i] = static_cast<T>(attrs.mean + static_cast<double>(attrs.std) * normal_quantile(p));
    }
  };
  return prepare_draw<T>(context, attrs, kOneByOne, fill);
}

template <class T>
std::unique_ptr<Prepared> prepare_assign_value(PrepareContext& context) {
  const auto attrs = context.attrs<AssignValueAttrs>();
  std::vector<T> values;
  const auto take = [&values](const auto& list) {
    for (const auto value : list) values.push_back(static_cast<T>(value));
  };
  if constexpr (std::is_same_v<T, bool>) take(attrs.bool_values);
  if constexpr (std::is_same_v<T, float>) take(attrs.fp32_values);
  if constexpr (std::is_same_v<T, int32_t>) take(attrs.int32_values);
  if constexpr (std::is_same_v<T, int64_t>) take(attrs.int64_values);
  const Shape shape(attrs.shape);
  context.require(static_cast<size_t>(shape.numel()) == values.size(), "Out",
                  str_cat("one value for each element of ", shape), str_cat(values.size()));
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([out, values = std::move(values)](const KernelContext& c) {
    T* outs = c.out<T>(out);
    for (size_t i = 0; i < values.size(); ++i) outs[i] = values[i];
  });
}

}  // namespace

void register_random(KernelTable& table) {
  const TensorAttribute shape{.name = "shape", .whole = "ShapeTensor", .list = "ShapeTensorList"};
  for_types<float, double>([&]<class T>(std::type_identity<T>) {
    table.add_last("uniform_random", DeviceKind::kCpu, dtype_of<T>(),
                   {"philox", with_tensor_attributes(prepare_uniform<T>, {shape})});
    table.add_last("gaussian_random", DeviceKind::kCpu, dtype_of<T>(),
                   {"philox", with_tensor_attributes(prepare_gaussian<T>, {shape})});
    table.add_last("truncated_gaussian_random", DeviceKind::kCpu, dtype_of<T>(),
                   {"philox", prepare_truncated<T>});
  });
  for_types<bool, int32_t, int64_t, float>([&table]<class T>(std::type_identity<T>) {
    table.add_last("assign_value", DeviceKind::kCpu, dtype_of<T>(),
                   {"copy", prepare_assign_value<T>});
  });
}

}  // namespace fleet::fluid::cpu
