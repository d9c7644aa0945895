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
fluid::SelectedRows rows_of(std::vector<int64_t> numbers, std::vector<float> values,
                            int64_t height = kHeight) {
  fluid::SelectedRows rows;
  rows.rows = std::move(numbers);
  rows.height = height;
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
            std::shared_ptr<const SyncServerRules> rules = nullptr,
            uint64_t window_bytes = SyncServerOptions().window_bytes, int64_t height = kHeight)
      : gradient_(rows_of({}, {}, height)),
        core(options(workers, shards, std::move(rules), window_bytes, height), *this) {}

  // A gradient, piece by piece; the status of the first refusal.
  Status push(uint32_t worker, uint64_t step, ShardRange node, const fluid::SelectedRows& rows,
              std::optional<uint64_t> count = {}, uint64_t session = 0) {
    const Buffer bytes = row_payload(rows, rows.value.dtype());
    const Sender sender{worker, session == 0 ? worker + 1 : session};
    PieceKey key = key_of(step, node, count.value_or(rows.rows.size()));
    for (; key.piece < std::max(1U, pieces_of(bytes.size())); ++key.piece) {
      Status status = push_piece(sender, key, bytes);
      if (!status.ok()) return status;
    }
    return {};
  }
  Status push(uint32_t worker, const fluid::SelectedRows& rows, uint64_t step = 1) {
    const int shard = static_cast<int>(worker);
    return push(worker, step, {shard, shard + 1}, rows);
  }

  // A worker asks to send so many rows for its shard; of step 1.
  Status ask(uint32_t worker, uint64_t rows, uint64_t session = 0) {
    const int shard = static_cast<int>(worker);
    return core.credit({.session = session == 0 ? worker + 1 : session,
                        .request = 1,
                        .worker = worker,
                        .step = 1,
                        .rows = key_of(1, {shard, shard + 1}, rows)});
  }
  // Nothing comes from it in step 1 but what did or was asked for.
  Status over(uint32_t worker) {
    PieceKey key{.step = 1, .variable = kNoVariables};
    key.rows = 0;
    return core.credit(
        {.session = worker + 1, .request = 2, .worker = worker, .step = 1, .rows = key});
  }

  std::vector<std::string> take() { return std::exchange(log_, {}); }
  std::vector<uint32_t> take_granted() { return std::exchange(granted_, {}); }
  const fluid::SelectedRows& sum() const { return std::get<fluid::SelectedRows>(gradient_); }

 private:
  static PieceKey key_of(uint64_t step, ShardRange node, uint64_t rows) {
    PieceKey key{step, 0, 0, static_cast<uint32_t>(node.begin), static_cast<uint32_t>(node.end)};
    key.rows = rows;
    return key;
  }

  Status push_piece(const Sender& sender, const PieceKey& key, const Buffer& bytes) {
    const uint64_t size = bytes.size() == 0 ? 0 : piece_bytes(bytes.size(), key.piece);
    transport::MutableBytes payload;
    if (size > 0) {
      const auto target = core.prepare_push(sender, key, size);
      if (!target.refusal.ok()) return target.refusal;
      if (!target.discarded) {
        payload = target.memory;
        std::memcpy(payload.data(), bytes.data() + piece_offset(key.piece), size);
      }
    }
    return core.push(sender, key, payload);
  }

  SyncServerOptions options(uint32_t workers, uint32_t shards,
                            std::shared_ptr<const SyncServerRules> rules, uint64_t window_bytes,
                            int64_t height) {
    SyncServerOptions options;
    options.window_bytes = window_bytes;
    options.workers = workers;
    options.shards = shards;
    options.rules = std::move(rules);
    options.slices = {{.bytes = static_cast<uint64_t>(height) * kWidth * sizeof(float),
                       .dtype = fluid::DType::kFloat32,
                       .rows = true,
                       .height = height,
                       .row_bytes = kWidth * sizeof(float)}};
    options.gradients = {&gradient_};
    return options;
  }

  void begin_step(uint64_t) override {}
  bool update(uint32_t, const StepUpdate& update) override {
    log_.push_back(str_cat("update at ", update.step, " of ", update.shards));
    return true;
  }
  void answer(const ServerAnswer& answer) override { granted_.push_back(answer.worker); }
  void step_closed(uint64_t step) override { log_.push_back(str_cat("closed ", step)); }
  void all_complete() override {}

  std::vector<std::string> log_;
  std::vector<uint32_t> granted_;  // workers
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

// A row takes 16 bytes: each of two workers may send two without asking.
TEST(RowGradients, AreLetInWhenTheServerHasRoom) {
  RowServer server(2, 2, nullptr, 128);
  EXPECT_EQ(server.core.free_row_bytes(), 32U);
  const auto three = rows_of({1, 2, 3}, {1, 1, 1});
  EXPECT_THAT(server.push(1, three).to_string(), HasSubstr("before the server let it in"));
  ASSERT_TRUE(server.ask(1, 3).ok());
  EXPECT_THAT(server.take_granted(), ElementsAre(1));
  EXPECT_THAT(server.ask(1, 2).to_string(), HasSubstr("disagree"));
  ASSERT_TRUE(server.push(1, three).ok());
  const auto four = rows_of({1, 2, 3, 4}, {1, 1, 1, 1});
  ASSERT_TRUE(server.ask(0, 4).ok());
  EXPECT_THAT(server.take_granted(), ElementsAre(0)) << "it is its turn";
  ASSERT_TRUE(server.push(0, four).ok());
  EXPECT_THAT(server.take(), ElementsAre("update at 1 of 2"));
  EXPECT_THAT(server.sum().rows, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(server.ask(0, 11).to_string(), HasSubstr("disagree"));
  ASSERT_TRUE(server.ask(0, 4).ok());
  EXPECT_THAT(server.take_granted(), ElementsAre(0)) << "asked again, as an answer was lost";
}

TEST(RowGradients, ThatDoNotComeHoldNobodyUp) {
  RowServer server(3, 3, nullptr, 60);
  ASSERT_TRUE(server.ask(1, 3).ok());
  ASSERT_TRUE(server.ask(2, 3).ok());
  EXPECT_THAT(server.take_granted(), ElementsAre());
  ASSERT_TRUE(server.over(1).ok());
  EXPECT_THAT(server.take_granted(), ElementsAre(1)) << "it has asked for its gradient before";
  ASSERT_TRUE(server.over(0).ok());
  EXPECT_THAT(server.take_granted(), ElementsAre(0, 1));
  const auto rows = rows_of({1, 2, 3}, {1, 1, 1});
  ASSERT_TRUE(server.push(1, rows).ok());
  EXPECT_THAT(server.take_granted(), ElementsAre(2));
  ASSERT_TRUE(server.push(2, rows).ok());
  EXPECT_THAT(server.take(), ElementsAre("update at 1 of 2"));
}

TEST(RowGradients, AreAskedForAgainOverANewConnection) {
  RowServer server(2, 2, nullptr, 60);
  ASSERT_TRUE(server.ask(1, 3).ok());
  ASSERT_TRUE(server.ask(1, 3, 50).ok()) << "before the server knows that the old one is gone";
  server.core.drop_session(2);
  ASSERT_TRUE(server.ask(1, 3, 51).ok());
  server.core.drop_session(50);
  server.core.drop_session(51);
  ASSERT_TRUE(server.over(0).ok());
  EXPECT_THAT(server.take_granted(), ElementsAre(0)) << "nobody asks just now";
  ASSERT_TRUE(server.ask(1, 3, 52).ok());
  EXPECT_THAT(server.take_granted(), ElementsAre(1));
}

// 64 workers with 1 MB each, the even ones first, one of them silent until all others wait.
TEST(RowGradients, OfManyWorkersTakeBoundedMemory) {
  constexpr uint32_t kWorkers = 64;
  constexpr uint64_t kWindow = uint64_t{32} * 1024 * 1024;
  constexpr int64_t kRows = 65536;
  RowServer server(kWorkers, kWorkers, nullptr, kWindow, 2 * kRows);
  std::vector<fluid::SelectedRows> gradients;
  for (const int64_t first : {0, 1}) {  // even rows of one worker, odd ones of the next
    std::vector<int64_t> numbers;
    for (int64_t i = 0; i < kRows; ++i) numbers.push_back(2 * i + first);
    gradients.push_back(rows_of(numbers, std::vector<float>(kRows, 1), 2 * kRows));
  }
  uint64_t most = 0;
  std::vector<bool> sent(kWorkers, false);
  const auto send_what_is_let_in = [&] {
    for (auto granted = server.take_granted(); !granted.empty(); granted = server.take_granted()) {
      for (const uint32_t worker : granted) {
        sent[worker] = true;
        ASSERT_TRUE(server.push(worker, gradients[worker / 2 % 2]).ok());
        most = std::max(most, server.core.held_bytes());
      }
    }
  };
  for (const uint32_t first : {0U, 1U}) {
    for (uint32_t worker = first; worker < kWorkers; worker += 2) {
      if (worker == 2) continue;
      ASSERT_TRUE(server.ask(worker, kRows).ok());
      send_what_is_let_in();
    }
  }
  EXPECT_LT(std::count(sent.begin(), sent.end(), true), 32) << "nobody has to wait";
  ASSERT_TRUE(server.ask(2, kRows).ok());
  send_what_is_let_in();
  EXPECT_THAT(server.take(), ElementsAre("update at 1 of 64"));
  const uint64_t slice = gradients[0].value.bytes() * 2;
  EXPECT_LE(most, slice + kWindow);
  EXPECT_EQ(values_of(server.sum()).front(), 32);
  EXPECT_EQ(values_of(server.sum()).back(), 64);
  EXPECT_EQ(server.core.held_bytes(), 0U);
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
