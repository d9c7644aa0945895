// The asynchronous server's state machine, frame by frame, and the arithmetic of workers.
#include "strategies/parameter_server/protocol/async_server.h"

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "strategies/parameter_server/async_options.h"
#include "strategies/parameter_server/client/merged_gradients.h"
#include "strategies/parameter_server/protocol/local_exchange.h"

namespace fleet::strategies {
namespace {

// A server of two slices of four floats, and what it did.
class Server : private AsyncServerSink {
 public:
  explicit Server(uint32_t workers) : core(options(workers), *this) {}

  static AsyncServerOptions options(uint32_t workers) {
    AsyncServerOptions options;
    options.workers = workers;
    options.slices = {{16, fluid::DType::kFloat32}, {16, fluid::DType::kFloat32}};
    return options;
  }

  // A whole gradient of one piece.
  Status push(uint32_t worker, uint32_t slice, uint64_t clock, uint32_t merged = 1,
              uint64_t session = 0) {
    const Sender sender{worker, session == 0 ? worker + 1 : session};
    const PieceKey key{clock, slice, 0, 0, merged};
    const transport::PayloadTarget target = core.prepare_push(sender, key, 16);
    if (!target.refusal.ok()) return target.refusal;
    if (!target.discarded) std::memset(target.memory.data(), 0, 16);
    return core.push(sender, key, target.discarded ? transport::MutableBytes() : target.memory);
  }
  Status get(uint32_t worker, uint64_t request, uint64_t clock = 0) {
    GetCall call;
    call.session = worker + 1;
    call.request = request;
    call.worker = worker;
    call.step = clock;
    call.variables = {0, 1};
    return core.get(call);
  }

  std::vector<AsyncUpdate> updates;
  std::vector<uint64_t> answered;  // requests
  uint64_t gradients = 0;
  int completions = 0;
  AsyncServer core;

 private:
  void begin_clock(uint64_t count) override { gradients = count; }
  void update(const AsyncUpdate& update, const Buffer&) override { updates.push_back(update); }
  void answer(const ServerAnswer& answer) override {
    if (answer.last) answered.push_back(answer.request);
  }
  void all_complete() override { ++completions; }
};

TEST(AsyncServer, AppliesOnArrivalAndOnce) {
  Server server(2);
  EXPECT_TRUE(server.push(1, 0, 1).ok());
  EXPECT_TRUE(server.push(0, 0, 1).ok());
  EXPECT_TRUE(server.push(1, 0, 1).ok());         // again
  EXPECT_TRUE(server.push(1, 0, 1, 1, 77).ok());  // and by another connection
  ASSERT_EQ(server.updates.size(), 2U);
  EXPECT_EQ(server.updates[0].worker, 1U);
  EXPECT_EQ(server.updates[1].version, 2U);
  EXPECT_EQ(server.core.clock(1), 0U);  // the other slice is missing
  EXPECT_TRUE(server.push(1, 1, 1).ok());
  EXPECT_EQ(server.core.clock(1), 1U);
}

TEST(AsyncServer, RefusesGradientsThatLeaveOneOut) {
  Server server(1);
  EXPECT_FALSE(server.push(0, 0, 2).ok());
  EXPECT_TRUE(server.push(0, 0, 2, 2).ok());  // clocks 1 and 2, merged
  EXPECT_FALSE(server.push(0, 0, 4).ok());
  EXPECT_FALSE(server.push(0, 0, 4, 3).ok());  // would count clock 2 again
  EXPECT_TRUE(server.push(0, 0, 3).ok());
  EXPECT_EQ(server.updates.size(), 2U);
  EXPECT_EQ(server.updates[0].merged, 2U);
}

TEST(AsyncServer, RefusesWhatCannotBe) {
  Server server(1);
  EXPECT_FALSE(server.push(0, 2, 1).ok());     // no such slice
  EXPECT_FALSE(server.push(0, 0, 1, 0).ok());  // of no clock
  const PieceKey key{1, 0, 0, 0, 1};
  EXPECT_FALSE(server.core.prepare_push({0, 1}, key, 12).refusal.ok());
  EXPECT_TRUE(server.core.untouched());
}

TEST(AsyncServer, CountsGradientsForTheScheduleOnceForAllSlices) {
  Server server(2);
  EXPECT_TRUE(server.push(0, 0, 1).ok());
  EXPECT_TRUE(server.push(0, 1, 1).ok());
  EXPECT_EQ(server.gradients, 1U);
  EXPECT_TRUE(server.push(1, 1, 3, 3).ok());
  EXPECT_EQ(server.gradients, 4U);
  EXPECT_TRUE(server.push(1, 0, 3, 3).ok());
  EXPECT_EQ(server.gradients, 4U);
}

TEST(AsyncServer, GetsWithABoundWaitForTheSlowestThatStillTrains) {
  Server server(3);
  const auto step = [&](uint32_t worker, uint64_t clock) {
    EXPECT_TRUE(server.push(worker, 0, clock).ok());
    EXPECT_TRUE(server.push(worker, 1, clock).ok());
  };
  step(0, 1);
  EXPECT_TRUE(server.get(0, 1, 1).ok());
  EXPECT_TRUE(server.answered.empty());
  EXPECT_EQ(server.core.missing(), (std::vector<uint32_t>{1, 2}));
  step(1, 1);
  EXPECT_TRUE(server.answered.empty());
  EXPECT_TRUE(server.core.complete(2, 0).ok());
  EXPECT_EQ(server.answered, std::vector<uint64_t>{1});
  EXPECT_TRUE(server.get(0, 2).ok());  // without a bound: at once
  EXPECT_EQ(server.answered.size(), 2U);
}

TEST(AsyncServer, MeasuresTheAgeOfGradients) {
  Server server(2);
  EXPECT_TRUE(server.get(0, 1).ok());
  EXPECT_TRUE(server.push(1, 0, 1).ok());
  EXPECT_TRUE(server.push(1, 0, 2).ok());
  EXPECT_TRUE(server.push(0, 0, 1).ok());
  EXPECT_EQ(server.updates.back().staleness, 2U);
  EXPECT_EQ(server.core.staleness().max, 2U);
  EXPECT_DOUBLE_EQ(server.core.staleness().mean(), 1.0);  // of 0, 1 and 2
}

TEST(AsyncServer, IsCompleteWhenEveryWorkerIs) {
  Server server(2);
  EXPECT_TRUE(server.push(0, 0, 1).ok());
  EXPECT_FALSE(server.core.complete(0, 0).ok());  // it has sent more than it says
  EXPECT_TRUE(server.core.complete(0, 1).ok());
  EXPECT_TRUE(server.core.complete(0, 1).ok());
  EXPECT_EQ(server.completions, 0);
  EXPECT_FALSE(server.push(0, 0, 2).ok());
  EXPECT_TRUE(server.core.complete(1, 0).ok());
  EXPECT_EQ(server.completions, 1);
}

// Many slices and lanes, gets of all kinds that wait, workers that complete, connections that end:
// what is answered when, by the definition and by the server.
class WaitingGets : private AsyncServerSink {
 public:
  static constexpr uint32_t kWorkers = 7;
  static constexpr uint32_t kSlices = 9;
  static constexpr uint32_t kLanes = 2;

  explicit WaitingGets(uint64_t seed) : state_(mix64(seed)), core_(options(), *this) {
    clocks_.resize(kWorkers, std::vector<uint64_t>(kSlices, 0));
    for (uint32_t i = 0; i < kWorkers; ++i) sessions_.push_back(next_session_++);
  }

  void run() {
    for (int i = 0; i < 3000; ++i) {
      const auto worker = static_cast<uint32_t>(draw(kWorkers));
      const uint64_t kind = draw(100);
      if (kind == 0) {
        if (draw(4) == 0) complete(worker);
      } else if (kind < 3) {
        reconnect(worker);
      } else if (kind < 40) {
        get(worker);
      } else {
        push(worker, static_cast<uint32_t>(draw(kSlices)));
      }
      ASSERT_EQ(answered_, expected_) << "after " << i << " calls";
      ASSERT_EQ(core_.missing(), missing()) << "after " << i << " calls";
    }
    EXPECT_GT(waited_, 10);
  }

 private:
  static AsyncServerOptions options() {
    AsyncServerOptions options;
    options.workers = kWorkers;
    options.lanes = kLanes;
    options.slices.assign(kSlices, {16, fluid::DType::kFloat32});
    options.variables = kSlices + 2;
    return options;
  }
  uint64_t draw(uint64_t below) {
    state_ = mix64(state_);
    return state_ % below;
  }

  void push(uint32_t worker, uint32_t slice) {
    if (completed_.contains(worker)) return;
    const PieceKey key{++clocks_[worker][slice], slice, 0, 0, 1};
    const Sender sender{worker, sessions_[worker]};
    const transport::PayloadTarget target = core_.prepare_push(sender, key, 16);
    expect_answers();
    ASSERT_TRUE(core_.push(sender, key, target.memory).ok());
  }
  void get(uint32_t worker) {
    GetCall call;
    call.session = sessions_[worker];
    call.request = ++last_request_;
    call.worker = worker;
    call.step = clocks_[worker][0] < 2 ? 0 : clocks_[worker][0] - draw(2);
    call.all = draw(2) == 0;
    call.lane = static_cast<uint32_t>(draw(kLanes));
    for (uint64_t i = draw(5); !call.all && i > 0; --i) {
      call.variables.push_back(static_cast<uint32_t>(draw(kSlices + 2)));
    }
    waiting_.push_back(call);
    expect_answers();
    if (!waiting_.empty() && waiting_.back().request == call.request) ++waited_;
    ASSERT_TRUE(core_.get(call).ok());
  }
  void complete(uint32_t worker) {
    if (completed_.size() + 1 == kWorkers || !completed_.insert(worker).second) return;
    expect_answers();
    ASSERT_TRUE(core_.complete(worker, ~uint64_t{0}).ok());
  }
  void reconnect(uint32_t worker) {
    std::erase_if(waiting_, [&](const GetCall& get) { return get.session == sessions_[worker]; });
    core_.drop_session(sessions_[worker]);
    sessions_[worker] = next_session_++;
  }

  std::vector<uint32_t> slices_of(const GetCall& call) const {
    std::vector<uint32_t> slices;
    for (uint32_t i = 0; i < kSlices; ++i) {
      const bool listed = std::count(call.variables.begin(), call.variables.end(), i) > 0;
      if (call.all ? i % kLanes == call.lane : listed) slices.push_back(i);
    }
    return slices;
  }
  bool late(uint32_t worker, const GetCall& call) const {
    if (completed_.contains(worker)) return false;
    const auto slices = slices_of(call);
    return std::any_of(slices.begin(), slices.end(),
                       [&](uint32_t slice) { return clocks_[worker][slice] < call.step; });
  }
  bool waits(const GetCall& call) const {
    for (uint32_t worker = 0; worker < kWorkers; ++worker) {
      if (late(worker, call)) return true;
    }
    return false;
  }
  void expect_answers() {
    std::erase_if(waiting_, [&](const GetCall& get) {
      if (waits(get)) return false;
      expected_.push_back(get.request);
      return true;
    });
  }
  std::vector<uint32_t> missing() const {
    std::vector<uint32_t> workers;
    for (uint32_t worker = 0; worker < kWorkers; ++worker) {
      const bool awaited = std::any_of(waiting_.begin(), waiting_.end(),
                                       [&](const GetCall& get) { return late(worker, get); });
      if (awaited) workers.push_back(worker);
    }
    return workers;
  }

  void begin_clock(uint64_t) override {}
  void update(const AsyncUpdate&, const Buffer&) override {}
  void answer(const ServerAnswer& answer) override {
    if (answer.last) answered_.push_back(answer.request);
  }
  void all_complete() override {}

  uint64_t state_;
  std::vector<std::vector<uint64_t>> clocks_;  // by worker and slice
  std::vector<uint64_t> sessions_;             // by worker
  uint64_t next_session_ = 1;
  uint64_t last_request_ = 0;
  std::set<uint32_t> completed_;
  std::vector<GetCall> waiting_;
  std::vector<uint64_t> expected_;  // requests
  std::vector<uint64_t> answered_;
  int waited_ = 0;
  AsyncServer core_;
};

TEST(AsyncServer, AnswersWaitingGetsInTheOrderInWhichTheyCame) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    WaitingGets gets(seed);
    gets.run();
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(AsyncServer, GivesPiecesThatALostConnectionWasWritingToTheNext) {
  Server server(1);
  const PieceKey key{1, 0, 0, 0, 1};
  const transport::PayloadTarget first = server.core.prepare_push({0, 1}, key, 16);
  const transport::PayloadTarget second = server.core.prepare_push({0, 2}, key, 16);
  ASSERT_FALSE(second.discarded);
  EXPECT_NE(first.memory.data(), second.memory.data());
  server.core.drop_session(1);
  const transport::PayloadTarget third = server.core.prepare_push({0, 3}, key, 16);
  EXPECT_EQ(first.memory.data(), third.memory.data());
  EXPECT_TRUE(server.core.push({0, 2}, key, second.memory).ok());
  EXPECT_TRUE(server.core.push({0, 3}, key, third.memory).ok());
  EXPECT_EQ(server.updates.size(), 1U);
}

Buffer buffer_of(const std::vector<float>& values) {
  Buffer buffer(values.size() * sizeof(float));
  std::memcpy(buffer.data(), values.data(), buffer.size());
  return buffer;
}

std::vector<float> values_of(const Buffer& buffer) {
  std::vector<float> values(buffer.size() / sizeof(float));
  std::memcpy(values.data(), buffer.data(), buffer.size());
  return values;
}

TEST(MergeGradients, AddsOrAverages) {
  const auto merge = [](bool by_sum) {
    return values_of(merge_gradients({buffer_of({1, 2}), buffer_of({3, 4}), buffer_of({5, 12})},
                                     fluid::DType::kFloat32, by_sum));
  };
  EXPECT_EQ(merge(true), (std::vector<float>{9, 18}));
  EXPECT_EQ(merge(false), (std::vector<float>{9.0F * (1.0F / 3), 18.0F * (1.0F / 3)}));
}

// With e = w - old before the exchange, w - W = (1 - 1/N) e after it; exact in small numbers.
TEST(LocalExchange, GeoKeepsAllOfAnOffsetButOneNth) {
  for (const uint32_t workers : {1U, 2U, 4U}) {
    std::vector<float> w{24, -8, 40};
    std::vector<float> old{8, 8, 8};
    std::vector<float> server = old;
    const std::vector<float> before = w;
    std::vector<float> difference(3);
    geo_difference<float>(w, old, workers, difference);
    for (size_t i = 0; i < 3; ++i) server[i] += difference[i];
    geo_receive<float>(server, w, old);
    EXPECT_EQ(old, server);
    for (size_t i = 0; i < 3; ++i) {
      const float offset = before[i] - 8;
      EXPECT_EQ(w[i] - server[i], offset - offset / static_cast<float>(workers));
    }
  }
}

TEST(LocalExchange, ElasticAveragingKeepsTheSumOfBoth) {
  std::vector<double> x{3, -1};
  const std::vector<double> centre{1, 1};
  std::vector<double> difference(2);
  easgd_difference<double>(x, centre, 0.25, difference);
  EXPECT_EQ(difference, (std::vector<double>{0.5, -0.5}));
  EXPECT_EQ(x, (std::vector<double>{2.5, -0.5}));
  EXPECT_DOUBLE_EQ(easgd_alpha(0, 3), 0.3);
}

TEST(AsyncOptions, NamesBothFieldsOfAContradiction) {
  const auto refusal = [](const AsyncOptions& options) -> std::string {
    try {
      validate(options);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  AsyncOptions options;
  EXPECT_EQ(refusal(options), "");
  options.staleness_bound = 2;
  options.max_merge_var_num = 3;
  EXPECT_NE(refusal(options).find("staleness_bound"), std::string::npos);
  EXPECT_NE(refusal(options).find("max_merge_var_num"), std::string::npos);
  options = {};
  options.mode = ServerMode::kGeo;
  options.delay_compensation.form = DelayCompensation::kClipped;
  EXPECT_NE(refusal(options).find("mode geo"), std::string::npos);
  options = {};
  options.send_queue_size = 0;
  EXPECT_NE(refusal(options).find("send_queue_size"), std::string::npos);
  options = {};
  options.easgd_alpha = 1.5;
  EXPECT_NE(refusal(options).find("easgd_alpha"), std::string::npos);
}

TEST(AsyncOptions, PresetsHaveThePublishedConstants) {
  EXPECT_EQ(DelayCompensationOptions::preset(DelayCompensation::kPaddle).lambda, 1.0);
  EXPECT_EQ(DelayCompensationOptions::preset(DelayCompensation::kConstant).lambda, 0.04);
  EXPECT_EQ(DelayCompensationOptions::preset(DelayCompensation::kAdaptive).lambda, 2.0);
  EXPECT_EQ(DelayCompensationOptions::preset(DelayCompensation::kClipped).lambda, 4.0);
  EXPECT_EQ(parse_delay_compensation("adaptive"), DelayCompensation::kAdaptive);
  EXPECT_FALSE(parse_delay_compensation("sometimes").has_value());
}

}  // namespace
}  // namespace fleet::strategies
