// How the executor drives a communication runtime.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "fluid/kernels/op_library.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/schema_util.h"
#include "tests/fluid/executor/mlp.h"
#include "tests/testing/device/emulated_device.h"

namespace fleet::fluid {
namespace {

using testing::batch;
using testing::Mlp;

// Records calls; an all-reduce over this process's shards only, finished when waited for.
class RecordingRuntime : public CommRuntime {
 public:
  explicit RecordingRuntime(StepShards shards) : shards_(shards) {}

  StepShards shards() const override { return shards_; }
  void begin_step(const Program&, uint64_t step) override { log += "begin" + std::to_string(step); }
  void end_step(const Program&, uint64_t) override { log += " end\n"; }
  std::unique_ptr<CommToken> run(const CommCall& call) override {
    log += " " + call.op.type + std::to_string(call.shard);
    if (call.op.type != "c_allreduce_sum") return nullptr;
    Tensor& grad = std::get<Tensor>(*call.inputs[0]);
    sum_.push_back(grad.clone());
    return std::make_unique<Token>(*this, grad, call.shard + 1 == shards_.end);
  }

  std::string log;

 private:
  class Token : public CommToken {
   public:
    Token(RecordingRuntime& runtime, Tensor& grad, bool last)
        : runtime_(runtime), grad_(grad), last_(last) {}
    bool done() const override { return false; }
    void wait() override {
      runtime_.log += " wait";
      if (!last_) return;
      std::fill(grad_.data<float>(), grad_.data<float>() + grad_.numel(), 0.0f);
      for (const Tensor& part : runtime_.sum_) {
        for (int64_t i = 0; i < grad_.numel(); ++i) grad_.data<float>()[i] += part.data<float>()[i];
      }
      runtime_.sum_.clear();
    }

   private:
    RecordingRuntime& runtime_;
    Tensor& grad_;
    bool last_;
  };

  StepShards shards_;
  std::vector<Tensor> sum_;
};

Operator op(const char* type, SlotMap inputs, SlotMap outputs, OpRole role) {
  Operator made;
  made.type = type;
  made.inputs = std::move(inputs);
  made.outputs = std::move(outputs);
  made.role = role;
  return made;
}

Operator scale_op(const char* in, const char* out, double by) {
  Operator made = op("scale", {{"X", {in}}}, {{"Out", {out}}}, OpRole::kBackward);
  made.attrs = {{"scale", by}};
  return made;
}

// y = 2 x, "gradient" g = mean(y), summed by all-reduce; w -= g.
struct Fixture {
  Program program;

  Fixture() {
    Block& block = program.global_block();
    for (const char* name : {"x", "y", "g", "w", "rate"}) {
      VarDesc var;
      var.name = name;
      var.shape = name[0] == 'x' || name[0] == 'y' ? Shape{-1} : Shape{1};
      var.persistable = name[0] == 'w' || name[0] == 'r';
      var.is_data = name[0] == 'x';
      block.add_var(var);
    }
    Operator scale = op("scale", {{"X", {"x"}}}, {{"Out", {"y"}}}, OpRole::kForward);
    scale.attrs = {{"scale", 2.0}};
    block.append_op(scale);
    block.append_op(op("mean", {{"X", {"y"}}}, {{"Out", {"g"}}}, OpRole::kBackward));
    block.append_op(op("c_allreduce_sum", {{"X", {"g"}}}, {{"Out", {"g"}}}, OpRole::kBackward));
    block.append_op(op("sgd", {{"Param", {"w"}}, {"Grad", {"g"}}, {"LearningRate", {"rate"}}},
                       {{"ParamOut", {"w"}}}, OpRole::kOptimize));
    block.append_op(op("send_barrier", {}, {}, OpRole::kRpc));
  }
};

TEST(CommunicationOps, RunPerShardAndHoldTheirBuffersUntilDone) {
  const Fixture fixture;
  Executor executor;
  const auto runtime = std::make_shared<RecordingRuntime>(StepShards{2, 4, 4});
  executor.set_comm_runtime(runtime);
  executor.scope().var("w") = Tensor::scalar(100.0f);
  executor.scope().var("rate") = Tensor::scalar(1.0f);
  const Feed feed = {{"x", Tensor::from<float>({1, 3, 5, 7}, {4})}};
  executor.run(fixture.program, feed);
  EXPECT_EQ(runtime->log,
            "begin0 c_allreduce_sum2 wait c_allreduce_sum3 wait send_barrier-1 end\n");
  EXPECT_EQ(executor.scope().tensor("w").item<float>(), 100 - 4 - 12);
  executor.run(fixture.program, feed);
  EXPECT_EQ(executor.scope().tensor("w").item<float>(), 100 - 2 * (4 + 12));
}

// An op of one's own that the runtime runs, once for each shard.
TEST(CommunicationOps, OfOnesOwnRunWhereTheirRowsSay) {
  Fixture fixture;
  auto library = std::make_shared<OpLibrary>();
  OpSchema tell = run_by_runtime(make_schema<NoAttrs>("tell", {one("X")}, {}));
  tell.once_a_shard = true;
  library->ops().add(std::move(tell));
  fixture.program.set_op_library(std::move(library));
  fixture.program.global_block().append_op(op("tell", {{"X", {"g"}}}, {}, OpRole::kRpc));
  Executor executor;
  const auto runtime = std::make_shared<RecordingRuntime>(StepShards{0, 2, 2});
  executor.set_comm_runtime(runtime);
  executor.scope().var("w") = Tensor::scalar(100.0f);
  executor.scope().var("rate") = Tensor::scalar(1.0f);
  executor.run(fixture.program, {{"x", Tensor::from<float>({1, 3}, {2})}});
  EXPECT_THAT(runtime->log, ::testing::HasSubstr(" tell0"));
  EXPECT_THAT(runtime->log, ::testing::HasSubstr(" tell1"));
}

// Sends the slices of y = 2 x, and looks at them when it is waited for.
class SlowSender : public CommRuntime {
 public:
  StepShards shards() const override { return {0, 1, 1}; }
  void begin_step(const Program&, uint64_t) override {}
  void end_step(const Program&, uint64_t) override {}
  std::unique_ptr<CommToken> run(const CommCall& call) override {
    for (Value* value : call.inputs) slices.push_back(&std::get<Tensor>(*value));
    return std::make_unique<Token>(*this);
  }

  std::vector<const Tensor*> slices;
  std::vector<float> sent;

 private:
  class Token : public CommToken {
   public:
    explicit Token(SlowSender& runtime) : runtime_(runtime) {}
    bool done() const override { return false; }
    void wait() override {
      for (const Tensor* slice : runtime_.slices) {
        for (const float value : slice->values<float>()) runtime_.sent.push_back(value);
      }
    }

   private:
    SlowSender& runtime_;
  };
};

TEST(CommunicationOps, SendSlicesOfAVariableFromItsOwnMemory) {
  Program program;
  Block& block = program.global_block();
  for (const char* name : {"x", "y", "y0", "y1", "z"}) {
    VarDesc var;
    var.name = name;
    var.shape = Shape{name[1] == '0' ? 1 : name[1] == '1' ? 2 : 3, 2};
    var.is_data = name[0] == 'x';
    block.add_var(var);
  }
  const auto scale = [&block](const char* in, const char* out, double by) {
    block.append_op(scale_op(in, out, by));
  };
  scale("x", "y", 2.0);
  Operator split = op("split_byref", {{"X", {"y"}}}, {{"Out", {"y0", "y1"}}}, OpRole::kDist);
  split.attrs = {{"sections", std::vector<int64_t>{1, 2}}};
  block.append_op(split);
  block.append_op(op("send", {{"X", {"y0", "y1"}}}, {}, OpRole::kRpc));
  scale("x", "z", 5.0);  // might take y's memory, which is still being sent
  scale("y", "y", 7.0);  // has to wait
  Executor executor;
  const auto runtime = std::make_shared<SlowSender>();
  executor.set_comm_runtime(runtime);
  const auto result = executor.run(
      program, {{"x", Tensor::from<float>({1, 2, 3, 4, 5, 6}, {3, 2})}}, {Fetch("y"), Fetch("z")});
  EXPECT_EQ(runtime->sent, (std::vector<float>{2, 4, 6, 8, 10, 12}));
  ASSERT_EQ(runtime->slices.size(), 2U);
  EXPECT_EQ(runtime->slices[1]->raw() - runtime->slices[0]->raw(), 2 * sizeof(float));
  EXPECT_EQ(result[0].data<float>()[5], 84);
  EXPECT_EQ(result[1].data<float>()[5], 30);
}

// Keeps what it is sent, and how many kernels of the device had run by then.
class ListeningRuntime : public CommRuntime {
 public:
  StepShards shards() const override { return {0, 1, 1}; }
  void begin_step(const Program&, uint64_t) override {}
  void end_step(const Program&, uint64_t) override {}
  std::unique_ptr<CommToken> run(const CommCall& call) override {
    if (call.op.type == "c_sync_calc_stream") return nullptr;
    std::string words = call.op.type;
    for (const Value* value : call.inputs) words += " " + std::get<Tensor>(*value).to_string();
    heard.push_back(words);
    kernels.push_back(fleet::testing::device_kernels_run() - before);
    return nullptr;
  }

  uint64_t before = 0;
  std::vector<std::string> heard;
  std::vector<uint64_t> kernels;
};

// What is sent comes from the device while that goes on, whole or in slices, and in order.
TEST(CommunicationOps, OfADeviceDoNotWaitForWhatTheyRead) {
  fleet::testing::emulate_two_devices();
  fleet::testing::delay_late_copies(10);
  const KernelTable kernels =
      fleet::testing::kernels_with_device_ops([](const std::string& op) { return op == "scale"; });
  Program program;
  Block& block = program.global_block();
  for (const char* name : {"x", "a", "b", "b0", "b1", "c"}) {
    VarDesc var;
    var.name = name;
    var.shape = Shape{name[1] == '\0' ? 2 : 1, 1};
    var.is_data = name[0] == 'x';
    block.add_var(var);
  }
  const auto scale = [&block](const char* in, const char* out, double by) {
    block.append_op(scale_op(in, out, by));
  };
  scale("x", "a", 2.0);
  block.append_op(op("send", {{"X", {"a"}}}, {}, OpRole::kRpc));
  scale("x", "b", 3.0);
  block.append_op(op("c_sync_calc_stream", {{"X", {"b"}}}, {{"Out", {"b"}}}, OpRole::kBackward));
  scale("x", "c", 5.0);
  Operator split = op("split_byref", {{"X", {"b"}}}, {{"Out", {"b0", "b1"}}}, OpRole::kDist);
  split.attrs = {{"sections", std::vector<int64_t>{1, 1}}};
  block.append_op(split);
  block.append_op(op("send", {{"X", {"b0", "b1"}}}, {}, OpRole::kRpc));
  scale("a", "a", 7.0);
  block.append_op(op("send_barrier", {}, {}, OpRole::kRpc));
  Executor executor(CUDAPlace(0), {.kernels = &kernels});
  const auto runtime = std::make_shared<ListeningRuntime>();
  executor.set_comm_runtime(runtime);
  const Feed feed = {{"x", Tensor::from<float>({1, 2}, {2, 1})}};
  for (int step = 0; step < 2; ++step) {
    runtime->heard.clear();
    runtime->kernels.clear();
    runtime->before = fleet::testing::device_kernels_run();
    const auto result = executor.run(program, feed, {Fetch("a"), Fetch("c")});
    const Tensor a = Tensor::from<float>({2, 4}, {2, 1});
    const Tensor b0 = Tensor::from<float>({3}, {1, 1});
    const Tensor b1 = Tensor::from<float>({6}, {1, 1});
    EXPECT_THAT(
        runtime->heard,
        ::testing::ElementsAre("send " + a.to_string(),
                               "send " + b0.to_string() + " " + b1.to_string(), "send_barrier"));
    EXPECT_GT(runtime->kernels[0], 2U);
    EXPECT_GT(runtime->kernels[1], 2U);
    EXPECT_EQ(result[0].data<float>()[1], 28);
    EXPECT_EQ(result[1].data<float>()[1], 10);
  }
}

// Sums on the device, which waits for the sums itself.
class LeadingRuntime : public CommRuntime {
 public:
  StepShards shards() const override { return {0, 1, 1}; }
  bool sums_on(const Place&) override { return true; }
  void wait_for_leads() override { log += " leads"; }
  void begin_step(const Program&, uint64_t) override { log += "begin"; }
  void end_step(const Program&, uint64_t) override { log += " end"; }
  std::unique_ptr<CommToken> run(const CommCall& call) override {
    log += " " + call.op.type;
    return std::make_unique<Token>(*this);
  }

  std::string log;

 private:
  class Token : public CommToken {
   public:
    explicit Token(LeadingRuntime& runtime) : runtime_(runtime) {}
    bool done() const override { return false; }
    void wait() override { runtime_.log += " wait"; }
    bool lead_device() override {
      runtime_.log += " lead";
      return true;
    }

   private:
    LeadingRuntime& runtime_;
  };
};

// What follows on the device does not have the host wait; a copy to the host does, with the job's
// deadlines, and so does the end of the step.
TEST(CommunicationOps, OfADeviceAreWaitedForThere) {
  fleet::testing::emulate_two_devices();
  const KernelTable kernels =
      fleet::testing::kernels_with_device_ops([](const std::string& op) { return op == "scale"; });
  Program program;
  Block& block = program.global_block();
  for (const char* name : {"x", "g", "h", "m"}) {
    VarDesc var;
    var.name = name;
    var.shape = Shape{name[0] == 'm' ? 1 : 2};
    var.is_data = name[0] == 'x';
    block.add_var(var);
  }
  block.append_op(op("scale", {{"X", {"x"}}}, {{"Out", {"g"}}}, OpRole::kBackward));
  block.append_op(op("c_allreduce_sum", {{"X", {"g"}}}, {{"Out", {"g"}}}, OpRole::kBackward));
  block.append_op(op("scale", {{"X", {"g"}}}, {{"Out", {"h"}}}, OpRole::kOptimize));
  block.append_op(op("mean", {{"X", {"h"}}}, {{"Out", {"m"}}}, OpRole::kOptimize));
  Executor executor(CUDAPlace(0), {.kernels = &kernels});
  const auto runtime = std::make_shared<LeadingRuntime>();
  executor.set_comm_runtime(runtime);
  const auto result =
      executor.run(program, {{"x", Tensor::from<float>({1, 3}, {2})}}, {Fetch("m")});
  EXPECT_EQ(result[0].item<float>(), 2);
  EXPECT_EQ(runtime->log, "begin c_allreduce_sum lead leads wait end");
}

TEST(CommunicationOps, UseTheRuntimeThatTheProgramCarries) {
  Fixture fixture;
  const auto runtime = std::make_shared<RecordingRuntime>(StepShards{0, 1, 1});
  fixture.program.set_runtime(runtime);
  Executor executor;
  executor.scope().var("w") = Tensor::scalar(0.0f);
  executor.scope().var("rate") = Tensor::scalar(1.0f);
  executor.run(fixture.program, {{"x", Tensor::from<float>({1, 3}, {2})}});
  EXPECT_EQ(executor.scope().tensor("w").item<float>(), -4);
  EXPECT_EQ(runtime->log, "begin0 c_allreduce_sum0 wait send_barrier-1 end\n");
}

// m += mean(x) in the forward part, as moving statistics do.
TEST(Shards, AverageWhatTheForwardPartMakesOfPersistableVariables) {
  Program program;
  Block& block = program.global_block();
  for (const char* name : {"x", "t", "m", "g"}) {
    VarDesc var;
    var.name = name;
    var.shape = name[0] == 'x' ? Shape{-1} : Shape{1};
    var.persistable = name[0] == 'm';
    var.is_data = name[0] == 'x';
    block.add_var(var);
  }
  block.append_op(op("mean", {{"X", {"x"}}}, {{"Out", {"t"}}}, OpRole::kForward));
  Operator add =
      op("elementwise_add", {{"X", {"m"}}, {"Y", {"t"}}}, {{"Out", {"m"}}}, OpRole::kForward);
  add.attrs = {{"axis", int64_t{-1}}};
  block.append_op(add);
  block.append_op(op("mean", {{"X", {"x"}}}, {{"Out", {"g"}}}, OpRole::kBackward));
  const Feed feed = {{"x", Tensor::from<float>({1, 3, 5, 7, 20, 30, 2, 4}, {8})}};
  for (const int shards : {1, 2, 4}) {
    Executor executor(CPUPlace(), {.logical_shards = shards});
    executor.scope().var("m") = Tensor::scalar(100.0f);
    executor.run(program, feed);
    EXPECT_EQ(executor.scope().tensor("m").item<float>(), 109) << shards;
    executor.run(program, feed);
    EXPECT_EQ(executor.scope().tensor("m").item<float>(), 118) << shards;
  }
}

TEST(CommunicationOps, AProgramWithoutThemTakesTheShardsOfTheRuntimeOnly) {
  const Mlp net;
  Executor attached;
  Executor plain(CPUPlace(), {.logical_shards = 4});
  const auto runtime = std::make_shared<RecordingRuntime>(StepShards{0, 4, 4});
  attached.set_comm_runtime(runtime);
  attached.run(net.startup);
  plain.run(net.startup);
  const float got = attached.run(net.main, batch(8, 0), {net.cost})[0].item<float>();
  EXPECT_EQ(got, plain.run(net.main, batch(8, 0), {net.cost})[0].item<float>());
  EXPECT_EQ(runtime->log, "");
}

}  // namespace
}  // namespace fleet::fluid
