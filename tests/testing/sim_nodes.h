// What nodes of a simulated world are made with.
#pragma once

#include <memory>
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

// Whether every node has done its part, or the first has failed.
template <class Worker, class Server>
bool all_over(const std::vector<std::unique_ptr<Worker>>& workers,
              const std::vector<std::unique_ptr<Server>>& servers) {
  bool all = true;
  for (const auto& worker : workers) {
    if (!worker->failure().empty()) return true;
    all = all && worker->over();
  }
  for (const auto& server : servers) {
    if (!server->node().status().ok()) return true;
    all = all && server->node().finished();
  }
  return all;
}

}  // namespace fleet::testing
