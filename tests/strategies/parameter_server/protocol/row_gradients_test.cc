// Sparse gradients in the state machine of a synchronous server, and the sums that workers make of
// them.
#include <algorithm>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <vector>

#include "base/strings.h"
#include "strategies/parameter_server/protocol/partial_row_sum.h"
#include "strategies/parameter_server/protocol/row_payload.h"
#include "strategies/parameter_server/protocol/sync_server.h"

namespace fleet::strategies {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kHeight = 10;
constexpr int64_t kWidth = 2;

// A row is its number, `value`, and `value` + 1.
fluid::SelectedRows rows_of(std::vector<int64_t> numbers, std::vector<float> values) {
  fluid::SelectedRows rows;
  rows.rows = std::move(numbers);
  rows.height = kHeight;
  rows.value =
      fluid::Tensor(fluid::DType::kFloat32, {static_cast<int64_t>(rows.rows.size()), kWidth});
  for (size_t i = 0; i < values.size(); ++i) {
    rows.value.data<float>()[2 * i] = values[i];
    rows.value.data<float>()[2 * i + 1] = values[i] + 1;
  }
  return rows;
}

std::vector<float> values_of(const fluid::SelectedRows& rows) {
  return {rows.value.values<float>().begin(), rows.value.values<float>().end()};
}

class RowServer : private SyncServerSink {
 public:
  RowServer(uint32_t workers, uint32_t shards,
            std::shared_ptr<const SyncServerRules> rules = nullptr)
      : gradient_(rows_of({}, {})), core(options(workers, shards, std::move(rules)), *this) {}

  // One piece of a gradient, its bytes whole in the payload; the status of the first refusal.
  Status push(uint32_t worker, uint64_t step, ShardRange node, const fluid::SelectedRows& rows,
              std::optional<uint64_t> count = {}, uint64_t session = 0) {
    const Buffer bytes = row_payload(rows);
    const Sender sender{worker, session == 0 ? worker + 1 : session};
    PieceKey key{step, 0, 0, static_cast<uint32_t>(node.begin), static_cast<uint32_t>(node.end)};
    key.rows = count.value_or(rows.rows.size());
    transport::MutableBytes payload;
    if (bytes.size() > 0) {
      const auto target = core.prepare_push(sender, key, bytes.size());
      if (!target.refusal.ok()) return target.refusal;
      if (!target.discarded) {
        payload = target.memory;
        std::memcpy(payload.data(), bytes.data(), bytes.size());
      }
    }
    return core.push(sender, key, payload);
  }
  Status push(uint32_t worker, const fluid::SelectedRows& rows, uint64_t step = 1) {
    const int shard = static_cast<int>(worker);
    return push(worker, step, {shard, shard + 1}, rows);
  }

  std::vector<std::string> take() { return std::exchange(log_, {}); }
  const fluid::SelectedRows& sum() const { return std::get<fluid::SelectedRows>(gradient_); }

 private:
  SyncServerOptions options(uint32_t workers, uint32_t shards,
                            std::shared_ptr<const SyncServerRules> rules) {
    SyncServerOptions options;
    options.workers = workers;
    options.shards = shards;
    options.rules = std::move(rules);
    options.slices = {{.bytes = kHeight * kWidth * sizeof(float),
                       .dtype = fluid::DType::kFloat32,
                       .rows = true,
                       .height = kHeight,
                       .row_bytes = kWidth * sizeof(float)}};
    options.gradients = {&gradient_};
    return options;
  }

  void begin_step(uint64_t) override {}
  bool update(uint32_t, const StepUpdate& update) override {
    log_.push_back(str_cat("update at ", update.step, " of ", update.shards));
    return true;
  }
  void answer(const ServerAnswer&) override {}
  void step_closed(uint64_t step) override { log_.push_back(str_cat("closed ", step)); }
  void all_complete() override {}

  std::vector<std::string> log_;
  fluid::Value gradient_;

 public:
  SyncServer core;
};

TEST(RowGradients, AreAddedRowByRowWhenEveryContributorsAreThere) {
  RowServer server(2, 2);
  ASSERT_TRUE(server.push(0, rows_of({1, 4}, {10, 20})).ok());
  EXPECT_TRUE(server.take().empty());
  ASSERT_TRUE(server.push(1, rows_of({4, 9}, {1, 2})).ok());
  EXPECT_THAT(server.take(), ElementsAre("update at 1 of 2"));
  EXPECT_THAT(server.sum().rows, ElementsAre(1, 4, 9));
  EXPECT_THAT(values_of(server.sum()), ElementsAre(10, 11, 21, 23, 2, 3));
}

TEST(RowGradients, FollowTheTreeWhateverTheOrderOfArrival) {
  // (1e8 + 1) + (-1e8 + 1) is 0 in float32 and not 2: the order shows.
  const std::vector<float> values{1e8F, 1, -1e8F, 1};
  std::vector<uint32_t> order{0, 1, 2, 3};
  const float tree = (values[0] + values[1]) + (values[2] + values[3]);
  do {
    RowServer server(4, 4);
    for (const uint32_t worker : order) {
      ASSERT_TRUE(server.push(worker, rows_of({7}, {values[worker]})).ok());
    }
    EXPECT_EQ(values_of(server.sum())[0], tree);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(RowGradients, ShowTheOrderOfArrivalUnderTheMutation) {
  struct Rules final : SyncServerRules {
    uint32_t place(uint32_t, uint32_t arrived) const override { return arrived; }
  };
  RowServer server(4, 4, std::make_shared<const Rules>());
  const std::vector<float> values{1e8F, 1, -1e8F, 1};
  for (const uint32_t worker : {0U, 2U, 1U, 3U}) {
    ASSERT_TRUE(server.push(worker, rows_of({7}, {values[worker]})).ok());
  }
  EXPECT_EQ(values_of(server.sum())[0], 2);
}

TEST(RowGradients, OfNoRowsCountAsContributions) {
  RowServer server(2, 2);
  ASSERT_TRUE(server.push(0, rows_of({}, {})).ok());
  ASSERT_TRUE(server.push(1, rows_of({}, {})).ok());
  EXPECT_THAT(server.take(), ElementsAre("update at 1 of 2"));
  EXPECT_TRUE(server.sum().rows.empty());
  ASSERT_TRUE(server.core.barrier(0, 1, 1).ok());
  ASSERT_TRUE(server.core.barrier(1, 1, 1).ok());
  EXPECT_THAT(server.take(), ElementsAre("closed 1"));
}

TEST(RowGradients, CountOnceHoweverOftenTheyCome) {
  RowServer server(2, 2);
  ASSERT_TRUE(server.push(0, rows_of({1}, {10})).ok());
  ASSERT_TRUE(server.push(0, 1, {0, 1}, rows_of({1}, {10}), {}, 77).ok());
  EXPECT_TRUE(server.take().empty());
  ASSERT_TRUE(server.push(1, rows_of({1}, {1})).ok());
  ASSERT_TRUE(server.push(1, rows_of({1}, {1})).ok());
  EXPECT_THAT(server.take(), ElementsAre("update at 1 of 2"));
  EXPECT_THAT(values_of(server.sum()), ElementsAre(11, 13));
  ASSERT_TRUE(server.core.barrier(0, 1, 1).ok());
  ASSERT_TRUE(server.core.barrier(1, 1, 1).ok());
  EXPECT_THAT(server.take(), ElementsAre("closed 1"));
  ASSERT_TRUE(server.push(0, rows_of({1}, {10})).ok());  // of the step before
  EXPECT_TRUE(server.take().empty());
}

TEST(RowGradients, OfTheWorkersThatAreLeftAreEnough) {
  RowServer server(2, 2);
  ASSERT_TRUE(server.push(0, rows_of({3}, {5})).ok());
  ASSERT_TRUE(server.core.complete(1, 0).ok());
  EXPECT_THAT(server.take(), ElementsAre("update at 1 of 1"));
  EXPECT_THAT(values_of(server.sum()), ElementsAre(5, 6));
}

TEST(RowGradients, ThatDoNotFitAreRefused) {
  RowServer server(2, 2);
  const auto refused = [&](const fluid::SelectedRows& rows, std::optional<uint64_t> count = {}) {
    return server.push(0, 1, {0, 1}, rows, count).to_string();
  };
  EXPECT_THAT(refused(rows_of({4, 1}, {1, 1})), HasSubstr("not strictly ascending"));
  EXPECT_THAT(refused(rows_of({4, 4}, {1, 1})), HasSubstr("not strictly ascending"));
  EXPECT_THAT(refused(rows_of({10}, {1})),
              HasSubstr("are not strictly ascending inside their slice"));
  EXPECT_THAT(refused(rows_of({-1}, {1})), HasSubstr("not strictly ascending"));
  EXPECT_THAT(refused(rows_of({1}, {1}), 11), HasSubstr("more rows than its slice"));
  EXPECT_THAT(refused(rows_of({1}, {1}), ~uint64_t{0}), HasSubstr("more rows than its slice"));
  EXPECT_THAT(refused(rows_of({1}, {1}), 2), HasSubstr("wrong size"));
  // A dense piece for a slice of rows.
  const PieceKey dense{1, 0, 0, 0, 1};
  EXPECT_FALSE(server.core.prepare_push({0, 1}, dense, 80).refusal.ok());
  // What was refused leaves no trace.
  ASSERT_TRUE(server.push(0, rows_of({1}, {10})).ok());
  ASSERT_TRUE(server.push(1, rows_of({1}, {1})).ok());
  EXPECT_THAT(values_of(server.sum()), ElementsAre(11, 13));
}

TEST(RowGradients, OfPiecesMustAgreeAboutTheirNumber) {
  RowServer server(2, 2);
  ASSERT_TRUE(server.push(0, rows_of({1}, {10})).ok());
  EXPECT_THAT(server.push(0, rows_of({1, 2}, {10, 3})).to_string(), HasSubstr("disagree"));
}

TEST(PartialRowSums, MergeEqualRowsAndAddShardsByTheTree) {
  PartialRowSums sums({{0, 4}});
  EXPECT_FALSE(sums.add(0, rows_of({5, 2, 5}, {1e8F, 1, 0})));
  EXPECT_FALSE(sums.add(1, rows_of({5}, {1})));
  EXPECT_FALSE(sums.add(2, rows_of({}, {})));
  const auto ready = sums.add(3, rows_of({2, 5}, {4, -1e8F}));
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->node, (ShardRange{0, 4}));
  EXPECT_THAT(ready->sum.rows, ElementsAre(2, 5));
  EXPECT_EQ(ready->sum.height, kHeight);
  EXPECT_EQ(values_of(ready->sum)[0], 5);
  EXPECT_EQ(values_of(ready->sum)[2], (1e8F + 1.0F) + -1e8F);
}

TEST(PartialRowSums, RefuseAShardOutOfTurn) {
  PartialRowSums sums({{0, 2}, {2, 3}});
  EXPECT_THROW(sums.add(1, rows_of({}, {})), UsageError);
  EXPECT_THROW(sums.add(7, rows_of({}, {})), UsageError);
  EXPECT_TRUE(sums.add(2, rows_of({1}, {1})));
}

TEST(RowPayload, CutsRowsBySections) {
  const auto part = rows_between(rows_of({7, 1, 4, 7}, {1, 2, 3, 4}), 4, 8);
  EXPECT_EQ(part.height, 4);
  EXPECT_THAT(part.rows, ElementsAre(3, 0, 3));
  EXPECT_THAT(values_of(part), ElementsAre(1, 2, 3, 4, 4, 5));
}

}  // namespace
}  // namespace fleet::strategies
