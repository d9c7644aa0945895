// The asynchronous server's state machine, frame by frame, and the arithmetic of workers.
#include "strategies/parameter_server/protocol/async_server.h"

#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/error.h"
#include "strategies/parameter_server/async_options.h"
#include "strategies/parameter_server/client/async_worker.h"
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
    call.step = clock;
    call.variables = {0, 1};
    return core.get(worker, call);
  }

  std::vector<AsyncUpdate> updates;
  std::vector<uint64_t> answered;  // requests
  uint64_t gradients = 0;
  int completions = 0;
  AsyncServer core;

 private:
  void begin_clock(uint64_t count) override { gradients = count; }
  void update(const AsyncUpdate& update, const Buffer&) override { updates.push_back(update); }
  void answer(const GetCall& get, uint32_t, uint32_t, uint64_t, bool last) override {
    if (last) answered.push_back(get.request);
  }
  void answer_empty(const GetCall& get) override { answered.push_back(get.request); }
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
  EXPECT_EQ(server.core.staleness(0).max, 2U);
  EXPECT_DOUBLE_EQ(server.core.staleness(0).mean(), 2.0);
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

TEST(AsyncServer, RemembersWhatItAppliedAcrossARestart) {
  Server server(2);
  EXPECT_TRUE(server.push(1, 0, 1).ok());
  EXPECT_TRUE(server.push(1, 1, 1).ok());
  Server again(2);
  again.core.restore(server.core.memory());
  EXPECT_TRUE(again.push(1, 0, 1).ok());
  EXPECT_TRUE(again.updates.empty());
  EXPECT_TRUE(again.push(1, 0, 2).ok());
  EXPECT_EQ(again.updates.size(), 1U);
  EXPECT_EQ(again.core.gradients(), 2U);
  EXPECT_THROW(again.core.restore(server.core.memory()), UsageError);
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
  EXPECT_EQ(DelayCompensationOptions::preset(DelayCompensation::kOriginal).lambda, 1.0);
  EXPECT_EQ(DelayCompensationOptions::preset(DelayCompensation::kConstant).lambda, 0.04);
  EXPECT_EQ(DelayCompensationOptions::preset(DelayCompensation::kAdaptive).lambda, 2.0);
  EXPECT_EQ(DelayCompensationOptions::preset(DelayCompensation::kClipped).lambda, 4.0);
  EXPECT_EQ(parse_delay_compensation("adaptive"), DelayCompensation::kAdaptive);
  EXPECT_FALSE(parse_delay_compensation("sometimes").has_value());
}

}  // namespace
}  // namespace fleet::strategies
