#include "strategies/parameter_server/process_environment.h"

#include <algorithm>
#include <thread>

namespace fleet::strategies {

ProcessEnvironment::ProcessEnvironment(transport::TransportChoice transport, int offers)
    : network_(transport),
      data_(offers),
      // Whoever drives the data loop fails with it.
      control_("control", {},
               [this](const Status& what) { data_.post([what] { what.throw_if_error(); }); }) {}

NodeEnvironment ProcessEnvironment::node() {
  NodeEnvironment environment;
  environment.network = &network_;
  environment.data_loop = &data_;
  environment.control_loop = &control_.loop();
  environment.on_control = [this](const std::function<void()>& work) { control_.run_there(work); };
  environment.end_threads = [this] { end(); };
  environment.poll = [this] { data_.poll(); };
  // On two cores, which the workers need as well, other threads measured no better than none.
  const unsigned cores = std::thread::hardware_concurrency();
  environment.update_threads = cores < 4 ? 0 : std::min(4U, cores / 4);
  environment.incarnation = transport::make_incarnation();
  return environment;
}

}  // namespace fleet::strategies
