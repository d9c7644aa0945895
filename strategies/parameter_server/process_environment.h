// The loops and sockets of one process (or of one thread of a test) that takes part in a job.
#pragma once

#include <memory>
#include <vector>

#include "strategies/parameter_server/config.h"
#include "transport/link/asio_loop.h"
#include "transport/link/asio_network.h"

namespace fleet::strategies {

// For nodes that use a network, a data loop, whoever drives it, and a control loop with a thread of
// its own. All three must outlive them.
NodeEnvironment make_environment(transport::AsioNetwork& network, transport::AsioLoop& data,
                                 transport::LoopThread& control);

// A data loop for the owning thread to drive, and a control loop with a thread of its own; for
// servers, loops and threads for their data lanes after the first. Nodes that use it must be
// destroyed before it. What a handler of the other loops throws is thrown as an Error where the
// data loop is driven.
class ProcessEnvironment {
 public:
  explicit ProcessEnvironment(transport::TransportChoice transport, int yields = 0,
                              uint32_t data_lanes = 1);

  NodeEnvironment node();
  // Ends the threads. Nodes may still be destroyed, and do nothing else.
  void end();

 private:
  void end_lanes();

  transport::AsioNetwork network_;
  transport::AsioLoop data_;
  std::vector<std::unique_ptr<transport::LoopThread>> lanes_;
  transport::LoopThread control_;
};

}  // namespace fleet::strategies
