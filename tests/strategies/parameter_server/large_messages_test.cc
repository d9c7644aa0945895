// Control messages of jobs that are far beyond what one frame may have.
#include <future>
#include <gtest/gtest.h>
#include <thread>

#include "base/strings.h"
#include "strategies/parameter_server/client/blocking_worker_node.h"
#include "strategies/parameter_server/process_environment.h"
#include "strategies/parameter_server/server/server_node.h"
#include "strategies/parameter_server/server/sync_parameter_server.h"

namespace fleet::strategies {
namespace {

constexpr uint32_t kVariables = 100'000;
constexpr size_t kNumbers = 10'000'000;
constexpr uint32_t kWorkers = 2;

std::string name_of(uint32_t variable) {
  return str_cat("encoder.layer_", variable, ".self_attention.output.weight");
}

ParameterServerConfig config_of(uint32_t index, const Endpoint& server) {
  ParameterServerConfig config;
  config.index = index;
  config.worker_num = kWorkers;
  config.servers = {server};
  config.job_id = "large messages";
  config.secret = transport::Secret::of_text("a secret among threads", "test");
  return config;
}

// One server, on a thread of its own.
class LargeMessages : public ::testing::Test {
 protected:
  void SetUp() override {
    serving_ = std::thread([this] { serve(); });
    server_ = bound_.get_future().get();
  }
  void TearDown() override { serving_.join(); }

  void serve() {
    ProcessEnvironment environment(transport::TransportChoice::kAuto);
    fluid::Tensor value = fluid::Tensor::from(std::vector<float>{1}, {1});
    ServerModel model;
    for (uint32_t i = 0; i < kVariables; ++i) {
      ParameterEntry entry;
      entry.name = entry.origin = name_of(i);
      entry.shape = entry.origin_shape = {1};
      model.parameter_index.entries.push_back(std::move(entry));
      model.tensors.push_back(&value);
    }
    const ParameterServerConfig config = config_of(0, {"127.0.0.1", 0});
    ServerNode node(environment.node(), config, [&](ServingEvents events) {
      return std::make_unique<SyncParameterServer>(config, std::move(model), std::move(events));
    });
    node.start().throw_if_error();
    bound_.set_value(node.bound());
    EXPECT_NO_THROW(node.serve());
  }

  // Both workers at once; the second one on a thread of its own.
  void train(const std::function<void(BlockingWorkerNode&, uint32_t)>& work) {
    const auto run = [&](uint32_t index) {
      ProcessEnvironment environment(transport::TransportChoice::kAuto);
      BlockingWorkerNode node(environment.node(), config_of(index, server_));
      node.start();
      EXPECT_NO_THROW({
        node.wait(transport::Phase::kConnecting, "init_worker");
        work(node, index);
        node.stop();
      });
    };
    std::thread second(run, 1);
    run(0);
    second.join();
  }

  std::promise<Endpoint> bound_;
  Endpoint server_;
  std::thread serving_;
};

TEST_F(LargeMessages, AParameterIndexOfAHundredThousandVariablesArrives) {
  train([](BlockingWorkerNode& node, uint32_t) {
    ASSERT_EQ(node.client().parameter_index(0).entries.size(), kVariables);
    for (uint32_t i = 0; i < kVariables; ++i) {
      ASSERT_EQ(node.client().find(0, name_of(i)).variable, i);
    }
  });
}

TEST_F(LargeMessages, WorkersReduceTenMillionNumbers) {
  train([](BlockingWorkerNode& node, uint32_t index) {
    std::vector<double> values(kNumbers);
    for (size_t i = 0; i < kNumbers; ++i) values[i] = static_cast<double>(i + index);
    const auto sum = node.all_reduce(transport::Group::kWorkers, "numbers", values);
    ASSERT_EQ(sum.size(), kNumbers);
    size_t wrong = 0;
    for (size_t i = 0; i < kNumbers; ++i) wrong += sum[i] == static_cast<double>(2 * i + 1) ? 0 : 1;
    EXPECT_EQ(wrong, 0U);
  });
}

TEST_F(LargeMessages, WorkersGatherLongTexts) {
  train([](BlockingWorkerNode& node, uint32_t index) {
    const std::vector<std::string> mine = {std::string(3'000'000 + index, 'a')};
    const auto all = node.member().reduce(transport::Group::kWorkers, "texts",
                                          transport::ReduceOp::kGather, mine);
    const auto& texts = std::get<std::vector<std::string>>(all.value());
    ASSERT_EQ(texts.size(), kWorkers);
    for (uint32_t i = 0; i < kWorkers; ++i) EXPECT_EQ(texts[i].size(), 3'000'000 + i);
  });
}

}  // namespace
}  // namespace fleet::strategies
