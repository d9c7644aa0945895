#include "examples/quick_start/data.h"
#include "examples/quick_start/fleet_job.h"
#include "examples/quick_start/nets.h"
#include "examples/quick_start/report.h"
#include "fluid/fluid.h"

int train(const quick_start::Options& options) {
  quick_start::Data data(options);
  fluid::default_startup_program().set_random_seed(options.seed);
  auto x = fluid::layers::data("x", {data.width()}, fluid::DType::kFloat32);
  auto y = fluid::layers::data("y", {1}, fluid::DType::kInt64);
  auto [cost, prediction] = quick_start::mlp(x, y, data.classes());
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
  quick_start::Report report(options, quick_start::fleet_job());
  for (auto step = fleet::resume(exe, checkpoints(options)).step; step < options.steps; ++step) {
    auto rows = data.batch(step, fleet::worker_index(), fleet::worker_num());
    auto result = exe.run(fluid::default_main_program(), rows, {cost});
    report.step(step, result[0].item<float>());
  }
  auto predictions = exe.run(test_program, data.test_set(), {prediction});
  report.finish(data.accuracy(predictions[0]));
  if (!options.model_dir.empty()) fluid::io::save_persistables(exe, options.model_dir);
  fleet::stop_worker();
  return 0;
}

int main(int argc, char** argv) {
  return quick_start::run_trainer(train, argc, argv, "Trains the quick-start net.");
}
