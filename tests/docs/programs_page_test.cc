// What docs/programs.md shows is compiled and run here: each block of the page is what stands
// between two marks of this file.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "fluid/fluid.h"
#include "fluid/program/graphviz.h"
#include "tests/docs/page_blocks.h"

namespace {

namespace layers = fluid::layers;
namespace data = fluid::data;
using fleet::testing::blocks_shown;
using fleet::testing::blocks_that_run;
using fluid::DType;
using fluid::Shape;
using fluid::Tensor;

// A folder and programs of a test's own.
class ProgramsPage : public ::testing::Test {
 protected:
  ProgramsPage() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    std::filesystem::current_path(folder_);
  }
  ~ProgramsPage() override {
    std::filesystem::current_path(folder_.parent_path());
    std::filesystem::remove_all(folder_);
  }

  static fluid::Feed batch() {
    return {{"x", Tensor::zeros(DType::kFloat32, Shape{8, 32})},
            {"y", Tensor::zeros(DType::kInt64, Shape{8, 1})}};
  }

 private:
  std::filesystem::path folder_ = std::filesystem::temp_directory_path() /
                                  (std::string("programs_page_") +
                                   ::testing::UnitTest::GetInstance()->current_test_info()->name());
  fluid::Program main_;
  fluid::Program startup_;
  fluid::ProgramGuard programs_{main_, startup_};
  fluid::unique_name::Guard names_;
};

TEST_F(ProgramsPage, BuildsTrainsAndTests) {
  // [
  auto x = layers::data("x", {32});
  auto y = layers::data("y", {1}, DType::kInt64);
  auto h = layers::fc(x, 64, {.act = "relu"});
  auto logits = layers::fc(h, 10,
                           {.param_attr = {.name = "out_w",
                                           .initializer = fluid::initializer::Xavier{},
                                           .learning_rate = 0.5,
                                           .regularizer = fluid::regularizer::L2Decay(1e-3)},
                            .bias_attr = {.initializer = fluid::initializer::Constant{0.1}}});
  auto loss = layers::mean(layers::softmax_with_cross_entropy(logits, y));
  auto accuracy = layers::accuracy(layers::softmax(logits), y);
  // ]
  // [
  fluid::Program test = fluid::default_main_program().clone(true);
  auto rate = layers::linear_lr_warmup(layers::cosine_decay(0.1, 100, 5), 50, 0.0, 0.1);
  fluid::optimizer::Momentum optimizer({.learning_rate = rate,
                                        .momentum = 0.9,
                                        .regularization = fluid::regularizer::L2Decay(1e-4),
                                        .grad_clip = fluid::clip::GradientClipByGlobalNorm(1.0)});
  optimizer.minimize(loss);
  // ]
  // [
  fluid::Executor exe(fluid::CPUPlace());
  exe.run(fluid::default_startup_program());
  for (int step = 0; step < 3; ++step) {
    auto results = exe.run(batch(), {loss});
    std::printf("step %d loss %f\n", step, results[0].item<float>());
  }
  auto score = exe.run(test, batch(), {accuracy})[0].item<float>();
  // ]
  EXPECT_GE(score, 0.0F);
  EXPECT_LE(score, 1.0F);
}

TEST_F(ProgramsPage, ReadsData) {
  std::ofstream("flowers.csv") << "length,width,kind\n5.1,3.5,setosa\n6.2,2.9,virginica\n"
                               << "4.9,3.0,setosa\n5.9,3.0,virginica\n";
  std::ofstream("labels.idx", std::ios::binary)
      << std::string("\0\0\x08\x01\0\0\0\x04\1\2\3\4", 12);
  // [
  auto table = data::CsvTable::load("flowers.csv");
  std::vector<std::string> kinds;
  const std::vector<std::string> measures = {"length", "width"};
  auto flowers = std::make_shared<data::TensorDataset>(fluid::Feed{
      {"x", table.numbers(measures, DType::kFloat32)}, {"y", table.categories("kind", kinds)}});
  Tensor labels = data::load_idx("labels.idx");  // or labels.idx.gz, labels.idx.zst
  data::save_npy(labels, "labels.npy");
  Tensor again = data::load_npy("labels.npy");
  // ]
  EXPECT_THAT(kinds, ::testing::ElementsAre("setosa", "virginica"));
  EXPECT_EQ(again.numel(), 4);

  auto x = layers::data("x", {2});
  auto y = layers::data("y", {1}, DType::kInt64);
  auto loss = layers::mean(layers::softmax_with_cross_entropy(layers::fc(x, 2), y));
  fluid::optimizer::SGD({.learning_rate = 0.1}).minimize(loss);
  fluid::Executor exe(fluid::CPUPlace());
  exe.run(fluid::default_startup_program());
  // [
  data::DataLoader loader(flowers, {.batch_size = 2, .shuffle = true, .seed = 1, .threads = 2});
  for (int64_t step = 0; step < 3 * loader.steps_per_epoch(); ++step) {
    exe.run(fluid::default_main_program(), loader.next(), {loss});
  }
  int64_t position = loader.position();  // save it beside the parameters
  loader.seek(position);                 // and go on there
  // ]
  EXPECT_EQ(position, 6);
  // [
  data::Sampler sampler({.rows = 1000, .batch_size = 64, .seed = 1, .worker = 1, .workers = 4});
  std::vector<int64_t> mine = sampler.rows_of(0);  // 16 rows of step 0
  // ]
  EXPECT_EQ(mine.size(), 16U);
}

TEST_F(ProgramsPage, SavesAndLoads) {
  auto x = layers::data("x", {32});
  auto y = layers::data("y", {1}, DType::kInt64);
  auto prediction = layers::softmax(layers::fc(x, 10));
  auto loss = layers::mean(layers::cross_entropy(prediction, y));
  fluid::optimizer::Adam({.learning_rate = 0.01}).minimize(loss);
  fluid::Executor exe(fluid::CPUPlace());
  exe.run(fluid::default_startup_program());
  exe.run(fluid::default_main_program(), batch(), {loss});
  // [
  fluid::io::save_persistables(exe, "checkpoint");
  fluid::io::load_persistables(exe, "checkpoint");
  // ]
  // [
  fluid::io::save_inference_model("model", {"x"}, {prediction}, exe);

  fluid::Executor other(fluid::CPUPlace());
  auto model = fluid::io::load_inference_model("model", other);
  Tensor rows = Tensor::zeros(DType::kFloat32, Shape{3, 32});
  auto results = other.run(model.program, {{model.feeds[0], rows}}, {model.fetches[0]});
  // ]
  EXPECT_EQ(results[0].shape(), (Shape{3, 10}));
  // [
  const std::vector<std::string> targets = {prediction.name()};
  fluid::Program small = fluid::default_main_program().clone(true).prune(targets);
  // ]
  EXPECT_LT(small.global_block().op_count(),
            fluid::default_main_program().global_block().op_count());
}

TEST_F(ProgramsPage, LooksInside) {
  auto x = layers::data("x", {32});
  auto y = layers::data("y", {1}, DType::kInt64);
  // [
  auto h = layers::Print(layers::fc(x, 64), {.first_n = 1, .message = "hidden", .summarize = 4});
  // ]
  auto loss = layers::mean(layers::softmax_with_cross_entropy(h, y));
  // [
  std::cout << fluid::default_main_program().to_string();
  std::ofstream("net.dot") << fluid::to_graphviz(fluid::default_main_program());
  // ]
  // [
  fluid::Executor strict(fluid::CPUPlace(), {.check_nan_inf = true});
  // ]
  strict.run(fluid::default_startup_program());
  strict.run(fluid::default_main_program(), batch(), {loss});
  EXPECT_GT(std::filesystem::file_size("net.dot"), 0U);
}

TEST(ProgramsPageText, ShowsWhatIsRunHere) {
  const auto run = blocks_that_run("tests/docs/programs_page_test.cc");
  EXPECT_EQ(blocks_shown("docs/programs.md"), run);
  EXPECT_GE(run.size(), 10U);
}

}  // namespace
