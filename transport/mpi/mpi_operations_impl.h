// The state machines of MpiCommunicator's operations. Internal to transport_mpi; includes MPI.
//
// All members are called with the session's lock held. Errors of MPI are thrown as PeerError.
#pragma once

#include <memory>
#include <mpi.h>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "transport/collective/collective.h"
#include "transport/mpi/mpi_communicator.h"

namespace fleet::transport::mpi_detail {

// Memory for contributions of others, reused from one operation to the next.
class ScratchPool {
 public:
  // At least `bytes`, aligned to 64, uninitialised.
  Buffer take(size_t bytes);
  void give_back(Buffer buffer);

 private:
  std::vector<Buffer> free_;
};

struct Group {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  uint64_t progress = 0;  // changes whenever messages have arrived
  ScratchPool scratch;
};

// Messages under way, tested together.
class Messages {
 public:
  void send(const Group& group, const void* bytes, size_t count, int to, int tag);
  void receive(const Group& group, void* bytes, size_t count, int from, int tag);
  // True when all are done, and then forgets them.
  bool test(Group& group);
  // Who has not sent, or, when all have, who has not received.
  void unfinished(std::vector<int>& ranks);

 private:
  struct Peer {
    int rank;
    bool sends;  // the peer is the one that sends
  };
  std::vector<MPI_Request> requests_;
  std::vector<Peer> peers_;
};

class Machine {
 public:
  virtual ~Machine() = default;
  // Moves on as far as it can; true when the operation is done.
  virtual bool advance(Group& group) = 0;
  // Ranks that it waits for.
  virtual void waits_for(std::vector<int>& ranks) = 0;
};

struct Reduction {
  const ShardLayout& layout;
  ElementType type;
  std::vector<const std::byte*> parts;
  std::byte* out;
  size_t count;
};

// Tags tag and tag + 1 are the operation's own.
std::unique_ptr<Machine> direct_all_reduce(Reduction reduction, int tag);
std::unique_ptr<Machine> piecewise_all_reduce(Reduction reduction, int tag, size_t piece_bytes,
                                              int window);
std::unique_ptr<Machine> scatter_reduce(Reduction reduction, std::vector<size_t> counts, int tag);
std::unique_ptr<Machine> tree_broadcast(std::span<std::byte> bytes, int root, int tag);
std::unique_ptr<Machine> direct_all_gather(std::span<const std::byte> mine,
                                           std::span<std::byte> all, int tag);

}  // namespace fleet::transport::mpi_detail
