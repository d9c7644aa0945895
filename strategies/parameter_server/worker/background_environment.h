// The loops and sockets of one worker whose requests go on while trainer threads compute.
#pragma once

#include <functional>

#include "strategies/parameter_server/config.h"
#include "strategies/parameter_server/worker/shared_loop.h"
#include "transport/link/asio_loop.h"
#include "transport/link/asio_network.h"

namespace fleet::strategies {

// A data loop that trainers share with a thread of its own, and a control loop with a thread. Nodes
// that use it must be destroyed before it, on the data loop.
class BackgroundEnvironment {
 public:
  // `on_exception` gets what a handler of the data loop threw, on that loop's thread.
  BackgroundEnvironment(transport::TransportChoice transport, transport::OnException on_exception);

  NodeEnvironment node();
  SharedLoop& data() { return data_; }
  void post(std::function<void()> work) { data_.loop().post(std::move(work)); }
  // Ends both threads. Nodes may still be destroyed, and do nothing else.
  void end();

 private:
  transport::AsioNetwork network_;
  transport::LoopThread control_;
  SharedLoop data_;
};

}  // namespace fleet::strategies
