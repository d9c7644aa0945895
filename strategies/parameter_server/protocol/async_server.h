// The asynchronous protocol of one server as a state machine: gradients, gets and completions go
// in; updates and answers come out through a sink. No sockets, no threads, no clock.
//
// A worker's clock counts the gradients that it has made of a slice. A push carries the sum (or
// mean) of those of clocks (first, last], is applied as soon as all its pieces are in, and in the
// order of clocks of its worker: so one number per worker and slice, the clock applied last, is all
// that has to be remembered for every gradient to count once, whatever connection brings it how
// often. A get is answered at once, or, with a bound on staleness, when the slowest worker has
// reached the clock that the get names, in the slices that it asks for.
//
// Over a job, a gradient costs the logarithm of the number of workers, a get the variables that it
// asks for, a completion the slices, the end of a connection what it has half sent or waits for:
// each slice counts the workers at each clock and keeps the gets that wait for it by their clocks.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "strategies/parameter_server/protocol/row_contributions.h"
#include "strategies/parameter_server/protocol/server_calls.h"
#include "strategies/parameter_server/protocol/wire.h"
#include "transport/session/session.h"

namespace fleet::strategies {

// One update of one slice.
struct AsyncUpdate {
  uint32_t slice = 0;
  uint32_t worker = 0;
  uint64_t clock = 0;    // the last clock that the gradient is of
  uint32_t merged = 1;   // how many clocks it is of
  uint64_t version = 0;  // that the update makes, from 1 on
  // Versions that were published since the sender's last get of the slice: the gradient's age.
  uint64_t staleness = 0;
};

// What a server did, in its order: with the same gradients, and parameters read where the gets
// stand, every bit of a run comes again.
struct AsyncEvent {
  enum class Kind : uint8_t { kUpdate, kGet };
  Kind kind = Kind::kUpdate;
  uint32_t worker = 0;
  uint32_t variable = 0;
  uint64_t clock = 0;   // of an update
  uint32_t merged = 0;  // of an update
  bool operator==(const AsyncEvent&) const = default;
};

class AsyncServerSink {
 public:
  virtual ~AsyncServerSink() = default;

  // The learning rate of what comes next: gradients of all workers up to now, this one included.
  // Called before the first update of a worker's clock.
  virtual void begin_clock(uint64_t gradients) = 0;
  // Updates the slice with the gradient, and publishes it. The memory may be kept and changed.
  virtual void update(const AsyncUpdate& update, const Buffer& gradient) = 0;
  // The same of a slice whose gradients are rows; not asked of others.
  virtual void update_rows(const AsyncUpdate&, const RowContribution& /*gradient*/) {}
  // Sends it; its step is the version of the value. A session that is gone is ignored.
  virtual void answer(const ServerAnswer& answer) = 0;
  // Once: every worker has said that it contributes no more.
  virtual void all_complete() = 0;
};

// How old gradients were when they were applied.
struct StalenessStatistics {
  uint64_t updates = 0;
  uint64_t sum = 0;
  uint64_t max = 0;
  std::array<uint64_t, 32> histogram{};  // by staleness; the last one: that or more

  void add(uint64_t staleness);
  double mean() const {
    return updates == 0 ? 0.0 : static_cast<double>(sum) / static_cast<double>(updates);
  }
};

// The decision by which every gradient counts once. There is one right answer, the default; a
// test that wants to prove that it would notice a broken protocol gives the server another.
class AsyncServerRules {
 public:
  virtual ~AsyncServerRules() = default;
  // Whether a gradient up to `clock` counted before, where `applied` is the clock applied last.
  virtual bool was_applied(uint64_t clock, uint64_t applied) const { return clock <= applied; }
};

struct AsyncServerOptions {
  uint32_t workers = 1;
  uint32_t lanes = 1;
  std::vector<SliceGeometry> slices;
  uint32_t variables = 0;  // slices and whatever else may be read
  // Called for each event, in order; may be empty.
  std::function<void(const AsyncEvent&)> on_event;
  std::shared_ptr<const AsyncServerRules> rules;  // null: the right ones
};

// One thread at a time, but where it is said. Statuses say what is wrong with a frame; the state is
// unchanged then.
class AsyncServer {
 public:
  AsyncServer(AsyncServerOptions options, AsyncServerSink& sink);

  // A piece of a gradient: key.step is the last clock, shards [0, merged). Where its bytes go;
  // push() follows when they are all there.
  transport::PayloadTarget prepare_push(const Sender& sender, const PieceKey& key, uint64_t bytes);
  Status push(const Sender& sender, const PieceKey& key, transport::MutableBytes payload);
  // call.step: the clock that every worker still training must have reached in each slice that is
  // asked for; 0: none.
  Status get(GetCall call);
  // The worker contributes nothing after `clock`.
  Status complete(uint32_t worker, uint64_t clock);
  // The connection ended: its gets are forgotten, what it had half sent is waited for anew.
  void drop_session(uint64_t session);

  // Gradients that have come, over all workers (merged ones counted each).
  uint64_t gradients() const { return gradients_; }  // any thread
  bool untouched() const { return gradients_ == 0 && !receiving_; }
  bool all_complete() const { return complete_; }  // any thread
  // Clocks of a worker that are applied to every slice.
  uint64_t clock(uint32_t worker) const;
  // Workers that gets wait for.
  std::vector<uint32_t> missing() const;
  const StalenessStatistics& staleness() const { return staleness_; }

 private:
  // Gets that one connection may have waiting, and gradients of one slice a worker may have half
  // sent.
  static constexpr size_t kMaxWaiting = 64;
  static constexpr size_t kMaxGathering = 16;

  struct PieceState {
    bool have = false;
    uint64_t lent = 0;  // the session that writes the piece now
  };
  // A gradient that is coming in.
  struct Gathering {
    uint64_t first = 0;
    uint64_t last = 0;
    uint32_t missing = 0;
    Buffer memory;
    std::vector<PieceState> pieces;
    RowContribution rows;  // instead of the last two
  };
  struct Stream {  // gradients of one worker for one slice
    uint64_t applied = 0;
    uint64_t pulled = 0;                // the version that its sender got last
    std::vector<Gathering> gatherings;  // by clock
  };
  struct Slice {
    SliceGeometry geometry;
    uint32_t pieces = 0;
    uint64_t version = 0;
    std::map<uint64_t, uint32_t> clocks;  // of workers that still train: how many are at each
    uint64_t slowest = 0;                 // the clock that every worker still training has reached
    std::set<std::pair<uint64_t, uint64_t>> waiting;  // gets that wait for it: clock, number
    std::vector<Buffer> spare;  // for gatherings; the one applied last may still be held
  };
  struct Worker {
    std::vector<Stream> streams;  // by slice
    uint64_t front = 0;           // the largest clock applied to any slice
    bool completed = false;
  };
  // A get, and how many of the variables that it asks for are as far as it wants. The next one is
  // a slice that it waits for.
  struct Waiter {
    GetCall call;
    uint32_t reached = 0;
  };
  struct Lent {
    uint32_t worker = 0;
    uint32_t slice = 0;
    uint64_t clock = 0;
    uint32_t piece = 0;
  };
  struct SessionState {
    uint64_t last_get = 0;          // the request that was taken last
    std::vector<uint64_t> waiting;  // numbers of gets
    std::vector<Lent> lent;         // pieces that it writes
    Buffer extra;  // for a piece that an older connection is still in the middle of
  };

  Status check(const Sender& sender, const PieceKey& key) const;
  Gathering* find(Stream& stream, const PieceKey& key);
  Gathering* begin(Stream& stream, const PieceKey& key);
  Buffer take_buffer(Slice& slice);
  Status check_rows(const Sender& sender, const PieceKey& key, uint64_t bytes);
  transport::PayloadTarget prepare_rows(const Sender& sender, const PieceKey& key, uint64_t bytes);
  Status push_rows(const Sender& sender, const PieceKey& key, transport::ConstBytes payload);
  bool is_old(const Stream& stream, const PieceKey& key) const {
    return rules_->was_applied(key.step, stream.applied);
  }
  // The session's memory for the payload, when it is not the gathering's.
  Buffer take_extra(uint64_t session, transport::ConstBytes payload);
  // The session writes the piece no more.
  void take_back(uint64_t session, uint32_t worker, const PieceKey& key);
  void apply_ready(uint32_t worker, uint32_t slice);
  void apply(uint32_t worker, uint32_t slice, const Gathering& gathering);
  uint32_t count_wanted(const GetCall& call) const;
  uint32_t wanted(const GetCall& call, uint32_t index) const;
  void leave_clock(Slice& slice, uint64_t clock);
  void find_slowest(Slice& slice);
  bool may_answer(uint64_t number, Waiter& waiter);
  void answer(const GetCall& call);
  void answer_waiting();

  AsyncServerOptions options_;
  std::shared_ptr<const AsyncServerRules> rules_;
  AsyncServerSink& sink_;
  std::vector<Slice> slices_;
  std::vector<Worker> workers_;
  std::map<uint64_t, Waiter> waiters_;  // by number, ascending
  uint64_t last_waiter_ = 0;
  std::vector<uint64_t> ready_;  // waiters that nothing holds back any more
  std::unordered_map<uint64_t, SessionState> sessions_;
  PieceMemory row_pieces_;
  std::atomic<uint64_t> gradients_ = 0;
  StalenessStatistics staleness_;
  uint32_t training_ = 0;  // workers that have not completed
  bool receiving_ = false;
  std::atomic<bool> complete_ = false;
};

}  // namespace fleet::strategies
