#include "strategies/parameter_server/process_environment.h"

#include <algorithm>
#include <thread>

#include "base/strings.h"

namespace fleet::strategies {

NodeEnvironment make_environment(transport::AsioNetwork& network, transport::AsioLoop& data,
                                 transport::LoopThread& control) {
  NodeEnvironment environment;
  environment.network = &network;
  environment.data_loop = &data;
  environment.control_loop = &control.loop();
  environment.on_control = [&control](const std::function<void()>& work) {
    control.run_there(work);
  };
  environment.incarnation = transport::make_incarnation();
  return environment;
}

ProcessEnvironment::ProcessEnvironment(transport::TransportChoice transport, int yields,
                                       uint32_t data_lanes)
    : network_(transport),
      data_(yields),
      // Whoever drives the data loop fails with them.
      control_("control", {},
               [this](const Status& what) { data_.post([what] { what.throw_if_error(); }); }) {
  for (uint32_t lane = 1; lane < data_lanes; ++lane) {
    lanes_.push_back(std::make_unique<transport::LoopThread>(
        str_cat("lane ", lane), Logger(),
        [this](const Status& what) { data_.post([what] { what.throw_if_error(); }); },
        /*waits=*/true));
  }
}

void ProcessEnvironment::end_lanes() {
  for (const auto& lane : lanes_) {
    lane->run_there([] {});
    lane->stop_and_join();
  }
}

void ProcessEnvironment::end() {
  end_lanes();
  control_.stop_and_join();
}

NodeEnvironment ProcessEnvironment::node() {
  NodeEnvironment environment = make_environment(network_, data_, control_);
  for (const auto& lane : lanes_) environment.lane_loops.push_back(&lane->loop());
  environment.start_lanes = [this] {
    for (const auto& lane : lanes_) lane->start();
  };
  environment.end_lanes = [this] { end_lanes(); };
  environment.end_threads = [this] { end(); };
  environment.poll = [this] { data_.poll(); };
  // On two cores, which the workers need as well, other threads measured no better than none.
  const unsigned cores = std::thread::hardware_concurrency();
  environment.update_threads = cores < 4 ? 0 : std::min(4U, cores / 4);
  return environment;
}

}  // namespace fleet::strategies
