// A job whose processes are told their roles in the code: no launcher, no role variables. Start one
// process for each role by hand, on one machine or several:
//
//   export FLEET_JOB_SECRET=$(openssl rand -hex 32)     # the same for all
//   SERVERS=127.0.0.1:6170,127.0.0.1:6171
//   ./user_defined_roles server 0 2 $SERVERS &
//   ./user_defined_roles server 1 2 $SERVERS &
//   ./user_defined_roles worker 0 2 $SERVERS &
//   ./user_defined_roles worker 1 2 $SERVERS
//
// The arguments: role, index among those of the role, number of workers, all servers; a folder, if
// given, gets the model.

#include <cstdio>
#include <stdexcept>
#include <string>

#include "base/philox.h"
#include "base/strings.h"
#include "fleet/fleet.h"
#include "fluid/fluid.h"

namespace {

constexpr int kSteps = 100;

// y = the sum of x, with x drawn anew for each step.
fluid::Feed batch(int step, int worker) {
  constexpr int kRows = 16;
  constexpr int kWidth = 13;
  const auto key = fleet::RandomKey::of(static_cast<uint64_t>(worker), "rows");
  fluid::Tensor x(fluid::DType::kFloat32, {kRows, kWidth});
  fluid::Tensor y(fluid::DType::kFloat32, {kRows, 1});
  for (int r = 0; r < kRows; ++r) {
    float sum = 0;
    for (int i = 0; i < kWidth; ++i) {
      const int64_t index = int64_t{r} * kWidth + i;
      const float value =
          fleet::uniform_float(key, static_cast<uint64_t>(index), static_cast<uint64_t>(step));
      x.data<float>()[index] = value;
      sum += value;
    }
    y.data<float>()[r] = sum;
  }
  return {{"x", x}, {"y", y}};
}

role_maker::UserDefinedRoleMaker role_of(const std::string& role, const std::string& id,
                                         const std::string& workers, const std::string& servers) {
  if (role != "worker" && role != "server") {
    throw std::invalid_argument("the role must be worker or server, got '" + role + "'");
  }
  return role_maker::UserDefinedRoleMaker(
      {.current_id = std::stoi(id),
       .role = role == "worker" ? role_maker::Role::kWorker : role_maker::Role::kServer,
       .worker_num = std::stoi(workers),
       .server_endpoints = fleet::split(servers, ',')});
}

int train(role_maker::UserDefinedRoleMaker role, const std::string& model_dir) {
  auto x = fluid::layers::data("x", {13});
  auto y = fluid::layers::data("y", {1});
  auto cost = fluid::layers::mean(fluid::layers::square_error_cost(fluid::layers::fc(x, 1), y));
  fluid::optimizer::SGD sgd({.learning_rate = 0.01});

  fleet::init(role);
  auto optimizer = fleet::distributed_optimizer(sgd);
  optimizer.minimize(cost);
  if (fleet::is_server()) {
    fleet::init_server();
    return fleet::run_server();
  }
  fleet::init_worker();
  fluid::Executor exe(fluid::CPUPlace());
  exe.run(fluid::default_startup_program());
  for (int step = 0; step < kSteps; ++step) {
    auto result =
        exe.run(fluid::default_main_program(), batch(step, fleet::worker_index()), {cost});
    if (step != 0 && step != kSteps - 1) continue;
    std::printf("worker %d step %d cost %f\n", fleet::worker_index(), step + 1,
                result[0].item<double>());
  }
  if (!model_dir.empty()) fleet::save_persistables(exe, model_dir);
  fleet::stop_worker();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 && argc != 6) {
    std::fprintf(stderr, "usage: %s worker|server INDEX WORKERS HOST:PORT,... [FOLDER]\n", argv[0]);
    return 2;
  }
  try {
    return train(role_of(argv[1], argv[2], argv[3], argv[4]), argc == 6 ? argv[5] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
