// A rank of a collective job on an emulated device, which sums by a double of NCCL, for tests that
// start real processes: the double's ranks reach each other by files.
//
//   --files DIR                 of the double
//   --steps N                   default 20
//   --device_sums WORD, --communicators N, --groups N, --bucket_bytes N    of the strategy
//   --trouble_at STEP --trouble_worker W --trouble kill|stop|call|device   in that step, that
//                worker kills or stops itself inside of NCCL, its call does not return, or its
//                device does not come to the operation
//   --save DIR                  at the end
#include <atomic>
#include <csignal>
#include <cstdio>
#include <map>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/philox.h"
#include "base/strings.h"
#include "fleet/fleet.h"
#include "fluid/core/device_memory.h"
#include "fluid/fluid.h"
#include "tests/testing/device/emulated_device.h"
#include "tests/transport/nccl/fake_nccl.h"
#include "transport/nccl/cuda_queue.h"

namespace {

using Flags = std::map<std::string, std::string>;
using fleet::transport::testing::FakeFiles;
using fleet::transport::testing::FakeNccl;
using fleet::transport::testing::FakeQueue;
using fleet::transport::testing::FakeWorld;

constexpr int kRows = 8;
constexpr int kWidth = 6;

std::string g_files;                        // of the double
std::atomic<bool> g_device_stands = false;  // and does not go on

FakeWorld& world() {
  static const auto kWorld =
      std::make_shared<FakeWorld>(fleet::worker_num(), std::make_shared<FakeFiles>(g_files));
  return *kWorld;
}

void stand_still() {
  while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
}

Flags parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i + 1 < argc; i += 2) flags[argv[i]] = argv[i + 1];
  return flags;
}

std::string word(const Flags& flags, const std::string& name, const std::string& otherwise) {
  const auto found = flags.find(name);
  return found == flags.end() ? otherwise : found->second;
}

int number(const Flags& flags, const std::string& name, int otherwise) {
  return std::stoi(word(flags, name, std::to_string(otherwise)));
}

void begin_trouble(const std::string& kind) {
  std::fprintf(stderr, "trouble: %s\n", kind.c_str());
  if (kind == "kill") world().on_call([] { std::raise(SIGKILL); });
  if (kind == "stop") world().on_call([] { std::raise(SIGSTOP); });
  if (kind == "call") world().on_call(stand_still);
  if (kind == "device") g_device_stands = true;
}

fluid::Feed batch(int step, int worker) {
  std::vector<float> x;
  std::vector<float> y;
  const auto key = fleet::RandomKey::of(static_cast<uint64_t>(worker), "rows");
  for (int row = 0; row < kRows; ++row) {
    float sum = 0;
    for (int i = 0; i < kWidth; ++i) {
      const auto at = static_cast<uint64_t>(row) * kWidth + static_cast<uint64_t>(i);
      x.push_back(fleet::uniform_float(key, at, static_cast<uint64_t>(step)));
      sum += x.back();
    }
    y.push_back(sum);
  }
  return {{"x", fluid::Tensor::from(x, {kRows, kWidth})},
          {"y", fluid::Tensor::from(y, {kRows, 1})}};
}

strategies::GradAllReduceStrategy strategy_of(const Flags& flags) {
  const int groups = number(flags, "--groups", 0);
  return {.bucket_bytes = number(flags, "--bucket_bytes", 64),
          .device_sums = word(flags, "--device_sums", "ordered"),
          .nccl_comm_num = number(flags, "--communicators", 1),
          .use_hierarchical_allreduce = groups > 0,
          .hierarchical_allreduce_inter_nranks = groups};
}

int train(const Flags& flags) {
  fluid::default_startup_program().set_random_seed(7);
  auto x = fluid::layers::data("x", {kWidth}, fluid::DType::kFloat32);
  auto y = fluid::layers::data("y", {1}, fluid::DType::kFloat32);
  auto hidden = fluid::layers::fc(x, 8, {.act = "tanh"});
  auto cost =
      fluid::layers::mean(fluid::layers::square_error_cost(fluid::layers::fc(hidden, 1), y));
  fluid::optimizer::SGD sgd({.learning_rate = 0.05});
  fleet::init(role_maker::PaddleCloudRoleMaker());
  auto optimizer = fleet::distributed_optimizer(sgd, strategy_of(flags));
  optimizer.minimize(cost);
  fleet::init_worker();
  const auto kernels = fleet::testing::kernels_with_device_ops([](const auto&) { return true; });
  fluid::Executor exe(fluid::CUDAPlace(0), {.kernels = &kernels});
  exe.run(fluid::default_startup_program());
  const int worker = fleet::worker_index();
  const int steps = number(flags, "--steps", 20);
  float loss = 0;
  for (int step = 0; step < steps; ++step) {
    const bool is_turn =
        number(flags, "--trouble_at", -1) == step && number(flags, "--trouble_worker", 0) == worker;
    if (is_turn) begin_trouble(word(flags, "--trouble", ""));
    loss = exe.run(fluid::default_main_program(), batch(step, worker), {cost})[0].item<float>();
  }
  if (flags.contains("--save")) fluid::io::save_persistables(exe, flags.at("--save"));
  fleet::stop_worker();
  std::printf("worker %d ended after %d steps with loss %g, %llu bytes by the double\n", worker,
              steps, static_cast<double>(loss),
              static_cast<unsigned long long>(world().bytes_sent(worker)));
  return 0;
}

}  // namespace

// In place of those of transport/nccl.
namespace fleet::transport {

Result<std::shared_ptr<Nccl>> load_nccl(const std::string&) {
  const std::shared_ptr<FakeWorld> shared(&world(), [](const FakeWorld*) {});
  return std::shared_ptr<Nccl>(std::make_shared<FakeNccl>(shared, fleet::worker_index()));
}

std::unique_ptr<DeviceQueue> make_cuda_queue(int device, void*) {
  const auto take = [] { return std::make_shared<const fleet::testing::DeviceAccess>(); };
  const auto compute = [] {
    while (g_device_stands) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  return std::make_unique<FakeQueue>(fluid::allocator_of(fluid::CUDAPlace(device)), take, compute);
}

}  // namespace fleet::transport

int main(int argc, char** argv) {
  const Flags flags = parse(argc, argv);
  g_files = word(flags, "--files", ".");
  fleet::testing::emulate_two_devices();
  try {
    return train(flags);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
