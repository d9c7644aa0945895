// A regression line through 13 features, as the first example of many a book has it. The rows are
// made up: y = x w + b with a little noise, so the test error tells whether w was found.
#include "base/philox.h"
#include "examples/quick_start/fleet_job.h"
#include "examples/quick_start/report.h"
#include "fluid/fluid.h"

namespace {

constexpr int kFeatures = 13;
constexpr int kRows = 506;
constexpr int kTrainRows = 404;
constexpr float kNoise = 0.1f;

// x [rows, 13] and y [rows, 1] of rows [begin, end).
fluid::Feed rows(int begin, int end) {
  const auto key = fleet::RandomKey::of(13, "fit_a_line");
  fluid::Tensor x(fluid::DType::kFloat32, {end - begin, kFeatures});
  fluid::Tensor y(fluid::DType::kFloat32, {end - begin, 1});
  constexpr int kMiddle = kFeatures / 2;
  for (int row = begin; row < end; ++row) {
    float* features = x.data<float>() + ptrdiff_t{row - begin} * kFeatures;
    float price = 2.0f;
    for (int i = 0; i < kFeatures; ++i) {
      const auto at = static_cast<uint64_t>(row) * kFeatures + static_cast<uint64_t>(i);
      features[i] = 2 * fleet::uniform_float(key, at) - 1;
      price += features[i] * static_cast<float>(i - kMiddle) / kFeatures;
    }
    const auto noise = fleet::normal_double(key, static_cast<uint64_t>(row), 1);
    y.data<float>()[row - begin] = price + kNoise * static_cast<float>(noise);
  }
  return {{"x", x}, {"y", y}};
}

int train(const quick_start::Options& options) {
  fluid::default_startup_program().set_random_seed(options.seed);
  auto x = fluid::layers::data("x", {kFeatures});
  auto y = fluid::layers::data("y", {1});
  auto price = fluid::layers::fc(x, 1);
  auto cost = fluid::layers::mean(fluid::layers::square_error_cost(price, y));
  auto test_program = fluid::default_main_program().clone(/*for_test=*/true);
  fluid::optimizer::SGD sgd({.learning_rate = options.learning_rate});

  fleet::init(quick_start::make_role_maker(options));
  auto optimizer = fleet::distributed_optimizer(sgd, quick_start::make_strategy(options));
  optimizer.minimize(cost);
  if (fleet::is_server()) return fleet::run_server();
  fleet::init_worker();

  fluid::Executor exe(fluid::place_named(options.place), {.logical_shards = options.shards});
  exe.run(fluid::default_startup_program());
  if (!options.init_from.empty()) fluid::io::load_persistables(exe, options.init_from);
  fluid::data::DataLoader loader(std::make_shared<fluid::data::TensorDataset>(rows(0, kTrainRows)),
                                 {.batch_size = options.batch_size,
                                  .seed = options.seed,
                                  .worker = fleet::worker_index(),
                                  .workers = fleet::worker_num(),
                                  .shards = options.shards});
  quick_start::Report report(options, quick_start::fleet_job());
  for (int step = 0; step < options.steps; ++step) {
    auto result = exe.run(fluid::default_main_program(), loader.next(), {cost});
    report.step(step, result[0].item<float>());
  }
  auto error = exe.run(test_program, rows(kTrainRows, kRows), {cost});
  report.finish({"squared error", error[0].item<double>()});
  if (!options.model_dir.empty()) fluid::io::save_persistables(exe, options.model_dir);
  fleet::stop_worker();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return quick_start::run_trainer(
      train, argc, argv, "Fits a line through made-up house prices.",
      {.steps = 400, .batch_size = 20, .learning_rate = 0.1, .input = quick_start::Input::kMadeUp});
}
