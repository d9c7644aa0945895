// Communicators of many ranks in one thread under virtual time: messages arrive after a delay that
// a model of a network gives, in an order that a seed may stir. Counts messages and bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "transport/collective/communicator.h"

namespace fleet::transport::testing_reference {

// A message keeps its sender's port for overhead + bytes / rate, travels for latency + a random
// part of jitter, and keeps the receiver's port as long as the sender's; ports take one message at
// a time. (The model LogGP of Alexandrov et al., SPAA 1995, with g = o.) Sums take no time.
struct VirtualNetwork {
  Duration latency = std::chrono::microseconds(10);
  Duration overhead = std::chrono::microseconds(1);
  double bytes_per_second = 1.25e9;
  Duration jitter{0};
  // Without payloads only messages, bytes and time are of interest: nothing is copied.
  bool payloads = true;
};

class VirtualRanks {
 public:
  VirtualRanks(int ranks, uint64_t seed, VirtualNetwork network = {},
               CommunicatorOptions options = {});
  ~VirtualRanks();

  int size() const;
  CollectiveCommunicator& at(int rank);

  // The order in which ranks are called or looked at, stirred anew each time.
  std::vector<int> stirred();
  // Delivers messages until all tokens are done, one list of them for each rank; wait() then tells
  // how they ended. False when nothing is under way any more and one is not done.
  bool run(std::vector<std::vector<CollectiveToken>>& tokens);

  Duration now() const;
  struct Traffic {
    uint64_t messages = 0;
    uint64_t bytes = 0;
  };
  // What a rank has sent.
  Traffic sent(int rank) const;

  struct World;

 private:
  std::unique_ptr<World> world_;
  std::vector<std::unique_ptr<CollectiveCommunicator>> communicators_;
};

}  // namespace fleet::transport::testing_reference
