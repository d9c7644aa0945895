#include "examples/mnist/mnist.h"

#include <algorithm>
#include <optional>

#include "examples/quick_start/fleet_job.h"
#include "examples/quick_start/report.h"

namespace mnist {
namespace {

constexpr int64_t kTestRows = 1000;

struct Data {
  std::shared_ptr<fluid::data::Dataset> train;
  fluid::Feed test;
};

Data load(const std::string& folder) {
  const auto pixels = fluid::data::load_idx(folder + "/t10k-images-idx3-ubyte.gz");
  const auto classes = fluid::data::load_idx(folder + "/t10k-labels-idx1-ubyte.gz");
  const int64_t rows = pixels.shape()[0];
  fluid::Tensor image(fluid::DType::kFloat32, {rows, 1, 28, 28});
  fluid::Tensor label(fluid::DType::kInt64, {rows, 1});
  std::transform(pixels.data<uint8_t>(), pixels.data<uint8_t>() + pixels.numel(),
                 image.data<float>(),
                 [](uint8_t pixel) { return static_cast<float>(pixel) / 255.0f; });
  std::copy_n(classes.data<uint8_t>(), rows, label.data<int64_t>());
  const int64_t split = rows - kTestRows;
  return {std::make_shared<fluid::data::TensorDataset>(
              fluid::Feed{{"image", image.rows(0, split)}, {"label", label.rows(0, split)}}),
          {{"image", image.rows(split, rows)}, {"label", label.rows(split, rows)}}};
}

double accuracy(const fluid::Tensor& prediction, const fluid::Tensor& label) {
  const auto classes = prediction.shape()[1];
  int64_t right = 0;
  for (int64_t i = 0; i < label.numel(); ++i) {
    const float* row = prediction.data<float>() + i * classes;
    right += std::max_element(row, row + classes) - row == label.data<int64_t>()[i];
  }
  return static_cast<double>(right) / static_cast<double>(label.numel());
}

}  // namespace

int train(const quick_start::Options& options, MakeNet make_net) {
  fluid::default_startup_program().set_random_seed(options.seed);
  auto image = fluid::layers::data("image", {1, 28, 28});
  auto label = fluid::layers::data("label", {1}, fluid::DType::kInt64);
  auto [cost, prediction] = make_net(image, label);
  auto test_program = fluid::default_main_program().clone(/*for_test=*/true);
  // To nothing at the last step: what the last batches happen to hold counts little.
  auto rate = fluid::layers::polynomial_decay(options.learning_rate, options.steps, 0.0);
  fluid::optimizer::Adam adam({.learning_rate = rate});

  fleet::init(quick_start::make_role_maker(options));
  fluid::optimizer::Optimizer* chosen = &adam;
  std::optional<fluid::mixed_precision::OptimizerWithMixedPrecision> mixed;
  if (options.amp != "off") {
    const bool half = options.amp == "float16";
    const auto dtype = half ? fluid::DType::kFloat16 : fluid::DType::kBFloat16;
    chosen = &mixed.emplace(adam, fluid::mixed_precision::Options{.dtype = dtype});
  }
  auto optimizer = fleet::distributed_optimizer(*chosen, quick_start::make_strategy(options));
  optimizer.minimize(cost);
  if (fleet::is_server()) return fleet::run_server();
  fleet::init_worker();

  fluid::Executor exe(fluid::place_named(options.place), {.logical_shards = options.shards});
  exe.run(fluid::default_startup_program());
  if (!options.init_from.empty()) fluid::io::load_persistables(exe, options.init_from);
  const Data data = load(options.data_dir);
  fluid::data::DataLoader loader(data.train, {.batch_size = options.batch_size,
                                              .seed = options.seed,
                                              .worker = fleet::worker_index(),
                                              .workers = fleet::worker_num(),
                                              .shards = options.shards});
  quick_start::Report report(options, quick_start::fleet_job());
  for (int step = 0; step < options.steps; ++step) {
    auto result = exe.run(fluid::default_main_program(), loader.next(), {cost});
    report.step(step, result[0].item<float>());
  }
  auto predictions = exe.run(test_program, data.test, {prediction});
  report.finish(accuracy(predictions[0], data.test[1].second));
  if (!options.model_dir.empty()) fluid::io::save_persistables(exe, options.model_dir);
  fleet::stop_worker();
  return 0;
}

}  // namespace mnist
