// An op from outside the library, with its gradient: the activation snake(x) = x + sin(a x)^2 / a
// (Ziyin, Hartwig, Ueda: "Neural networks fail to learn periodic functions and how to fix it",
// NeurIPS 2020). A net of it learns a wave: alone, with servers, and collectively.
#include <cmath>

#include "base/philox.h"
#include "examples/quick_start/fleet_job.h"
#include "examples/quick_start/report.h"
#include "fluid/fluid.h"
#include "fluid/layers/parameters/layer_helper.h"
#include "fluid/ops/schema_util.h"

namespace {

constexpr int kTrainRows = 1024;
constexpr int kRows = 1280;
constexpr float kFrequency = 6;  // of the wave, in radians

struct SnakeAttrs {
  float a = 1;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(a));
  }
};

std::unique_ptr<fluid::Prepared> prepare_snake(fluid::PrepareContext& context) {
  const float a = context.attrs<SnakeAttrs>().a;
  const fluid::Shape shape = context.in("X").shape;
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, fluid::DType::kFloat32);
  return fluid::make_prepared([=, count = shape.numel()](const fluid::KernelContext& c) {
    for (int64_t i = 0; i < count; ++i) {
      const float sine = std::sin(a * c.in<float>(x)[i]);
      c.out<float>(out)[i] = c.in<float>(x)[i] + sine * sine / a;
    }
  });
}

// d snake(x) / dx = 1 + sin(2 a x)
std::unique_ptr<fluid::Prepared> prepare_snake_grad(fluid::PrepareContext& context) {
  const float a = context.attrs<SnakeAttrs>().a;
  const fluid::Shape shape = context.in("X").shape;
  const int x = context.input("X");
  const int incoming = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", shape, fluid::DType::kFloat32);
  return fluid::make_prepared([=, count = shape.numel()](const fluid::KernelContext& c) {
    for (int64_t i = 0; i < count; ++i) {
      const float slope = 1 + std::sin(2 * a * c.in<float>(x)[i]);
      c.out<float>(out)[i] = c.in<float>(incoming)[i] * slope;
    }
  });
}

// What the ops are, and what computes them.
std::shared_ptr<const fluid::OpLibrary> snake_library() {
  auto library = std::make_shared<fluid::OpLibrary>();
  library->ops().add(fluid::make_schema<SnakeAttrs>("snake", {fluid::one("X")}, {fluid::one("Out")},
                                                    fluid::infer_like({{"X", "Out"}}),
                                                    fluid::usual_gradient({.inputs = {"X"}})));
  library->ops().add(fluid::make_schema<SnakeAttrs>(
      "snake_grad", {fluid::one("X"), fluid::one("Out@GRAD")}, {fluid::one("X@GRAD")},
      fluid::infer_shape_like({{"X", "X@GRAD"}})));
  const auto cpu = fluid::DeviceKind::kCpu;
  const auto float32 = fluid::DType::kFloat32;
  library->kernels().add_last("snake", cpu, float32, {.name = "own", .prepare = prepare_snake});
  library->kernels().add_last("snake_grad", cpu, float32,
                              {.name = "own", .prepare = prepare_snake_grad});
  return library;
}

// The layer.
fluid::Variable snake(const fluid::Variable& x, float a) {
  const fluid::LayerHelper helper("snake");
  return helper.append_unary("snake", x, fluid::to_attributes(SnakeAttrs{.a = a}));
}

// x [rows, 1] in [-1, 1) and y = sin(6 x) of rows [begin, end).
fluid::Feed rows(int begin, int end) {
  const auto key = fleet::RandomKey::of(17, "custom_op");
  fluid::Tensor x(fluid::DType::kFloat32, {end - begin, 1});
  fluid::Tensor y(fluid::DType::kFloat32, {end - begin, 1});
  for (int row = begin; row < end; ++row) {
    const float at = 2 * fleet::uniform_float(key, static_cast<uint64_t>(row)) - 1;
    x.data<float>()[row - begin] = at;
    y.data<float>()[row - begin] = std::sin(kFrequency * at);
  }
  return {{"x", x}, {"y", y}};
}

int train(const quick_start::Options& options) {
  fluid::default_startup_program().set_random_seed(options.seed);
  fluid::default_main_program().set_op_library(snake_library());
  auto x = fluid::layers::data("x", {1});
  auto y = fluid::layers::data("y", {1});
  auto hidden = snake(fluid::layers::fc(x, 64), /*a=*/2);
  hidden = snake(fluid::layers::fc(hidden, 64), /*a=*/2);
  auto cost =
      fluid::layers::mean(fluid::layers::square_error_cost(fluid::layers::fc(hidden, 1), y));
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
  return quick_start::run_trainer(train, argc, argv, "Learns a wave with an activation of its own.",
                                  {.steps = 1000,
                                   .batch_size = 64,
                                   .learning_rate = 0.05,
                                   .input = quick_start::Input::kMadeUp});
}
