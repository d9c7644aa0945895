#include "tests/testing/nets/growing_net.h"

#include <gtest/gtest.h>

#include "base/hash.h"
#include "base/strings.h"
#include "fluid/program/default_programs.h"

namespace fleet::testing {
namespace {

namespace layers = fluid::layers;
using fluid::tables::GrowingTable;

constexpr int kSamples = 24;

}  // namespace

const std::vector<std::string> kTables = {"users", "items"};

GrowingNet::GrowingNet(const GrowingNetOptions& options) {
  const fluid::ProgramGuard programs(main_, startup_);
  const fluid::unique_name::Guard names;
  main_.set_random_seed(5);
  startup_.set_random_seed(5);
  std::vector<fluid::Variable> ids;
  for (const char* name : {"a", "b", "c"}) {
    ids.push_back(layers::data(name, {1}, fluid::DType::kInt64));
  }
  fluid::SparseEmbeddingOptions table{.entry = options.entry,
                                      .param_attr = {.name = kTables[0]},
                                      .fields = options.fields,
                                      .memory = options.memory,
                                      .deltas = options.deltas};
  has_shows_ = options.show_threshold.has_value();
  if (has_shows_) {
    table.entry = fluid::ShowClickEntry{.show = layers::data("show", {1}),
                                        .click = layers::data("click", {1}, fluid::DType::kInt64),
                                        .threshold = *options.show_threshold};
  }
  auto rows = layers::sparse_embedding({ids[0], ids[1]}, 6, table);
  table.param_attr.name = kTables[1];
  table.padding_idx = -1;
  rows.push_back(layers::sparse_embedding(ids[2], 3, table));
  const auto out = layers::fc(layers::concat(rows, 1), 1);
  const auto loss = layers::mean(layers::square_error_cost(out, layers::data("label", {1})));
  loss_ = loss.name();
  options.minimize(loss);
}

TrainingTask GrowingNet::task(int steps) const {
  TrainingTask task{.main = &main_, .startup = &startup_, .loss = loss_, .steps = steps};
  task.feed = has_shows_ ? feed_with_shows : feed;
  return task;
}

fluid::Feed GrowingNet::feed(int step, int begin, int end, int parts) {
  fluid::Feed feed;
  const int first = kSamples * begin / parts;
  const int last = kSamples * end / parts;
  for (const char* name : {"a", "b", "c"}) {
    std::vector<int64_t> ids;
    for (int row = first; row < last; ++row) {
      const uint64_t draw = mix64(static_cast<uint64_t>(step * kSamples + row) * 8 +
                                  static_cast<uint64_t>(name[0] - 'a'));
      const bool often = draw % 3 != 0;
      ids.push_back(often ? static_cast<int64_t>(draw / 3 % 7) - 2
                          : static_cast<int64_t>(mix64(draw)));
    }
    feed.emplace_back(name, fluid::Tensor::from(ids, {last - first, 1}));
  }
  std::vector<float> labels;
  for (int row = first; row < last; ++row) {
    labels.push_back(static_cast<float>(mix64(static_cast<uint64_t>(row)) % 100) / 50 - 1);
  }
  feed.emplace_back("label", fluid::Tensor::from(labels, {last - first, 1}));
  return feed;
}

fluid::Feed GrowingNet::feed_with_shows(int step, int begin, int end, int parts) {
  fluid::Feed all = feed(step, begin, end, parts);
  std::vector<float> shows;
  std::vector<int64_t> clicks;
  for (int row = kSamples * begin / parts; row < kSamples * end / parts; ++row) {
    const uint64_t draw = mix64(static_cast<uint64_t>(step * kSamples + row) + 99);
    shows.push_back(static_cast<float>(1 + draw % 3));
    clicks.push_back(draw / 3 % 4 == 0 ? 1 : 0);
  }
  const auto count = static_cast<int64_t>(shows.size());
  all.emplace_back("show", fluid::Tensor::from(shows, {count, 1}));
  all.emplace_back("click", fluid::Tensor::from(clicks, {count, 1}));
  return all;
}

void add_rows(const std::string& name, const fluid::tables::SharedTable& table, Rows& rows) {
  table.reading([&](const GrowingTable& all) {
    all.scan(0, fluid::tables::kBuckets, [&](const fluid::tables::RowView& row) {
      auto& floats = rows[{name, row.key}];
      EXPECT_TRUE(floats.empty()) << "two servers have row " << row.key;
      floats.assign(row.values.begin(), row.values.end());
      floats.insert(floats.end(), row.states.begin(), row.states.end());
      if (row.show != 0) floats.insert(floats.end(), {row.show, row.click});
    });
  });
}

Outcome train_alone(const GrowingNet& net, int shards, int steps) {
  Outcome outcome;
  fluid::Executor executor(fluid::CPUPlace(), {.logical_shards = shards});
  executor.run(net.startup());
  for (int step = 0; step < steps; ++step) {
    const auto fetched =
        executor.run(net.main(), net.own_feed(step, 0, shards, shards), {net.loss()});
    outcome.losses.push_back(fetched.front().item<float>());
  }
  for (const std::string& name : kTables) {
    add_rows(name, *fluid::growing_table(executor.scope(), name), outcome.rows);
  }
  outcome.persistables = values_of(net.main(), executor.scope(), false);
  return outcome;
}

Rows initial_rows(const GrowingNet& net, const Rows& like) {
  Rows initial;
  fluid::Executor executor;
  executor.run(net.startup());
  for (const auto& [key, floats] : like) {
    const auto& [name, id] = key;
    auto& values = initial[key];
    fluid::growing_table(executor.scope(), name)->reading([&, id = id](const GrowingTable& table) {
      values.resize(table.options().width);
      table.find(std::vector{id}, values.data(), GrowingTable::Missing::kInitial);
    });
  }
  return initial;
}

void ServerTables::keep(fluid::Scope& scope) {
  const std::lock_guard lock(mutex_);
  for (const std::string& name : kTables) {
    tables_.emplace_back(name, fluid::growing_table(scope, name));
  }
}

Rows ServerTables::rows() const {
  Rows rows;
  for (const auto& [name, table] : tables_) add_rows(name, *table, rows);
  return rows;
}

uint64_t ServerTables::sum(uint64_t fluid::tables::TableStatistics::*number) const {
  uint64_t all = 0;
  for (const auto& [name, table] : tables_) all += table->statistics().*number;
  return all;
}

}  // namespace fleet::testing
