// Asynchronous jobs of threads with real programs over real sockets.
#include "tests/testing/async_thread_cluster.h"

#include <cmath>
#include <cstring>
#include <gmock/gmock.h>
#include <map>
#include <string>

#include "base/hash.h"
#include "base/strings.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "tests/testing/nets/sparse_net.h"

namespace fleet::testing {
namespace {

namespace layers = fluid::layers;
using fluid::ServerMode;
using strategies::AsyncEvent;
using strategies::DelayCompensation;
using strategies::DelayCompensationOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kFeatures = 16;
constexpr int kClasses = 4;

// Classes that a line through the origin tells apart, nearly: losses fall fast.
class Net {
 public:
  enum class Rule { kSgd, kAdam, kSgdDecayed };
  explicit Net(Rule rule, double rate = 0.1) {
    const fluid::ProgramGuard programs(main_, startup_);
    const fluid::unique_name::Guard names;
    const auto x = layers::data("x", {kFeatures});
    const auto y = layers::data("y", {1}, fluid::DType::kInt64);
    // Large enough to be cut into slices.
    const auto hidden = layers::fc(x, 1200, {.act = "tanh"});
    const auto prediction = layers::fc(hidden, kClasses, {.act = "softmax"});
    const auto loss = layers::mean(layers::cross_entropy(prediction, y));
    loss_ = loss.name();
    switch (rule) {
      case Rule::kSgd:
        fluid::optimizer::SGD({.learning_rate = rate}).minimize(loss);
        return;
      case Rule::kAdam:
        fluid::optimizer::Adam({.learning_rate = 0.01}).minimize(loss);
        return;
      case Rule::kSgdDecayed:
        fluid::optimizer::SGD({.learning_rate = layers::exponential_decay(rate, 3, 0.5, true)})
            .minimize(loss);
        return;
    }
  }

  TrainingTask task(int steps) const {
    TrainingTask task;
    task.main = &main_;
    task.startup = &startup_;
    task.loss = loss_;
    task.steps = steps;
    task.feed = [](int step, int begin, int end, int parts) {
      constexpr int kBatch = 48;
      return feed(step, kBatch / parts * begin, kBatch / parts * end);
    };
    return task;
  }

 private:
  static fluid::Feed feed(int step, int begin, int end) {
    std::vector<float> x;
    std::vector<int64_t> y;
    for (int row = begin; row < end; ++row) {
      const uint64_t id = mix64(static_cast<uint64_t>(step) * 1000003 + static_cast<uint64_t>(row));
      const auto label = static_cast<uint64_t>(id % kClasses);
      y.push_back(static_cast<int64_t>(label));
      for (uint64_t i = 0; i < kFeatures; ++i) {
        const auto noise = static_cast<float>(mix64(id + i) % 1000) / 1000.0F;
        x.push_back(noise * 0.5F + (i % kClasses == label ? 1.0F : 0.0F));
      }
    }
    const int64_t rows = end - begin;
    return {{"x", fluid::Tensor::from(x, {rows, kFeatures})},
            {"y", fluid::Tensor::from(y, {rows, 1})}};
  }

  fluid::Program main_;
  fluid::Program startup_;
  std::string loss_;
};

AsyncThreadOutcome expect_no_errors(const TrainingTask& task, const AsyncThreadJob& job) {
  AsyncThreadOutcome outcome = train_async_in_threads(task, job);
  for (const auto& error : outcome.errors) ADD_FAILURE() << error;
  return outcome;
}

AsyncThreadJob alone() {
  AsyncThreadJob job;
  job.workers = 1;
  job.options.independent_recv = false;
  return job;
}

void expect_same_bits(const Values& wanted, const Values& got) {
  ASSERT_FALSE(wanted.empty());
  for (const auto& [name, bytes] : wanted) {
    ASSERT_TRUE(got.contains(name)) << name;
    EXPECT_TRUE(got.at(name) == bytes) << name << " differs";
  }
}

float largest_difference(const Values& a, const Values& b) {
  float largest = 0;
  for (const auto& [name, bytes] : a) {
    const auto* x = reinterpret_cast<const float*>(bytes.data());
    const auto* y = reinterpret_cast<const float*>(b.at(name).data());
    for (size_t i = 0; i < bytes.size() / sizeof(float); ++i) {
      largest = std::max(largest, std::abs(x[i] - y[i]));
    }
  }
  return largest;
}

// Every gradient of every worker was applied to every slice, once and in order.
void expect_all_applied(const AsyncThreadOutcome& outcome, const AsyncThreadJob& job, int steps) {
  for (const auto& events : outcome.events) {
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> clocks;
    for (const AsyncEvent& event : events) {
      if (event.kind != AsyncEvent::Kind::kUpdate) continue;
      uint64_t& clock = clocks[{event.worker, event.variable}];
      EXPECT_EQ(event.clock, clock + event.merged);
      clock = event.clock;
    }
    EXPECT_FALSE(clocks.empty());
    for (const auto& [who, clock] : clocks) {
      EXPECT_EQ(clock, static_cast<uint64_t>(steps) * job.options.trainer_threads);
    }
  }
}

void expect_learns(const TrainingTask& task, const AsyncThreadJob& job) {
  const AsyncThreadOutcome outcome = expect_no_errors(task, job);
  for (const auto& losses : outcome.losses) {
    ASSERT_EQ(losses.size(), static_cast<size_t>(task.steps));
    EXPECT_LT(losses.back(), 0.5F * losses.front());
  }
  const bool exchanges = sends_differences(job.options.mode);
  if (!exchanges) expect_all_applied(outcome, job, task.steps);
}

TEST(AsyncThreadCluster, OneWorkerThatReceivesInStepHasTheBitsOfOneMachine) {
  for (const auto rule : {Net::Rule::kSgd, Net::Rule::kAdam, Net::Rule::kSgdDecayed}) {
    const Net net(rule);
    const TrainingTask task = net.task(12);
    const LocalOutcome local = train_locally(task, 1);
    for (const int rounds : {1, 3}) {
      AsyncThreadJob job = alone();
      job.rounds = rounds;
      const AsyncThreadOutcome outcome = expect_no_errors(task, job);
      ASSERT_EQ(outcome.losses.size(), 1U);
      EXPECT_EQ(outcome.losses[0], local.losses);
      expect_same_bits(local.parameters, outcome.parameters[0]);
      expect_same_bits(local.parameters, outcome.persistables);
    }
  }
}

TEST(AsyncThreadCluster, HalfAsynchronousWithOneThreadEqualsAsynchronous) {
  const Net net(Net::Rule::kSgd);
  const TrainingTask task = net.task(10);
  AsyncThreadJob job = alone();
  const AsyncThreadOutcome async = expect_no_errors(task, job);
  job.options.mode = ServerMode::kHalfAsync;
  const AsyncThreadOutcome half = expect_no_errors(task, job);
  EXPECT_EQ(half.losses, async.losses);
  expect_same_bits(async.persistables, half.persistables);
}

TEST(AsyncThreadCluster, CompensationOfOneWorkerChangesNothing) {
  const Net net(Net::Rule::kSgd);
  const TrainingTask task = net.task(8);
  AsyncThreadJob job = alone();
  const AsyncThreadOutcome plain = expect_no_errors(task, job);
  for (const auto form : {DelayCompensation::kPaddle, DelayCompensation::kConstant,
                          DelayCompensation::kAdaptive, DelayCompensation::kClipped}) {
    job.options.delay_compensation = DelayCompensationOptions::preset(form);
    const AsyncThreadOutcome outcome = expect_no_errors(task, job);
    EXPECT_EQ(outcome.losses, plain.losses) << to_string(form);
  }
}

TEST(AsyncThreadCluster, GeoOfOneWorkerIsLocalTraining) {
  const Net net(Net::Rule::kSgd);
  const TrainingTask task = net.task(10);
  const LocalOutcome local = train_locally(task, 1);
  AsyncThreadJob job = alone();
  job.options.mode = ServerMode::kGeo;
  job.options.geo_update_frequency = 4;
  for (const int rounds : {1, 3}) {
    for (const bool in_background : {false, true}) {
      job.rounds = rounds;
      job.options.independent_recv = in_background;
      const AsyncThreadOutcome outcome = expect_no_errors(task, job);
      ASSERT_EQ(outcome.losses[0].size(), local.losses.size());
      for (size_t i = 0; i < local.losses.size(); ++i) {
        EXPECT_NEAR(outcome.losses[0][i], local.losses[i], 1e-5) << i;
      }
      EXPECT_LT(largest_difference(local.parameters, outcome.parameters[0]), 1e-5F);
    }
  }
}

TEST(AsyncThreadCluster, EveryModeLearns) {
  const Net net(Net::Rule::kSgd, 0.05);
  const TrainingTask task = net.task(60);
  for (const auto mode :
       {ServerMode::kAsync, ServerMode::kHalfAsync, ServerMode::kGeo, ServerMode::kEasgd}) {
    for (const uint32_t threads : {1U, 2U}) {
      SCOPED_TRACE(str_cat(to_string(mode), ", ", threads, " threads"));
      AsyncThreadJob job;
      job.options.mode = mode;
      job.options.trainer_threads = threads;
      job.options.geo_update_frequency = job.options.easgd_tau = 4;
      job.lanes = threads;
      for (const int rounds : {1, 3}) {
        job.rounds = rounds;
        job.options.independent_recv = true;
        expect_learns(task, job);
        job.options.independent_recv = false;
        if (mode == ServerMode::kGeo) expect_learns(task, job);
      }
    }
  }
}

TEST(AsyncThreadCluster, CompensatedDelaysLearn) {
  const Net net(Net::Rule::kSgd, 0.05);
  const TrainingTask task = net.task(40);
  for (const auto form : {DelayCompensation::kPaddle, DelayCompensation::kClipped}) {
    AsyncThreadJob job;
    job.workers = 3;
    job.options.independent_recv = false;
    job.options.delay_compensation = DelayCompensationOptions::preset(form);
    expect_learns(task, job);
  }
}

TEST(AsyncThreadCluster, MergesAndBoundsLoseNothing) {
  const Net net(Net::Rule::kSgd, 0.02);
  const TrainingTask task = net.task(40);
  AsyncThreadJob job;
  job.options.max_merge_var_num = job.options.send_queue_size = 4;
  expect_learns(task, job);
  job.options.max_merge_var_num = job.options.send_queue_size = 1;
  job.options.staleness_bound = 2;
  expect_learns(task, job);
}

TEST(AsyncThreadCluster, WorkersThatFinishEarlyHoldNobodyUp) {
  const Net net(Net::Rule::kSgd, 0.02);
  const TrainingTask task = net.task(20);
  for (const auto mode : {ServerMode::kAsync, ServerMode::kHalfAsync, ServerMode::kGeo}) {
    AsyncThreadJob job;
    job.workers = 3;
    job.options.mode = mode;
    job.options.geo_update_frequency = 3;
    if (mode == ServerMode::kAsync) job.options.staleness_bound = 1;
    job.uneven_steps = {1, 20, 7};
    expect_no_errors(task, job);
  }
}

// Every asynchronous mode, with parameters in the background where it allows that.
std::vector<strategies::AsyncOptions> every_mode() {
  std::vector<strategies::AsyncOptions> all;
  for (const ServerMode mode :
       {ServerMode::kAsync, ServerMode::kHalfAsync, ServerMode::kGeo, ServerMode::kEasgd}) {
    all.emplace_back().mode = mode;
    all.back().geo_update_frequency = all.back().easgd_tau = 3;
  }
  all.push_back(all[2]);
  all.back().independent_recv = false;
  all.emplace_back().staleness_bound = 1;
  all.emplace_back().delay_compensation =
      DelayCompensationOptions::preset(DelayCompensation::kClipped);
  return all;
}

// As the simulated clusters have it (async_sim_cluster_test.cc), over real sockets: connections
// that lag, overtake each other and break.
TEST(AsyncThreadCluster, NothingIsLostOrCountedTwiceOnABadNetwork) {
  const Net net(Net::Rule::kSgd, 0.02);
  const TrainingTask task = net.task(12);
  const std::vector<strategies::AsyncOptions> modes = every_mode();
  uint64_t cuts = 0;
  for (uint64_t run = 0; run < bad_network_seeds(4) * modes.size(); ++run) {
    const uint64_t seed = 1 + run / modes.size();
    SCOPED_TRACE(str_cat("seed ", seed, ", mode ", run % modes.size()));
    AsyncThreadJob job;
    job.workers = 1 + static_cast<int>(seed % 3);
    job.lanes = 1 + static_cast<uint32_t>(seed % 2);
    job.faults = bad_network(seed);
    job.options = modes[run % modes.size()];
    const AsyncThreadOutcome outcome = expect_no_errors(task, job);
    cuts += outcome.cuts;
    const bool exchanges = sends_differences(job.options.mode);
    expect_all_applied(outcome, job, exchanges ? task.steps / 3 : task.steps);
    if (::testing::Test::HasFailure()) return;
  }
  std::printf("  %llu connections were cut\n", static_cast<unsigned long long>(cuts));
  EXPECT_GT(cuts, 0U);
}

// By the order of events: how many updates of others, on average, fall between a worker's get of a
// slice and its next update of it (`counted`), and how many other workers have begun and not ended
// when one updates (`at_work`).
struct MeanOthers {
  double counted = 0;
  double at_work = 0;
};

MeanOthers mean_others(const std::vector<AsyncEvent>& events) {
  using Stream = std::pair<uint32_t, uint32_t>;  // variable, worker
  std::map<Stream, size_t> last_update;
  for (size_t i = 0; i < events.size(); ++i) {
    if (events[i].kind == AsyncEvent::Kind::kUpdate) {
      last_update[{events[i].variable, events[i].worker}] = i;
    }
  }
  std::map<uint32_t, uint64_t> versions;
  std::map<Stream, uint64_t> pulled;
  uint64_t updates = 0;
  MeanOthers sums;
  for (size_t i = 0; i < events.size(); ++i) {
    const Stream stream{events[i].variable, events[i].worker};
    if (events[i].kind == AsyncEvent::Kind::kGet) {
      pulled[stream] = versions[stream.first];
      continue;
    }
    ++updates;
    sums.counted += static_cast<double>(versions[stream.first]++ - pulled[stream]);
    for (const auto& [other, version] : pulled) {
      const bool same_slice = other.first == stream.first && other.second != stream.second;
      if (same_slice && i < last_update[other]) ++sums.at_work;
    }
  }
  return {sums.counted / static_cast<double>(updates), sums.at_work / static_cast<double>(updates)};
}

// By the version counters: a gradient finds as many newer updates as others are at work, N - 1 of
// N equal ones. On a busy machine they are not equal, and some begin or end without the others.
TEST(AsyncThreadCluster, MeanStalenessIsTheNumberOfOtherWorkers) {
  const Net net(Net::Rule::kSgd, 0.01);
  const TrainingTask task = net.task(120);
  AsyncThreadJob job = alone();
  EXPECT_EQ(expect_no_errors(task, job).staleness.max, 0U);
  job.workers = 4;
  const AsyncThreadOutcome outcome = expect_no_errors(task, job);
  const MeanOthers others = mean_others(outcome.events.at(0));
  EXPECT_DOUBLE_EQ(outcome.staleness.mean(), others.counted);
  EXPECT_NEAR(outcome.staleness.mean(), others.at_work, 0.3);
  std::printf("  %.2f others at work\n", others.at_work);
}

TEST(LocalTraining, WhoseExecutorIsGoneBeforeItStopsSaysWhatIsLost) {
  for (const ServerMode mode : {ServerMode::kGeo, ServerMode::kEasgd}) {
    SCOPED_TRACE(to_string(mode));
    const SparseNet net({});
    AsyncThreadJob job;
    job.workers = 1;
    job.options.mode = mode;
    job.options.geo_update_frequency = job.options.easgd_tau = 4;
    job.drops_executor = true;
    const AsyncThreadOutcome lost = train_async_in_threads(net.task(7), job);
    ASSERT_FALSE(lost.errors.empty());
    EXPECT_THAT(lost.errors.front(),
                AllOf(HasSubstr("3 steps"), HasSubstr("stop_worker"), HasSubstr("executor")));
    const AsyncThreadOutcome whole = train_async_in_threads(net.task(8), job);
    for (const auto& error : whole.errors) ADD_FAILURE() << error << ": nothing was lost";
  }
}

}  // namespace
}  // namespace fleet::testing
