// Trains the quick start's net on the digits, alone or as a worker or server of a job, and reports
// when the accuracy on the test rows reached a goal.

#include <algorithm>
#include <boost/program_options.hpp>
#include <chrono>
#include <fstream>
#include <iostream>

#include "examples/quick_start/data.h"
#include "examples/quick_start/fleet_job.h"
#include "examples/quick_start/nets.h"
#include "fluid/fluid.h"

namespace {

namespace po = boost::program_options;
using Clock = std::chrono::steady_clock;

struct Goal {
  double accuracy = 0;
  int every = 0;  // steps between two looks
  std::string report;
};

struct Reached {
  double seconds = 0;
  int steps = 0;  // 0: not yet
  double best = 0;
};

// The first worker looks, and all train to the end: none waits for one that stops early.
Reached train_to(const quick_start::Options& options, const Goal& goal, quick_start::Data& data,
                 const quick_start::Net& net, const fluid::Program& test, fluid::Executor& exe) {
  const fluid::Feed test_set = data.test_set();
  Reached reached;
  const auto start = Clock::now();
  for (int step = 0; step < options.steps; ++step) {
    exe.run(fluid::default_main_program(),
            data.batch(step, fleet::worker_index(), fleet::worker_num()), {net.cost});
    const bool looks = fleet::is_first_worker() && (step + 1) % goal.every == 0;
    if (!looks || reached.steps != 0) continue;
    const double accuracy = data.accuracy(exe.run(test, test_set, {net.prediction})[0]);
    reached.best = std::max(reached.best, accuracy);
    if (accuracy < goal.accuracy) continue;
    reached.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    reached.steps = step + 1;
  }
  return reached;
}

int train(const quick_start::Options& options, const Goal& goal) {
  quick_start::Data data(options);
  fluid::default_startup_program().set_random_seed(options.seed);
  const auto x = fluid::layers::data("x", {data.width()}, fluid::DType::kFloat32);
  const auto y = fluid::layers::data("y", {1}, fluid::DType::kInt64);
  const quick_start::Net net = quick_start::mlp(x, y, data.classes());
  const fluid::Program test = fluid::default_main_program().clone(/*for_test=*/true);
  fluid::optimizer::SGD sgd({.learning_rate = options.learning_rate});
  fleet::init(role_maker::PaddleCloudRoleMaker());
  auto optimizer = fleet::distributed_optimizer(sgd, quick_start::make_strategy(options));
  optimizer.minimize(net.cost);
  if (fleet::is_server()) return fleet::run_server();
  fleet::init_worker();
  fluid::Executor exe(fluid::CPUPlace(), {.logical_shards = options.shards});
  exe.run(fluid::default_startup_program());
  const Reached reached = train_to(options, goal, data, net, test, exe);
  const bool first = fleet::is_first_worker();
  fleet::stop_worker();
  if (!first) return 0;
  std::ofstream file(goal.report);
  file << "{\"seconds\": " << reached.seconds << ", \"steps\": " << reached.steps
       << ", \"best\": " << reached.best << "}\n";
  return file.flush() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  quick_start::Options options;
  Goal goal;
  po::options_description flags("Options");
  auto add = flags.add_options();
  add("data_dir", po::value(&options.data_dir)->required(), "folder of the digits");
  add("strategy", po::value(&options.strategy)->default_value("default"),
      "how a job trains, as the quick start names it");
  add("seed", po::value(&options.seed)->default_value(1), "of the initial values and of the order");
  add("batch_size", po::value(&options.batch_size)->default_value(64), "rows of a whole step");
  add("learning_rate", po::value(&options.learning_rate)->default_value(0.2), "step size");
  add("steps", po::value(&options.steps)->default_value(1000), "steps of each worker");
  add("every", po::value(&goal.every)->default_value(25), "steps between two looks at the goal");
  add("accuracy", po::value(&goal.accuracy)->default_value(0.96), "the goal");
  add("report", po::value(&goal.report)->default_value("report"), "file that it writes");
  add("help", "print this text");
  try {
    po::variables_map given;
    po::store(po::parse_command_line(argc, argv, flags), given);
    if (given.count("help") != 0) {
      std::cout << "Trains on the digits until they are known well enough.\n\n" << flags << "\n";
      return 0;
    }
    po::notify(given);
    return train(options, goal);
  } catch (const po::error& error) {
    std::cerr << "error: " << error.what() << "\n  fix: see --help\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
