#include <algorithm>
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "fluid/executor/executor.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"

namespace fleet::fluid {
namespace {

using ::testing::HasSubstr;

// Sets CPU_NUM while it lives.
class CpuNum {
 public:
  explicit CpuNum(const std::string& text) { setenv("CPU_NUM", text.c_str(), 1); }
  ~CpuNum() { unsetenv("CPU_NUM"); }
  CpuNum(const CpuNum&) = delete;
  CpuNum& operator=(const CpuNum&) = delete;
};

// Moving statistics, random masks, sparse gradients.
struct Net {
  Program main;
  Program startup;
  Variable cost;
  Variable probability;

  Net() {
    const ProgramGuard programs(main, startup);
    const unique_name::Guard names;
    startup.set_random_seed(3);
    main.set_random_seed(3);
    const auto image = layers::data("image", {2, 6, 6});
    const auto word = layers::data("word", {1}, DType::kInt64);
    const auto label = layers::data("label", {1}, DType::kInt64);
    const auto conv = layers::batch_norm(layers::conv2d(image, 5, 3, {.padding = 1}));
    const auto pooled = layers::pool2d(layers::tanh(conv), {.pool_size = 2, .pool_stride = 2});
    const auto rows = layers::embedding(word, {20, 8}, {.is_sparse = true});
    const auto hidden = layers::dropout(layers::fc({pooled, rows}, 16), 0.3);
    probability = layers::fc(hidden, 3, {.act = "softmax"});
    cost = layers::mean(layers::cross_entropy(probability, label));
    optimizer::Adam({.learning_rate = 0.01}).minimize(cost);
  }
};

Feed batch(int64_t rows, int64_t step) {
  Feed feed = {{"image", Tensor(DType::kFloat32, {rows, 2, 6, 6})},
               {"word", Tensor(DType::kInt64, {rows, 1})},
               {"label", Tensor(DType::kInt64, {rows, 1})}};
  for (int64_t i = 0; i < rows * 72; ++i) {
    feed[0].second.data<float>()[i] = static_cast<float>((i * 7 + step) % 11) / 11;
  }
  for (int64_t i = 0; i < rows; ++i) {
    feed[1].second.data<int64_t>()[i] = (i * i + step) % 20;
    feed[2].second.data<int64_t>()[i] = (i + step) % 3;
  }
  return feed;
}

using Values = std::map<std::string, std::vector<float>>;

std::vector<float> values_of(const Tensor& tensor) {
  const auto values = tensor.values<float>();
  return {values.begin(), values.end()};
}

// Every persistable variable and what was fetched, after four steps.
Values train(const std::string& cpu_num, int shards) {
  const CpuNum threads(cpu_num);
  const Net net;
  Executor executor(CPUPlace(), {.logical_shards = shards});
  executor.run(net.startup);
  Values values;
  for (int64_t step = 0; step < 4; ++step) {
    const auto fetched = executor.run(net.main, batch(24, step), {net.cost, net.probability});
    values["cost " + std::to_string(step)] = values_of(fetched[0]);
    values["rows " + std::to_string(step)] = values_of(fetched[1]);
  }
  for (const VarDesc* var : net.main.global_block().vars()) {
    if (!var->persistable || var->dtype != DType::kFloat32) continue;
    values[var->name] = values_of(executor.scope().tensor(var->name));
  }
  return values;
}

TEST(ShardThreads, TrainToTheBitsOfOne) {
  for (const int shards : {1, 2, 4, 6}) {
    const Values alone = train("1", shards);
    ASSERT_GT(alone.size(), 20U);
    for (const char* threads : {"2", "3", "4", "9"}) {
      EXPECT_EQ(train(threads, shards), alone) << shards << " shards, " << threads << " threads";
    }
  }
}

// A net whose tanh tells which thread ran which shard, and may throw.
struct Watched {
  KernelTable table = KernelTable::standard();
  std::mutex mutex;
  std::map<int, std::thread::id> thread_of_shard;
  int failing_shard = -1;

  Watched() {
    table.add_first("tanh", DeviceKind::kCpu, DType::kFloat32,
                    {.name = "watched", .prepare = [this](PrepareContext& context) {
                       context.set_output("Out", context.in("X").shape, DType::kFloat32);
                       return make_prepared([this](const KernelContext& c) { saw(c); });
                     }});
  }

  void saw(const KernelContext& c) {
    std::copy_n(c.in<float>(0), c.input(0).numel(), c.out<float>(0));
    const std::lock_guard lock(mutex);
    thread_of_shard[c.shard()] = std::this_thread::get_id();
    if (c.shard() == failing_shard) throw std::runtime_error("shard " + std::to_string(c.shard()));
  }

  std::set<std::thread::id> threads() const {
    std::set<std::thread::id> all;
    for (const auto& [shard, thread] : thread_of_shard) all.insert(thread);
    return all;
  }
};

TEST(ShardThreads, AreAsManyAsAskedFor) {
  const Net net;
  for (const int asked : {1, 2, 3}) {
    const CpuNum threads(std::to_string(asked));
    Watched watched;
    Executor executor(CPUPlace(), {.logical_shards = 4, .kernels = &watched.table});
    executor.run(net.startup);
    executor.run(net.main, batch(24, 0), {net.cost});
    EXPECT_EQ(watched.thread_of_shard.size(), 4U);
    EXPECT_EQ(watched.threads().size(), static_cast<size_t>(asked));
    EXPECT_EQ(watched.thread_of_shard[0], std::this_thread::get_id());
  }
}

TEST(ShardThreads, TellWhatWentWrongAndGoOn) {
  const Net net;
  const CpuNum threads("2");
  Watched watched;
  Executor executor(CPUPlace(), {.logical_shards = 4, .kernels = &watched.table});
  executor.run(net.startup);
  watched.failing_shard = 3;
  try {
    executor.run(net.main, batch(24, 0), {net.cost});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "shard 3");
  }
  watched.failing_shard = -1;
  EXPECT_EQ(executor.run(net.main, batch(24, 0), {net.cost}).size(), 1U);
}

TEST(ShardThreads, AreThoseOfTheOptionsWhereTheyAreGiven) {
  const CpuNum threads("many");
  EXPECT_NO_THROW(Executor(CPUPlace(), {.threads = 2}));
  EXPECT_EQ(with_environment({.threads = 3}).threads, 3);
  for (const int number : {0, -1, ExecutorOptions::kMaxThreads + 1}) {
    try {
      const Executor executor(CPUPlace(), {.threads = number});
      ADD_FAILURE() << number;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr("ExecutorOptions.threads"));
    }
  }
}

TEST(ShardThreads, AreANumber) {
  for (const char* text : {"0", "-1", "two", "100000"}) {
    const CpuNum threads(text);
    try {
      const Executor executor;
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kEnvironment);
      EXPECT_THAT(error.what(), HasSubstr("CPU_NUM"));
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  }
}

}  // namespace
}  // namespace fleet::fluid
