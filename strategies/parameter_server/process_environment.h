// The loops and sockets of one process (or of one thread of a test) that takes part in a job.
#pragma once

#include <memory>

#include "strategies/parameter_server/config.h"
#include "transport/link/asio_loop.h"
#include "transport/link/asio_network.h"

namespace fleet::strategies {

// A data loop for the owning thread to drive, and a control loop with a thread of its own. Nodes
// that use it must be destroyed before it. What a handler of the control loop throws is thrown as
// an Error where the data loop is driven.
class ProcessEnvironment {
 public:
  explicit ProcessEnvironment(transport::TransportChoice transport, int offers = 0);

  NodeEnvironment node();
  // Ends the control loop's thread. Nodes may still be destroyed, and do nothing else.
  void end() { control_.stop_and_join(); }

 private:
  transport::AsioNetwork network_;
  transport::AsioLoop data_;
  transport::LoopThread control_;
};

}  // namespace fleet::strategies
