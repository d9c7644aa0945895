// What nodes of a simulated world are made with.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "strategies/parameter_server/config.h"
#include "transport/sim/sim_loop.h"

namespace fleet::testing {

// A node on one loop of the world; `node` tells it from the others.
inline strategies::NodeEnvironment sim_environment(transport::SimWorld& world,
                                                   transport::SimLoop& loop, uint64_t node) {
  strategies::NodeEnvironment environment;
  environment.network = &world;
  environment.data_loop = &loop;
  environment.control_loop = &loop;
  environment.on_control = [](const std::function<void()>& work) { work(); };
  environment.random =
      [state = mix64(world.seed() * 64 + node)](transport::MutableBytes bytes) mutable {
        for (std::byte& byte : bytes) {
          state = mix64(state);
          byte = static_cast<std::byte>(state & 0xff);
        }
      };
  environment.incarnation = mix64(world.seed() * 128 + node) | 1U;
  return environment;
}

inline strategies::ParameterServerConfig sim_config(uint32_t index, uint32_t workers,
                                                    uint32_t servers) {
  strategies::ParameterServerConfig config;
  config.index = index;
  config.worker_num = workers;
  for (uint32_t i = 0; i < servers; ++i) {
    config.servers.push_back({"sim", static_cast<uint16_t>(7000 + i)});
  }
  config.job_id = "simulated";
  config.secret = transport::Secret::of_text("a secret of the simulation", "test");
  return config;
}

inline Logger counting_lost_lanes(uint64_t& count) {
  return Logger(LogLevel::kDebug, [&count](LogLevel, std::string_view line) {
    if (line.find("a data lane closed") != std::string_view::npos) ++count;
  });
}

// Whether something that stays true once it is true holds for every node, where node i runs on loop
// i. Asked after every event, it looks at the one node that the event can have changed.
class EveryNode {
 public:
  EveryNode(const transport::SimWorld& world, size_t nodes, std::function<bool(size_t node)> holds)
      : world_(world), holds_(std::move(holds)), held_(nodes, false), missing_(nodes) {}

  bool operator()() {
    if (!std::exchange(asked_, true)) {
      for (size_t node = 0; node < held_.size(); ++node) ask(node);
    } else if (const transport::SimLoop* const loop = world_.last_loop(); loop != nullptr) {
      ask(loop->index());
    }
    return missing_ == 0;
  }

 private:
  void ask(size_t node) {
    if (held_[node] || !holds_(node)) return;
    held_[node] = true;
    --missing_;
  }

  const transport::SimWorld& world_;
  std::function<bool(size_t node)> holds_;
  std::vector<bool> held_;
  size_t missing_ = 0;
  bool asked_ = false;
};

// Whether every node has done its part, or the first has failed. Servers were made before workers.
template <class Worker, class Server>
std::function<bool()> all_over(const transport::SimWorld& world,
                               const std::vector<std::unique_ptr<Worker>>& workers,
                               const std::vector<std::unique_ptr<Server>>& servers) {
  auto failed = std::make_shared<bool>(false);
  EveryNode every(world, servers.size() + workers.size(), [&, failed](size_t node) {
    if (node < servers.size()) {
      *failed = *failed || !servers[node]->node().status().ok();
      return servers[node]->node().finished();
    }
    const Worker& worker = *workers[node - servers.size()];
    *failed = *failed || !worker.failure().empty();
    return worker.over();
  });
  return [every, failed]() mutable { return every() || *failed; };
}

}  // namespace fleet::testing
