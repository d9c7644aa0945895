// Delay compensation of sparse gradients: each row by what its sender last saw of it.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "fluid/backward/regularizer.h"
#include "fluid/executor/executor.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "strategies/parameter_server/server/server_steps.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::strategies {
namespace {

namespace layers = fluid::layers;

constexpr int kTrainers = 2;
constexpr float kRate = 0.5F;
constexpr float kLambda = 2.0F;
constexpr float kDecay = 0.75F;
constexpr const char* kEndpoint = "127.0.0.1:6174";

// A server whose table [8, 1] holds 1, 2, …, 8.
class RowCompensation : public ::testing::Test {
 protected:
  void serve(const std::string& form, std::optional<fluid::Penalty> decay = {}) {
    fluid::Program main;
    fluid::Program startup;
    const fluid::ProgramGuard programs(main, startup);
    const fluid::unique_name::Guard names;
    const auto ids = layers::data("ids", {1}, fluid::DType::kInt64);
    const auto rows =
        layers::embedding(ids, {8, 1}, {.is_sparse = true, .param_attr = {.name = "table"}});
    fluid::optimizer::SGD({.learning_rate = kRate, .regularization = std::move(decay)})
        .minimize(layers::mean(rows));
    transpiler::DistributeTranspilerConfig config{.enable_dc_asgd = true,
                                                  .dc_asgd_form = form,
                                                  .dc_asgd_lambda = kLambda,
                                                  .sync_mode = false};
    if (form != "constant") config.dc_asgd_m = kDecay;
    transpiler::DistributeTranspiler transpiler(config);
    transpiler.transpile({.program = &main,
                          .pservers = kEndpoint,
                          .trainers = kTrainers,
                          .startup_program = &startup});
    server_ = transpiler.get_pserver_programs(kEndpoint);
    executor_.run(server_.startup);
    fluid::Tensor& table = executor_.scope().tensor("table");
    for (int64_t row = 0; row < 8; ++row) table.data<float>()[row] = static_cast<float>(row + 1);
    steps_ = std::make_unique<ServerSteps>(
        server_.main,
        read_server_program(server_.main, *server_.main.global_block().ops().back(),
                            fluid::ServerMode::kAsync, kTrainers),
        executor_.scope());
    model_ = steps_->make_model();
    for (uint32_t worker = 0; worker < kTrainers; ++worker) {
      see(worker, {0, 1, 2, 3, 4, 5, 6, 7});
    }
  }

  float row(int64_t index) const { return model_.shards[0]->read().data<float>()[index]; }

  void see(uint32_t worker, const std::vector<int64_t>& rows) {
    model_.on_rows(worker, 0, rows, model_.shards[0]->read());
  }

  void send(uint32_t worker, std::vector<int64_t> rows, const std::vector<float>& values) {
    const auto count = static_cast<int64_t>(rows.size());
    StateShard& shard = *model_.shards[0];
    shard.gradient() = fluid::SelectedRows{
        .rows = std::move(rows), .height = 8, .value = fluid::Tensor::from(values, {count, 1})};
    model_.on_sender(worker);
    shard.apply({.step = ++version_, .shards = 1});
  }

  fluid::Executor executor_;
  transpiler::ProgramPair server_;
  std::unique_ptr<ServerSteps> steps_;
  ServerModel model_;
  uint64_t version_ = 0;
};

TEST_F(RowCompensation, ComparesEachRowWithWhatItsSenderSaw) {
  serve("constant");
  send(1, {3}, {1});  // no delay
  EXPECT_EQ(row(3), 4 - kRate);
  // Worker 0 saw 4 in row 3, which came twice, and sees row 1 as it is.
  send(0, {3, 1, 3}, {0.25F, 1, 0.25F});
  const float moved = 4 - kRate;
  const float corrected = 0.5F + kLambda * 0.5F * 0.5F * (moved - 4);
  EXPECT_EQ(row(3), moved - kRate * corrected);
  EXPECT_EQ(row(1), 2 - kRate);
  // Having seen row 3 anew, it is not late there; in row 1 it is, by its own step.
  see(0, {3});
  const float before = row(3);
  send(0, {1, 3}, {1, 1});
  EXPECT_EQ(row(3), before - kRate);
  EXPECT_EQ(row(1), 2 - kRate - kRate * (1 + kLambda * -kRate));
  // Rows that nobody sent stay.
  EXPECT_EQ(row(0), 1);
  EXPECT_EQ(row(7), 8);
}

// Decay is of the values that the server has. Rows that were not sent are late by nothing.
TEST_F(RowCompensation, IsOfTheGradientThatCameAndNotOfDecay) {
  constexpr float kCoefficient = 0.25F;
  const auto decayed = [](float value, float gradient) {
    return value - kRate * (gradient + kCoefficient * value);
  };
  serve("constant", fluid::regularizer::L2Decay(kCoefficient));
  send(1, {3}, {1});
  const float moved = decayed(4, 1);
  EXPECT_EQ(row(3), moved);
  EXPECT_EQ(row(5), decayed(6, 0));
  send(0, {3}, {0.5F});
  EXPECT_EQ(row(3), decayed(moved, 0.5F + kLambda * 0.5F * 0.5F * (moved - 4)));
  EXPECT_EQ(row(5), decayed(decayed(6, 0), 0));
}

TEST_F(RowCompensation, AveragesTheSquaresOfTheRowsThatCame) {
  for (const bool clipped : {false, true}) {
    serve(clipped ? "clipped" : "adaptive");
    version_ = 0;
    float mean = 0;
    float value = 6;
    for (const float gradient : {1.0F, 2.0F, -3.0F}) {
      send(1, {2}, {gradient});  // another row: the mean of row 5 does not move
      mean = kDecay * mean + (1 - kDecay) * gradient * gradient;
      float ratio = kLambda * gradient * (value - 6) / std::sqrt(mean + 1e-7F);
      if (clipped) ratio = std::clamp(ratio, -1.0F, 1.0F);
      value -= kRate * (gradient + gradient * ratio);
      send(0, {5}, {gradient});
      EXPECT_FLOAT_EQ(row(5), value) << clipped << " " << gradient;
    }
  }
}

}  // namespace
}  // namespace fleet::strategies
