// Single ops, forward, one thread: against oneDNN's primitives on the same data, and against
// copying by hand.

#include <algorithm>
#include <cstring>
#include <dnnl.hpp>
#include <functional>
#include <omp.h>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "base/process/prefetch.h"
#include "base/strings.h"
#include "benchmarks/harness/harness.h"
#include "fluid/executor/executor.h"
#include "fluid/layers/layers.h"
#include "fluid/program/default_programs.h"

namespace fleet::benchmarks {
namespace {

namespace layers = fluid::layers;

constexpr int kRounds = 7;
constexpr double kSeconds = 0.3;

uint32_t drawn(size_t i) {
  return static_cast<uint32_t>(uniform_float(RandomKey::of(1, "ops"), i) * 0x1p24f);
}

fluid::Tensor numbers(const fluid::Shape& shape) {
  fluid::Tensor x(fluid::DType::kFloat32, shape);
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data<float>()[i] = 0x1p-22f * static_cast<float>(drawn(static_cast<size_t>(i))) - 2;
  }
  return x;
}

// A program of one op, which runs again and again.
class Op {
 public:
  using Build = std::function<void(const fluid::Variable& x)>;
  Op(const fluid::Tensor& x, const Build& build)
      : executor_(fluid::CPUPlace(), {.threads = 1, .op_threads = 1}), feed_({{"x", x}}) {
    const fluid::ProgramGuard programs(main_, startup_);
    const fluid::unique_name::Guard names;
    build(layers::data("x", x.shape(), x.dtype(), {.append_batch_size = false}));
    executor_.run(startup_);
  }
  void run() { executor_.run(main_, feed_); }
  fluid::Tensor& variable(const std::string& name) { return executor_.scope().tensor(name); }

 private:
  fluid::Program main_;
  fluid::Program startup_;
  fluid::Executor executor_;
  fluid::Feed feed_;
};

double microseconds(const std::function<void()>& run) {
  return 1e6 / rate_of(kSeconds, run).processor;
}

using dnnl::memory;

const dnnl::engine& engine() {
  static const dnnl::engine kEngine(dnnl::engine::kind::cpu, 0);
  return kEngine;
}

memory::desc described(const memory::dims& dims, memory::format_tag order) {
  return {dims, memory::data_type::f32, order};
}

// A primitive from X to a result that lies in the same order.
class Primitive {
 public:
  Primitive(dnnl::primitive primitive, const fluid::Tensor& x, const memory::desc& order)
      : primitive_(std::move(primitive)), stream_(engine()) {
    memory& source = add(DNNL_ARG_SRC, order);
    std::memcpy(source.get_data_handle(), x.data<float>(), order.get_size());
    add(DNNL_ARG_DST, order);
  }
  // Another operand, of ones.
  memory& add(int argument, const memory::desc& order) {
    memory& operand = arguments_.insert_or_assign(argument, memory(order, engine())).first->second;
    std::fill_n(static_cast<float*>(operand.get_data_handle()), order.get_size() / sizeof(float),
                1.0f);
    return operand;
  }
  void run() {
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  std::unordered_map<int, memory> arguments_;
};

constexpr auto kTraining = dnnl::prop_kind::forward_training;
const auto kScaleAndShift =
    dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;

#if DNNL_VERSION_MAJOR >= 3
memory::dims dims_of(const memory::desc& x) {
  return x.get_dims();
}
dnnl::primitive softmax_of(const memory::desc& x) {
  return dnnl::softmax_forward(
      {engine(), kTraining, dnnl::algorithm::softmax_accurate, x, x, x.get_ndims() - 1});
}
template <class Norm>
dnnl::primitive norm_of(const memory::desc& x) {
  return Norm({engine(), kTraining, x, x, 1e-5f, kScaleAndShift});
}
#else
memory::dims dims_of(const memory::desc& x) {
  return x.dims();
}
dnnl::primitive softmax_of(const memory::desc& x) {
  return dnnl::softmax_forward({{kTraining, x, x.data.ndims - 1}, engine()});
}
template <class Norm>
dnnl::primitive norm_of(const memory::desc& x) {
  return Norm({{kTraining, x, 1e-5f, kScaleAndShift}, engine()});
}
#endif

using ByHand = std::function<Primitive(const fluid::Tensor& x, const memory::desc& order)>;

// The first order is ours; of several, the one that serves the library best counts.
Row against_onednn(const Rounds& rounds, const std::vector<memory::desc>& orders,
                   const Op::Build& build, const ByHand& by_hand) {
  omp_set_num_threads(1);
  const fluid::Tensor x = numbers(fluid::Shape(dims_of(orders.front())));
  Op op(x, build);
  std::vector<Primitive> primitives;
  std::vector<double> times;
  for (const memory::desc& order : orders) {
    primitives.push_back(by_hand(x, order));
    times.push_back(microseconds([&] { primitives.back().run(); }));
  }
  const auto best = std::min_element(times.begin(), times.end()) - times.begin();
  Primitive& primitive = primitives[static_cast<size_t>(best)];
  Row row = {.unit = "us",
             .peer = "oneDNN by hand",
             .better = Better::kLower,
             .target = 1.0,
             .note = instruction_set() + ", processor time"};
  if (orders.size() > 1) {
    row.note += str_cat("; its values lie as suits it best, in the order of ours it takes ",
                        tools::significant(times.front()), " us");
  }
  row.take(rounds.pairs(
      kRounds, [&] { return microseconds([&] { op.run(); }); },
      [&] { return microseconds([&] { primitive.run(); }); }));
  return row;
}

Row softmax(const Rounds& rounds) {
  return against_onednn(
      rounds, {described({1024, 1000}, memory::format_tag::ab)},
      [](const fluid::Variable& x) { layers::softmax(x); },
      [](const fluid::Tensor& x, const memory::desc& order) {
        return Primitive(softmax_of(order), x, order);
      });
}

// With statistics of `groups`, which are results, too.
template <class Norm>
ByHand norm(int64_t channels, int64_t groups) {
  return [=](const fluid::Tensor& x, const memory::desc& order) {
    Primitive primitive(norm_of<Norm>(order), x, order);
    for (const int argument : {DNNL_ARG_SCALE, DNNL_ARG_SHIFT}) {
      primitive.add(argument, described({channels}, memory::format_tag::a));
    }
    for (const int argument : {DNNL_ARG_MEAN, DNNL_ARG_VARIANCE}) {
      primitive.add(argument, described({groups}, memory::format_tag::a));
    }
    return primitive;
  };
}

Row layer_norm(const Rounds& rounds) {
  return against_onednn(
      rounds, {described({4096, 512}, memory::format_tag::ab)},
      [](const fluid::Variable& x) { layers::layer_norm(x); },
      norm<dnnl::layer_normalization_forward>(512, 4096));
}

Row batch_norm(const Rounds& rounds) {
  using Tag = memory::format_tag;
  std::vector<memory::desc> orders;
  for (const Tag tag : {Tag::nchw, Tag::nhwc, Tag::nChw8c, Tag::nChw16c}) {
    orders.push_back(described({64, 64, 16, 16}, tag));
  }
  return against_onednn(
      rounds, orders, [](const fluid::Variable& x) { layers::batch_norm(x); },
      norm<dnnl::batch_normalization_forward>(64, 64));
}

Row lookup(const Rounds& rounds) {
  constexpr int64_t kIds = 100000;
  constexpr int64_t kHeight = 1 << 20;
  constexpr int64_t kWidth = 64;
  fluid::Tensor ids(fluid::DType::kInt64, {kIds, 1});
  for (size_t i = 0; i < kIds; ++i) ids.data<int64_t>()[i] = drawn(i) % kHeight;
  Op op(ids, [](const fluid::Variable& x) {
    layers::embedding(x, {kHeight, kWidth}, {.param_attr = {.name = "table"}});
  });
  const float* table = op.variable("table").data<float>();
  std::vector<float> rows(kIds * kWidth);
  const auto by_hand = [&] {
    constexpr int64_t kAhead = 32;
    constexpr size_t kBytes = kWidth * sizeof(float);
    const auto* const at = ids.data<int64_t>();
    for (int64_t i = 0; i < kIds; ++i) {
      if (i + kAhead < kIds) prefetch(table + at[i + kAhead] * kWidth, kBytes);
      std::memcpy(rows.data() + i * kWidth, table + at[i] * kWidth, kBytes);
    }
  };
  Row row = {.unit = "us",
             .peer = "memcpy of each row, the next ones prefetched",
             .better = Better::kLower,
             .kind = BenchPeer::kLimit,
             .target = 0.9,
             .note = instruction_set() + ", processor time"};
  row.take(rounds.pairs(
      kRounds, [&] { return microseconds([&] { op.run(); }); },
      [&] { return microseconds(by_hand); }));
  return row;
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  using namespace fleet::benchmarks;
  return bench_main(argc, argv, "Single ops against those of another library, and by hand.",
                    {{"softmax", softmax},
                     {"layer_norm", layer_norm},
                     {"batch_norm", batch_norm},
                     {"lookup", lookup}});
}
