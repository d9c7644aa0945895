// Point-to-point messages over MPI. Internal to transport_mpi; includes MPI.
//
// The tag of a message says what it is of: kind, type, a hash of the count and the lower bits of
// the operation's number. So messages of different operations never meet. Who waits long looks
// whether others have sent what belongs to no operation of its own, and names both sides.
#pragma once

#include <mpi.h>
#include <string>
#include <vector>

#include "transport/collective/point_to_point.h"
#include "transport/mpi_session/mpi_session.h"

namespace fleet::transport::mpi_detail {

// How a waiting rank passes the time: it looks again and again as long as something happens, then
// offers its core to others, then sleeps for a moment at a time. A rank that slept is let in again
// at once, one that only offered its core may wait for a whole time slice of somebody else's.
// True when it slept.
bool pass_time(bool oversubscribed, Duration idle);

// Operations as tags.
class Tags {
 public:
  // `upper_bound`: the largest tag that this MPI has.
  explicit Tags(int upper_bound);
  int of(const OperationId& id) const;
  static bool same_number(int tag, int other);
  static bool is_roll_call(int tag);
  // What `tag` says of an operation which is another than that of `ours`.
  static std::string to_string(int tag, int ours);

 private:
  uint64_t numbers_;  // a power of two
};

class MpiPeer : public PointToPoint {
 public:
  // Owns `comm`.
  MpiPeer(MpiSession& session, MPI_Comm comm, int tag_upper_bound);
  ~MpiPeer() override;

  int rank() const override { return session_.rank(); }
  int size() const override { return session_.size(); }
  std::unique_ptr<MessageSet> messages(const OperationId& operation) override;
  std::unique_lock<std::mutex> lock() override { return session_.lock(); }
  void poll() override;
  uint64_t progress() const override { return progress_; }
  void rest(Duration idle, TimePoint deadline) override;
  void failed(const Status&) override { session_.mark_lost(); }
  void give_up(std::vector<std::shared_ptr<const void>> memory) override;

 private:
  class Messages;
  // What a set of messages keeps, reused from one operation to the next.
  struct Requests {
    struct Peer {
      int rank;
      bool sends;  // the peer is the one that sends
    };
    std::vector<MPI_Request> handles;
    std::vector<Peer> peers;
  };
  void find_other_operations() const;

  MpiSession& session_;
  MPI_Comm comm_;
  const Tags tags_;
  uint64_t progress_ = 0;
  uint32_t naps_ = 0;
  std::vector<Requests> unused_;
  std::vector<OperationId> recent_;  // a ring of the last operations
};

}  // namespace fleet::transport::mpi_detail
