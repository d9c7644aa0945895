// Communicators among threads of one process, for tests and simulations of many ranks.
#pragma once

#include <memory>

#include "transport/collective/collective.h"

namespace fleet::transport {

class InProcessGroup {
 public:
  explicit InProcessGroup(int size);
  ~InProcessGroup();

  // The communicator of one rank, made once for each; it may outlive the group. A communicator
  // that is destroyed while others wait for it counts as a lost rank.
  std::unique_ptr<CollectiveCommunicator> member(int rank);

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace fleet::transport
