#include "strategies/parameter_server/worker/background_environment.h"

#include <utility>

namespace fleet::strategies {

BackgroundEnvironment::BackgroundEnvironment(transport::TransportChoice transport,
                                             transport::OnException on_exception)
    : network_(transport), control_("control"), data_("data", {}, std::move(on_exception)) {}

NodeEnvironment BackgroundEnvironment::node() {
  NodeEnvironment environment;
  environment.network = &network_;
  environment.data_loop = &data_.loop();
  environment.control_loop = &control_.loop();
  environment.on_control = [this](const std::function<void()>& work) { control_.run_there(work); };
  environment.end_threads = [this] { end(); };
  environment.incarnation = transport::make_incarnation();
  return environment;
}

void BackgroundEnvironment::end() {
  data_.end();
  control_.stop_and_join();
}

}  // namespace fleet::strategies
