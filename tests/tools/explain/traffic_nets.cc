#include "tests/tools/explain/traffic_nets.h"

#include <gtest/gtest.h>

#include "base/strings.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"

namespace fleet::explain {
namespace {

namespace layers = fluid::layers;

constexpr int64_t kFeatures = 64;
constexpr int64_t kWords = 4;
// Ids of a step are this far apart, and it divides the table and its parts on up to three servers.
constexpr int64_t kGap = 24;
constexpr int64_t kServers = 6;  // what numbers of servers divide
constexpr int64_t kClasses = 16;

fluid::Tensor constant(int64_t rows, int64_t width) {
  return fluid::Tensor::from(std::vector<float>(static_cast<size_t>(rows * width), 0.5F),
                             {rows, width});
}

fluid::Variable look_up(const std::string& ids, int64_t height, bool distributed) {
  const auto words = layers::data(ids, {kWords, 1}, fluid::DType::kInt64);
  return layers::embedding(
      words, {height, kFeatures},
      {.is_sparse = true, .is_distributed = distributed, .param_attr = {.name = "table"}});
}

// Spread over a table of `height` rows. Their remainders by the number of servers follow each
// other, and steps that follow each other have ids of their own.
fluid::Tensor spread_ids(int step, int64_t rows, int64_t height, int64_t begin = 0) {
  const int64_t count = rows * kWords;
  const int64_t shift = kServers * (step % (kGap / kServers));
  std::vector<int64_t> ids;
  ids.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(i * (height / count) + begin + i % kServers + shift);
  }
  return fluid::Tensor::from(ids, {rows, kWords, 1});
}

void minimize(const fluid::Variable& cost, const std::optional<fluid::Penalty>& decay) {
  fluid::optimizer::SGD({.learning_rate = 0.1, .regularization = decay}).minimize(cost);
}

void build_lookups(TrafficNet& net, Rows kind, const std::optional<fluid::Penalty>& decay) {
  const bool two = kind == Rows::kTwoLookups;
  const int64_t height = net.rows * kWords * kGap * (two ? 2 : 1);
  const auto first = look_up("ids", height, kind == Rows::kDistributed);
  const auto sum = two ? layers::elementwise_add(first, look_up("more", height, false)) : first;
  const auto cost = layers::mean(layers::fc(sum, 10));
  minimize(cost, decay);
  net.loss = cost.name();
  net.feed = [=](int step, int64_t rows) {
    fluid::Feed feed{{"ids", spread_ids(step, rows, height)}};
    if (two) feed.emplace_back("more", spread_ids(step, rows, height, kGap));
    return feed;
  };
}

// Labels of which every node of the tree is on a path, and so much noise that it has every class.
void build_losses(TrafficNet& net, Rows kind, const std::optional<fluid::Penalty>& decay) {
  const auto x = layers::data("x", {kFeatures});
  const auto label = layers::data("label", {1}, fluid::DType::kInt64);
  const auto hidden = layers::fc(x, kFeatures, {.act = "tanh"});
  const auto cost = layers::mean(
      kind == Rows::kNce
          ? layers::nce(hidden, label, kClasses, {.num_neg_samples = 200, .is_sparse = true})
          : layers::hsigmoid(hidden, label, kClasses,
                             {.is_sparse = true, .rows_without_paths = true}));
  minimize(cost, decay);
  net.loss = cost.name();
  net.rows = kClasses;
  net.feed = [](int, int64_t rows) {
    std::vector<int64_t> labels;
    labels.reserve(static_cast<size_t>(rows));
    for (int64_t i = 0; i < rows; ++i) labels.push_back(i * (kClasses / rows));
    return fluid::Feed{{"x", constant(rows, kFeatures)},
                       {"label", fluid::Tensor::from(labels, {rows, 1})}};
  };
}

}  // namespace

testing::TrainingTask TrafficNet::task(int steps) const {
  testing::TrainingTask task{.main = &main, .startup = &startup, .loss = loss, .steps = steps};
  task.feed = [this](int step, int begin, int end, int parts) {
    return feed(step, rows / parts * (end - begin));
  };
  return task;
}

TrafficNet dense_net(const DenseNetOptions& options) {
  TrafficNet net;
  const fluid::ProgramGuard programs(net.main, net.startup);
  const fluid::unique_name::Guard names;
  const auto x = layers::data("x", {kFeatures});
  auto hidden = layers::fc(x, 300, {.act = "tanh"});
  if (options.statistics) hidden = layers::batch_norm(hidden);
  const auto cost = layers::mean(layers::fc(hidden, 10));
  if (options.decays) {
    fluid::optimizer::Momentum(
        {.learning_rate = layers::exponential_decay(0.1, 10, 0.9), .momentum = 0.9})
        .minimize(cost);
  } else {
    fluid::optimizer::Momentum({.learning_rate = 0.1, .momentum = 0.9}).minimize(cost);
  }
  net.loss = cost.name();
  net.feed = [](int, int64_t rows) { return fluid::Feed{{"x", constant(rows, kFeatures)}}; };
  return net;
}

TrafficNet rows_net(Rows rows, const std::optional<fluid::Penalty>& decay) {
  TrafficNet net;
  const fluid::ProgramGuard programs(net.main, net.startup);
  const fluid::unique_name::Guard names;
  const bool losses = rows == Rows::kNce || rows == Rows::kHsigmoid;
  losses ? build_losses(net, rows, decay) : build_lookups(net, rows, decay);
  return net;
}

std::vector<ServerBytes> bytes_per_step(const std::vector<testing::ThreadOutcome::Server>& few,
                                        const std::vector<testing::ThreadOutcome::Server>& many,
                                        int steps) {
  std::vector<ServerBytes> bytes;
  bytes.reserve(many.size());
  for (size_t i = 0; i < many.size(); ++i) {
    bytes.push_back({static_cast<double>(many[i].bytes_in - few[i].bytes_in) / steps,
                     static_cast<double>(many[i].bytes_out - few[i].bytes_out) / steps});
  }
  return bytes;
}

void expect_bytes(const Explanation& told, const std::vector<ServerBytes>& measured) {
  ASSERT_EQ(told.servers.size(), measured.size());
  double total = 0;
  for (size_t i = 0; i < measured.size(); ++i) {
    EXPECT_EQ(told.servers[i].bytes_in, measured[i].in) << "server " << i;
    EXPECT_EQ(told.servers[i].bytes_out, measured[i].out) << "server " << i;
    total += measured[i].in + measured[i].out;
  }
  EXPECT_EQ(told.traffic.total, total);
}

}  // namespace fleet::explain
