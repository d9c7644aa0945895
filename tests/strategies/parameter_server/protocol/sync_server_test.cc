#include "strategies/parameter_server/protocol/sync_server.h"

#include <algorithm>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/strings.h"

namespace fleet::strategies {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

// Keeps gradients in memory and writes down what it is told.
class RecordingSink final : public SyncServerSink {
 public:
  explicit RecordingSink(const std::vector<size_t>& elements) {
    for (const size_t count : elements) {
      values_.emplace_back(
          fluid::Tensor::zeros(fluid::DType::kFloat32, {static_cast<int64_t>(count)}));
    }
  }
  std::vector<fluid::Value*> gradients() {
    std::vector<fluid::Value*> gradients;
    for (fluid::Value& each : values_) gradients.push_back(&each);
    return gradients;
  }
  void begin_step(uint64_t step) override { log.push_back(str_cat("rate ", step)); }
  bool update(uint32_t slice, const StepUpdate& update) override {
    log.push_back(str_cat("update ", slice, " at ", update.step, " of ", update.shards));
    const auto values = std::get<fluid::Tensor>(values_[slice]).values<float>();
    sums[{slice, update.step}] = {values.begin(), values.end()};
    return true;
  }
  void answer(const ServerAnswer& answer) override {
    if (!answer.has_value && answer.variable != kNoVariables) {
      log.push_back(str_cat("grant ", answer.session, " ", answer.variable));
      granted[answer.worker] = answer.variable;
    } else if (answer.has_value) {
      log.push_back(str_cat("answer ", answer.session, " with ", answer.variable,
                            answer.last ? " last" : ""));
    } else {
      log.push_back(str_cat("answer ", answer.session, " empty"));
    }
  }
  void step_closed(uint64_t step) override { log.push_back(str_cat("closed ", step)); }
  void all_complete() override { log.push_back("complete"); }

  std::vector<std::string> take() { return std::exchange(log, {}); }

  std::vector<std::string> log;
  std::map<std::pair<uint32_t, uint64_t>, std::vector<float>> sums;
  std::map<uint32_t, uint32_t> granted;  // by worker

 private:
  std::vector<fluid::Value> values_;  // of gradients
};

SyncServerOptions options_for(uint32_t workers, uint32_t shards,
                              const std::vector<size_t>& elements) {
  SyncServerOptions options;
  options.workers = workers;
  options.shards = shards;
  for (const size_t count : elements) {
    options.slices.push_back({count * sizeof(float), fluid::DType::kFloat32});
  }
  return options;
}

struct Fixture {
  Fixture(uint32_t workers, uint32_t shards, const std::vector<size_t>& elements,
          std::shared_ptr<const SyncServerRules> rules = nullptr,
          uint64_t window_bytes = SyncServerOptions().window_bytes)
      : sink(elements),
        server(
            [&] {
              SyncServerOptions options = options_for(workers, shards, elements);
              options.gradients = sink.gradients();
              options.rules = std::move(rules);
              options.window_bytes = window_bytes;
              return options;
            }(),
            sink) {}

  // One whole piece from one session; true when its bytes were wanted.
  bool push(uint32_t worker, uint64_t step, uint32_t slice, ShardRange node,
            std::vector<float> values, uint32_t piece = 0, uint64_t session = 0) {
    const Sender sender{worker, session == 0 ? worker + 1 : session};
    const PieceKey key{step, slice, piece, static_cast<uint32_t>(node.begin),
                       static_cast<uint32_t>(node.end)};
    auto target = server.prepare_push(sender, key, values.size() * sizeof(float));
    EXPECT_TRUE(target.refusal.ok()) << target.refusal.to_string();
    if (!target.discarded) std::memcpy(target.memory.data(), values.data(), target.memory.size());
    EXPECT_TRUE(server.push(sender, key, target.memory).ok());
    return !target.discarded;
  }
  Status get_all(uint64_t session, uint64_t step) {
    GetCall call;
    call.session = session;
    call.request = 7;
    call.step = step;
    call.all = true;
    return server.get(std::move(call));
  }

  Status ask(uint32_t worker, uint64_t step, uint32_t known, uint32_t passed = 0) {
    return server.credit({worker + 1, 1, worker, step, 0, known, passed});
  }

  RecordingSink sink;
  SyncServer server;
};

TEST(SyncServer, ClosesAStepWhenEveryContributionAndBarrierIsThere) {
  Fixture f(2, 2, {1, 1});
  f.push(0, 1, 0, {0, 1}, {1});
  f.push(0, 1, 1, {0, 1}, {2});
  ASSERT_TRUE(f.server.barrier(0, 1, 2).ok());
  ASSERT_TRUE(f.get_all(10, 1).ok());
  EXPECT_THAT(f.sink.take(), IsEmpty());
  f.push(1, 1, 1, {1, 2}, {20});
  EXPECT_THAT(f.sink.take(), ElementsAre("rate 1", "update 1 at 1 of 2", "answer 10 with 1"));
  f.push(1, 1, 0, {1, 2}, {10});
  EXPECT_THAT(f.sink.take(), ElementsAre("update 0 at 1 of 2"));
  ASSERT_TRUE(f.server.barrier(1, 1, 2).ok());
  EXPECT_THAT(f.sink.take(), ElementsAre("answer 10 with 0 last", "closed 1"));
  EXPECT_EQ(f.sink.sums.at({0, 1})[0], 11);
  EXPECT_EQ(f.sink.sums.at({1, 1})[0], 22);
}

// A lane adds up the last piece, and another closes the step before the first can tell of it.
TEST(SyncServer, TakesNoNewsOfAStepThatIsClosed) {
  Fixture f(1, 1, {1});
  const Sender sender{0, 1};
  const PieceKey key{1, 0, 0, 0, 1};
  const float value = 3;
  const auto target = f.server.prepare_push(sender, key, sizeof value);
  std::memcpy(target.memory.data(), &value, sizeof value);
  const auto progress = f.server.sum(sender, key, target.memory);
  ASSERT_TRUE(progress.ok() && f.server.matters(progress.value()));
  ASSERT_TRUE(f.server.barrier(0, 1, 1).ok());
  EXPECT_THAT(f.sink.take(), ElementsAre("rate 1", "update 0 at 1 of 1", "closed 1"));
  EXPECT_EQ(f.sink.sums.at({0, 1})[0], 3);
  f.server.count(sender, key, progress.value());
  EXPECT_THAT(f.sink.take(), IsEmpty()) << "the slice of step 2 is not complete";
}

TEST(SyncServer, HearsOfEveryPieceOnceABarrierWaitsForSome) {
  Fixture f(2, 2, {1, 1});
  const auto sum = [&f](uint32_t slice) {
    const Sender sender{0, 1};
    const PieceKey key{1, slice, 0, 0, 1};
    const auto target = f.server.prepare_push(sender, key, sizeof(float));
    std::memset(target.memory.data(), 0, sizeof(float));
    const auto progress = f.server.sum(sender, key, target.memory);
    return progress.ok() && f.server.matters(progress.value());
  };
  EXPECT_FALSE(sum(0)) << "no slice is complete, and nobody waits";
  ASSERT_TRUE(f.server.barrier(0, 1, 2).ok());
  EXPECT_TRUE(sum(1));
}

TEST(SyncServer, WaitsForThePiecesThatABarrierCounts) {
  Fixture f(1, 1, {1, 1});
  ASSERT_TRUE(f.server.barrier(0, 1, 2).ok());
  f.push(0, 1, 0, {0, 1}, {1});
  EXPECT_EQ(f.server.step(), 0U);
  f.push(0, 1, 1, {0, 1}, {1});
  EXPECT_EQ(f.server.step(), 1U);
}

TEST(SyncServer, ClosesAStepTooEarlyUnderTheBarrierMutation) {
  struct Rules final : SyncServerRules {
    int64_t awaited(uint32_t announced) const override { return int64_t{announced} - 1; }
  };
  Fixture f(1, 1, {1, 1}, std::make_shared<const Rules>());
  ASSERT_TRUE(f.server.barrier(0, 1, 2).ok());
  f.push(0, 1, 0, {0, 1}, {1});
  EXPECT_EQ(f.server.step(), 1U);
}

TEST(SyncServer, SumsByShardIndexWhateverTheOrderOfArrival) {
  // (1e8 + 1) + (-1e8 + 1) is 0 in float32 and not 2: the order shows.
  const std::vector<float> values{1e8F, 1, -1e8F, 1};
  std::vector<uint32_t> order{0, 1, 2, 3};
  const float tree = (values[0] + values[1]) + (values[2] + values[3]);
  do {
    Fixture f(4, 4, {1});
    for (const uint32_t w : order) {
      const int shard = static_cast<int>(w);
      f.push(w, 1, 0, {shard, shard + 1}, {values[w]});
    }
    ASSERT_EQ(f.sink.sums.at({0, 1})[0], tree);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(SyncServer, DropsAContributionThatItHas) {
  Fixture f(2, 2, {1});
  EXPECT_TRUE(f.push(0, 1, 0, {0, 1}, {1}));
  EXPECT_FALSE(f.push(0, 1, 0, {0, 1}, {1}));
  EXPECT_FALSE(f.push(0, 1, 0, {0, 1}, {1}, 0, 99));
  f.push(1, 1, 0, {1, 2}, {10});
  ASSERT_TRUE(f.server.barrier(0, 1, 1).ok());
  ASSERT_TRUE(f.server.barrier(1, 1, 1).ok());
  EXPECT_EQ(f.server.step(), 1U);
  EXPECT_FALSE(f.push(0, 1, 0, {0, 1}, {1})) << "the step is over";
  EXPECT_EQ(f.sink.sums.at({0, 1})[0], 11);
}

TEST(SyncServer, TakesAPieceFromANewConnectionWhileAnOldOneIsInTheMiddleOfIt) {
  Fixture f(1, 1, {2});
  const PieceKey key{1, 0, 0, 0, 1};
  const auto old_target = f.server.prepare_push({0, 5}, key, 8);
  ASSERT_FALSE(old_target.discarded);
  EXPECT_TRUE(f.push(0, 1, 0, {0, 1}, {3, 4}, 0, 6));
  ASSERT_TRUE(f.server.barrier(0, 1, 1).ok());
  // The old connection's bytes now go where nobody looks.
  const std::vector<float> stale{8, 9};
  std::memcpy(old_target.memory.data(), stale.data(), 8);
  EXPECT_TRUE(f.push(0, 2, 0, {0, 1}, {5, 6}, 0, 6));
  EXPECT_TRUE(f.server.push({0, 5}, key, old_target.memory).ok());
  EXPECT_THAT(f.sink.sums.at({0, 1}), ElementsAre(3, 4));
  EXPECT_THAT(f.sink.sums.at({0, 2}), ElementsAre(5, 6));
}

TEST(SyncServer, WaitsAnewForWhatABrokenConnectionHalfSent) {
  Fixture f(1, 1, {2});
  const auto target = f.server.prepare_push({0, 5}, {1, 0, 0, 0, 1}, 8);
  ASSERT_FALSE(target.discarded);
  f.server.drop_session(5);
  EXPECT_TRUE(f.push(0, 1, 0, {0, 1}, {3, 4}, 0, 6));
  EXPECT_THAT(f.sink.sums.at({0, 1}), ElementsAre(3, 4));
}

TEST(SyncServer, AnswersTheStartUpGetAtOnce) {
  Fixture f(2, 2, {1, 1});
  ASSERT_TRUE(f.get_all(10, 0).ok());
  EXPECT_THAT(f.sink.take(), ElementsAre("answer 10 with 0", "answer 10 with 1 last"));
}

TEST(SyncServer, AnswersAGetThatWasSentAgainOnce) {
  Fixture f(1, 1, {1});
  ASSERT_TRUE(f.get_all(10, 1).ok());
  ASSERT_TRUE(f.get_all(10, 1).ok());
  f.push(0, 1, 0, {0, 1}, {1});
  ASSERT_TRUE(f.server.barrier(0, 1, 1).ok());
  EXPECT_THAT(f.sink.take(),
              ElementsAre("rate 1", "update 0 at 1 of 1", "answer 10 with 0 last", "closed 1"));
}

TEST(SyncServer, ForgetsTheGetsOfAClosedConnection) {
  Fixture f(1, 1, {1});
  ASSERT_TRUE(f.get_all(10, 1).ok());
  f.server.drop_session(10);
  f.push(0, 1, 0, {0, 1}, {1});
  ASSERT_TRUE(f.server.barrier(0, 1, 1).ok());
  EXPECT_THAT(f.sink.take(), ElementsAre("rate 1", "update 0 at 1 of 1", "closed 1"));
}

TEST(SyncServer, TakesPartInBarriersWithoutSlices) {
  Fixture f(2, 2, {});
  GetCall call;
  call.session = 10;
  call.step = 1;
  ASSERT_TRUE(f.server.barrier(0, 1, 0).ok());
  ASSERT_TRUE(f.server.get(call).ok());
  EXPECT_THAT(f.sink.take(), IsEmpty());
  ASSERT_TRUE(f.server.barrier(1, 1, 0).ok());
  EXPECT_THAT(f.sink.take(), ElementsAre("rate 1", "answer 10 empty", "closed 1"));
}

TEST(SyncServer, DividesByTheShardsThatContribute) {
  Fixture f(3, 4, {1});  // worker 0 has shards 0 and 1
  f.push(0, 1, 0, {0, 2}, {1});
  f.push(1, 1, 0, {2, 3}, {10});
  ASSERT_TRUE(f.server.barrier(0, 1, 1).ok());
  ASSERT_TRUE(f.server.barrier(1, 1, 1).ok());
  EXPECT_EQ(f.server.step(), 0U);
  ASSERT_TRUE(f.server.complete(2, 0).ok());
  EXPECT_THAT(f.sink.take(), ElementsAre("rate 1", "update 0 at 1 of 3", "closed 1"));
  EXPECT_EQ(f.sink.sums.at({0, 1})[0], 11);
}

TEST(SyncServer, IsCompleteWhenEveryWorkerIs) {
  Fixture f(2, 2, {1});
  ASSERT_TRUE(f.server.complete(0, 0).ok());
  ASSERT_TRUE(f.server.complete(0, 0).ok());
  EXPECT_FALSE(f.server.all_complete());
  f.push(1, 1, 0, {1, 2}, {10});
  ASSERT_TRUE(f.server.barrier(1, 1, 1).ok());
  ASSERT_TRUE(f.server.complete(1, 1).ok());
  EXPECT_TRUE(f.server.all_complete());
  EXPECT_THAT(f.sink.take(), ElementsAre("rate 1", "update 0 at 1 of 1", "closed 1", "complete"));
}

TEST(SyncServer, SumsLargeSlicesPieceByPiece) {
  const size_t elements = transport::kPieceBytes / sizeof(float);
  Fixture f(2, 2, {elements + 3});
  for (uint64_t step = 1; step <= 3; ++step) {
    const std::vector<float> first(elements, static_cast<float>(step));
    const std::vector<float> rest(3, 100.0F);
    f.push(0, step, 0, {0, 1}, rest, 1);
    f.push(0, step, 0, {0, 1}, first, 0);
    f.push(1, step, 0, {1, 2}, first, 0);
    f.push(1, step, 0, {1, 2}, rest, 1);
    ASSERT_TRUE(f.server.barrier(0, step, 2).ok());
    ASSERT_TRUE(f.server.barrier(1, step, 2).ok());
    const auto& sum = f.sink.sums.at({0, step});
    EXPECT_EQ(sum.front(), 2.0F * static_cast<float>(step));
    EXPECT_EQ(sum[elements - 1], 2.0F * static_cast<float>(step));
    EXPECT_EQ(sum.back(), 200.0F);
  }
}

TEST(SyncServer, RefusesWhatCannotBe) {
  Fixture f(2, 2, {1});
  const auto refused = [&](Sender sender, PieceKey key, uint64_t bytes) {
    return !f.server.prepare_push(sender, key, bytes).refusal.ok();
  };
  EXPECT_FALSE(refused({0, 1}, {1, 0, 0, 0, 1}, 4));
  EXPECT_TRUE(refused({0, 1}, {1, 1, 0, 0, 1}, 4)) << "an unknown slice";
  EXPECT_TRUE(refused({0, 1}, {1, 0, 1, 0, 1}, 4)) << "an unknown piece";
  EXPECT_TRUE(refused({0, 1}, {1, 0, 0, 1, 2}, 4)) << "another worker's shard";
  EXPECT_TRUE(refused({0, 1}, {1, 0, 0, 0, 2}, 4)) << "no node of a worker";
  EXPECT_TRUE(refused({0, 1}, {2, 0, 0, 0, 1}, 4)) << "a step ahead";
  EXPECT_TRUE(refused({0, 1}, {1, 0, 0, 0, 1}, 8)) << "a wrong size";
  EXPECT_FALSE(f.server.barrier(0, 3, 1).ok());
  EXPECT_FALSE(f.get_all(1, 2).ok());
  EXPECT_FALSE(f.server.complete(0, 5).ok());
}

TEST(SyncServer, BoundsTheGetsThatWaitOnOneConnection) {
  Fixture f(1, 1, {1});
  Status status;
  int taken = 0;
  for (uint64_t request = 1; request <= 1000; ++request) {
    GetCall call;
    call.session = 10;
    call.request = request;
    call.step = 1;
    call.all = true;
    status = f.server.get(std::move(call));
    taken += status.ok() ? 1 : 0;
  }
  EXPECT_EQ(taken, 64);
  EXPECT_EQ(status.code(), ErrorCode::kBadFrame);
}

// Two workers; the server has room for one piece of each. The last slice comes first.
TEST(SyncServer, LetsPiecesInAsItHasRoom) {
  Fixture f(2, 2, {4, 4, 4}, nullptr, 40);
  EXPECT_THAT(f.server.open_at_begin(), ElementsAre(1U));
  const PieceKey early{1, 1, 0, 0, 1};
  EXPECT_EQ(f.server.prepare_push({0, 1}, early, 16).refusal.code(), ErrorCode::kBadFrame);
  const std::vector<float> ones(4, 1);
  EXPECT_TRUE(f.push(0, 1, 2, {0, 1}, ones));
  ASSERT_TRUE(f.ask(0, 1, 1).ok());
  ASSERT_TRUE(f.ask(1, 1, 1).ok());
  EXPECT_THAT(f.sink.take(), IsEmpty());
  EXPECT_TRUE(f.push(1, 1, 2, {1, 2}, ones));
  EXPECT_THAT(f.sink.take(), ElementsAre("rate 1", "update 2 at 1 of 2", "grant 1 2", "grant 2 2"));
  ASSERT_TRUE(f.ask(1, 1, 1).ok());
  EXPECT_THAT(f.sink.take(), ElementsAre("grant 2 2")) << "known by now";
  EXPECT_FALSE(f.ask(0, 2, 1).ok()) << "a step ahead";
}

TEST(SyncServer, LetsMoreInWhenAWorkerHasPassedAPiece) {
  Fixture f(2, 2, {4, 4, 4}, nullptr, 40);
  const std::vector<float> ones(4, 1);
  // Worker 0 has nothing for slice 2, and worker 1 nothing for slice 1.
  ASSERT_TRUE(f.server.barrier(0, 1, 2).ok());
  ASSERT_TRUE(f.ask(0, 1, 1, 1).ok());
  EXPECT_TRUE(f.push(1, 1, 2, {1, 2}, ones));
  EXPECT_THAT(f.sink.take(), ElementsAre("rate 1", "update 2 at 1 of 1", "grant 1 2"));
  EXPECT_TRUE(f.push(0, 1, 1, {0, 1}, ones));
  ASSERT_TRUE(f.server.barrier(1, 1, 2).ok());
  ASSERT_TRUE(f.ask(1, 1, 1, 2).ok());
  EXPECT_EQ(f.sink.granted.at(1), 3U);
  EXPECT_TRUE(f.push(0, 1, 0, {0, 1}, ones));
  EXPECT_TRUE(f.push(1, 1, 0, {1, 2}, ones));
  EXPECT_EQ(f.server.step(), 1U);
  EXPECT_THAT(f.sink.sums.at({0, 1}), Each(2));
  EXPECT_THAT(f.sink.sums.at({1, 1}), Each(1));
  EXPECT_THAT(f.sink.sums.at({2, 1}), Each(1));
}

TEST(SyncServer, AnswersAtOnceWhoHasSentEverythingAndWhoIsLate) {
  Fixture f(2, 2, {4, 4, 4}, nullptr, 40);
  ASSERT_TRUE(f.ask(0, 1, 1, 3).ok());
  EXPECT_THAT(f.sink.take(), ElementsAre("grant 1 2")) << "who is left takes half the room";
  ASSERT_TRUE(f.ask(1, 1, 2).ok());
  EXPECT_THAT(f.sink.take(), IsEmpty());
  ASSERT_TRUE(f.server.barrier(0, 1, 0).ok());
  ASSERT_TRUE(f.server.barrier(1, 1, 0).ok());
  EXPECT_THAT(f.sink.take(), Contains("grant 2 3")) << "the step is over";
  ASSERT_TRUE(f.ask(1, 1, 1).ok());
  EXPECT_THAT(f.sink.take(), ElementsAre("grant 2 3"));
}

// 64 workers, in whatever order they come: contributions take no more than the window.
TEST(SyncServer, KeepsItsMemoryWithManyWorkers) {
  constexpr uint32_t kWorkers = 64;
  constexpr uint32_t kPieces = 40;
  constexpr uint64_t kWindow = uint64_t{32} * 1024 * 1024;
  const size_t elements = transport::kPieceBytes / sizeof(float);
  Fixture f(kWorkers, kWorkers, {kPieces * elements});
  std::vector<uint32_t> next(kWorkers, 0);
  std::vector<uint32_t> open(kWorkers, f.server.open_at_begin()[0]);
  std::vector<uint32_t> asked(kWorkers, 0);
  uint64_t most = 0;
  const auto send_what_it_may = [&](uint32_t worker) {
    const int shard = static_cast<int>(worker);
    while (next[worker] < open[worker]) {
      const float value = static_cast<float>(worker) + static_cast<float>(next[worker]);
      f.push(worker, 1, 0, {shard, shard + 1}, std::vector<float>(elements, value), next[worker]++);
      most = std::max(most, f.server.held_bytes());
    }
    if (open[worker] < kPieces && std::exchange(asked[worker], open[worker]) < open[worker]) {
      ASSERT_TRUE(f.ask(worker, 1, open[worker]).ok());
    }
    for (const auto& [who, granted] : std::exchange(f.sink.granted, {})) open[who] = granted;
  };
  const auto everyone_but = [&](uint32_t silent, uint32_t first) {
    for (uint32_t worker = first; worker < kWorkers; worker += 2) {
      if (worker != silent) send_what_it_may(worker);
    }
  };
  for (int round = 0; round < 100; ++round) {  // until nobody may send any more
    everyone_but(63, 0);
    everyone_but(63, 1);
  }
  EXPECT_EQ(f.server.prepare_push({63, 64}, {1, 0, kPieces - 1, 63, 64}, transport::kPieceBytes)
                .refusal.code(),
            ErrorCode::kBadFrame);
  for (int round = 0; next[63] < kPieces && round < 100; ++round) {
    send_what_it_may(63);
    everyone_but(63, 0);
    everyone_but(63, 1);
  }
  for (uint32_t worker = 0; worker < kWorkers; ++worker) {
    ASSERT_TRUE(f.server.barrier(worker, 1, kPieces).ok());
  }
  EXPECT_EQ(f.server.step(), 1U);
  EXPECT_LE(most, kWindow);
  EXPECT_GT(most, kWindow / 4) << "the window is used";
  const auto& sum = f.sink.sums.at({0, 1});
  EXPECT_EQ(sum.front(), 63 * 32);
  EXPECT_EQ(sum.back(), 63 * 32 + 64 * (kPieces - 1));
}

// Anything may come from a peer that has shown the job's secret; the good worker goes on.
TEST(SyncServer, SurvivesNonsenseFromOneWorkerBesideAGoodOne) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Fixture f(2, 2, {1, 3, 70'000});
    uint64_t state = seed;
    const auto draw = [&state](uint64_t below) {
      state = mix64(state + 1);
      return state % below;
    };
    for (int i = 0; i < 2000; ++i) {
      const Sender bad{1, 50 + draw(3)};
      const PieceKey key{draw(4), static_cast<uint32_t>(draw(5)), static_cast<uint32_t>(draw(4)),
                         static_cast<uint32_t>(draw(4)), static_cast<uint32_t>(draw(4))};
      switch (draw(7)) {
        case 0: {
          const uint64_t sizes[] = {4, 12, transport::kPieceBytes, 17'856, 0, 1};
          const auto target = f.server.prepare_push(bad, key, sizes[draw(6)]);
          if (!target.refusal.ok() || draw(4) == 0) break;  // never finished
          (void)f.server.push(bad, key,
                              target.discarded ? transport::MutableBytes() : target.memory);
          break;
        }
        case 1:
          (void)f.server.barrier(1, draw(4), static_cast<uint32_t>(draw(6)));
          break;
        case 2: {
          GetCall call;
          call.session = bad.session;
          call.request = draw(100);
          call.step = draw(4);
          call.all = draw(2) == 0;
          call.lane = static_cast<uint32_t>(draw(3));
          for (uint64_t k = draw(4); k > 0; --k) {
            call.variables.push_back(static_cast<uint32_t>(draw(6)));
          }
          (void)f.server.get(std::move(call));
          break;
        }
        case 3:
          f.server.drop_session(bad.session);
          break;
        case 4:
          (void)f.server.push(bad, key, {});
          break;
        case 5:
          (void)f.server.credit({bad.session, 1, 1, draw(4), static_cast<uint32_t>(draw(3)),
                                 static_cast<uint32_t>(draw(9)), static_cast<uint32_t>(draw(9))});
          break;
        default:
          if (draw(500) == 0) (void)f.server.complete(1, draw(4));
      }
    }
    const uint64_t step = f.server.step() + 1;
    EXPECT_TRUE(f.push(0, step, 0, {0, 1}, {1}));
    EXPECT_TRUE(f.server.barrier(0, step, 1).ok());
  }
}

}  // namespace
}  // namespace fleet::strategies
