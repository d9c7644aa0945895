// The synchronous protocol of one server as a state machine: contributions, barriers, gets and
// completions go in; sums, updates and answers come out through a sink. No sockets, no threads, no
// clock, and nothing depends on the order in which frames come.
//
// Per step: contributions are added up by the fixed tree over shards, siblings as soon as both are
// there (sparse gradients when they are whole: they need not have the same rows); the
// learning-rate block runs once; a slice whose pieces are all summed is updated and published; the
// step closes when every worker's barrier is in and all the pieces it counted have come. An
// answer's last part is held until then, so that no worker can be ahead of a server.
//
// Pieces of dense gradients come in the order of SendOrder, and no further than they are let in:
// contributions take no more memory than the window. A worker that holds pieces back asks for
// credits, and says, when its step is pushed, before which position it has no more pieces; it is
// answered when more is let in. Sparse gradients are let in as wholes (RowWindow).
//
// An update that needs more than its slice goes in stages, with an exchange between servers after
// each but the last. Exchange k begins when every slice of several stages has done stage k, and is
// over when the other servers' parts have come; a step closes when all its exchanges are over. So
// no server can be a step ahead of another.
//
// A contribution is named by (incarnation: the sender's session, step, shards, variable,
// piece); one that was taken before is dropped, whichever connection brings it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/buffer.h"
#include "strategies/parameter_server/protocol/contributors.h"
#include "strategies/parameter_server/protocol/piece_inbox.h"
#include "strategies/parameter_server/protocol/row_inbox.h"
#include "strategies/parameter_server/protocol/server_calls.h"
#include "strategies/parameter_server/protocol/server_exchange.h"
#include "strategies/parameter_server/protocol/sum_tree.h"
#include "strategies/parameter_server/protocol/sync_server_rules.h"
#include "strategies/parameter_server/protocol/wire.h"
#include "transport/session/session.h"

namespace fleet::strategies {

class SyncServerSink {
 public:
  virtual ~SyncServerSink() = default;

  // Once per step, before the first update: the learning rate of the step.
  virtual void begin_step(uint64_t step) = 0;
  // Runs a stage of the slice's update: of the first, the gradient is there, of a later one, what
  // the exchanges before it made. The last stage publishes the value as the version of the step.
  // With no shards the value stays as it is, and the slice's parts of exchanges are zero. False
  // when the last stage goes on in another thread: updated() is called when it is done, and until
  // then nothing reads or changes the slice.
  virtual bool update(uint32_t slice, const StepUpdate& update) = 0;
  // Sends it; a published value stays as it is while it is being sent. A session that is gone is
  // ignored.
  virtual void answer(const ServerAnswer& answer) = 0;
  virtual void step_closed(uint64_t step) = 0;
  // Once: every worker has said that it contributes no more, and everything is applied.
  virtual void all_complete() = 0;
};

struct SyncServerOptions {
  uint32_t workers = 1;
  uint32_t shards = 1;
  uint32_t lanes = 1;
  std::vector<SliceGeometry> slices;
  // By slice, where the sum of its contributions goes, before its update: a tensor of its size, or
  // selected rows. Outlive the server.
  std::vector<fluid::Value*> gradients;
  uint32_t variables = 0;  // slices and whatever else may be read
  // Of each slice's update, at most one more than there are exchanges; empty: 1 of all.
  std::vector<uint32_t> stages;
  // With other servers, inside a step. Outlives the server; null: there are none.
  ServerExchange* exchange = nullptr;
  // Memory that contributions may take, over all lanes; half of it is for sparse gradients where a
  // server has both kinds.
  uint64_t window_bytes = uint64_t{32} * 1024 * 1024;
  std::shared_ptr<const SyncServerRules> rules;  // null: the right ones
};

// One thread at a time, but where it is said. Statuses say what is wrong with a frame; the state is
// unchanged then. The sink is called by the thread that calls.
class SyncServer {
 public:
  SyncServer(SyncServerOptions options, SyncServerSink& sink);

  // Where the bytes of a piece go; push() follows when they are all there. Of a dense slice: any
  // thread.
  transport::PayloadTarget prepare_push(const Sender& sender, const PieceKey& key, uint64_t bytes);
  Status push(const Sender& sender, const PieceKey& key, transport::MutableBytes payload);
  // push() of a piece of a dense slice in two halves, so that lanes add up at the same time: any
  // thread calls sum(), and count() when what came of it matters to the rest of the server. Most
  // pieces do not.
  Result<PieceProgress> sum(const Sender& sender, const PieceKey& key,
                            transport::ConstBytes payload);
  bool matters(const PieceProgress& progress) const;  // any thread, after sum()
  void count(const Sender& sender, const PieceKey& key, const PieceProgress& progress);
  // The worker has sent `count` pieces for `step`.
  Status barrier(uint32_t worker, uint64_t step, uint32_t count);
  Status get(GetCall call);
  Status credit(const CreditCall& call);
  Status complete(uint32_t worker, uint64_t last_step);
  // What the sink went on with in another thread is done.
  void updated(uint32_t slice);
  // A part of an exchange has come from another server.
  void exchange_advanced();
  // The connection ended: its gets are forgotten, what it had half sent is waited for anew.
  void drop_session(uint64_t session);

  // Steps applied. Any thread.
  uint64_t step() const { return published_; }
  bool untouched() const { return published_ == 0 && !contributed_; }
  bool all_complete() const { return complete_; }  // any thread
  // Workers whose barrier for the next step is missing, for reports of waits.
  std::vector<uint32_t> missing() const;
  // Other servers that the step waits for.
  std::vector<uint32_t> missing_servers() const;
  // By lane, pieces that workers may send before they ask.
  std::vector<uint32_t> open_at_begin() const;
  // Bytes of sparse gradients that a contributor may send in a step before its worker asks.
  uint64_t free_row_bytes() const { return rows_.free_bytes(); }
  // Memory of contributions.
  uint64_t held_bytes() const;

 private:
  static constexpr uint32_t kNothing = 0xffffffff;
  static constexpr uint64_t kTrains = ~uint64_t{0};
  // Gets that one connection may have waiting; a worker has the step's, and those that it asks
  // ahead, one for each lookup op.
  static constexpr size_t kMaxWaiting = 64;

  struct Slice {
    uint32_t stages = 1;
    bool complete = false;  // the gradient of this step is complete
    int shards = 0;         // that contributed to it
    uint64_t version = 0;
    std::vector<uint32_t> waiters;  // that want it, by number
  };
  struct Worker {
    uint64_t last_step = kTrains;
    uint64_t barrier_step = 0;
    uint32_t announced = 0;
    uint32_t sparse_pieces = 0;  // received; those of dense gradients are counted by lanes
    bool ready = false;          // has contributed all of this step
    bool late = false;           // has said how many pieces there are, and some are missing
  };
  struct Waiting {
    std::vector<uint32_t> gets;  // numbers of waiters
    uint32_t credits = 0;
    uint32_t row_credits = 0;  // at most one for each gradient
  };
  struct Waiter {
    GetCall call;              // of session 0 when the connection is gone
    uint32_t remaining = 0;    // wanted and not published yet
    uint32_t held = kNothing;  // the published value that will end the answer
  };

  uint64_t collecting() const { return published_ + 1; }
  bool active(uint32_t worker) const { return workers_[worker].last_step >= collecting(); }
  Status check(const Sender& sender, const PieceKey& key, uint32_t& contributor) const;
  Status check_step(const Sender& sender, const PieceKey& key) const;
  uint64_t window_of(bool rows) const;
  void advance(uint32_t lane, const PieceProgress& progress);
  PieceInbox& inbox_of(uint32_t slice) { return *inboxes_[slice % options_.lanes]; }
  const PieceInbox& inbox_of(uint32_t slice) const { return *inboxes_[slice % options_.lanes]; }
  void note(uint32_t worker);
  void set_late(Worker& worker, bool late);
  uint32_t received(uint32_t worker) const;
  void complete_gradient(uint32_t slice, int shards);
  void run_stage(uint32_t slice, uint32_t stage);
  bool run_exchanges();
  int shards_in(uint32_t slice) const;
  bool barriers_in() const { return active_ > 0 && ready_ == active_; }
  void maybe_close();
  void begin_step();
  void complete_rest();
  bool close();
  void collect_next();
  void note_completion();
  Status credit_order(const CreditCall& call);
  Status credit_rows(const CreditCall& call);
  void grant(uint32_t lane, uint32_t open);
  void grant_rows(const std::vector<RowGradient>& gradients);
  void answer(const std::vector<CreditCall>& calls, uint32_t open);
  void publish(uint32_t slice);
  void deliver(Waiter& waiter, uint32_t variable);
  void finish(const Waiter& waiter);
  void answer_now(const GetCall& call);
  template <class Visit>
  void each_wanted(const GetCall& call, const Visit& visit) const;

  SyncServerOptions options_;
  SyncServerSink& sink_;
  ContributorTable contributors_;
  const std::shared_ptr<const SyncServerRules> rules_;
  const SumTree tree_;
  std::vector<Slice> slices_;
  std::vector<std::unique_ptr<PieceInbox>> inboxes_;  // by lane
  RowInbox rows_;
  std::vector<Worker> workers_;
  std::vector<Waiter> waiters_;
  std::unordered_map<uint64_t, Waiting> waiting_;  // by session
  std::vector<GetCall> deferred_;                  // until no update goes on in another thread
  std::vector<std::vector<CreditCall>> asking_;    // by lane
  std::map<RowGradient, CreditCall> asking_rows_;
  std::atomic<uint64_t> published_ = 0;
  uint32_t active_ = 0;  // workers that contribute to the step being collected
  uint32_t ready_ = 0;   // of those
  bool rate_ready_ = false;
  uint32_t incomplete_ = 0;         // slices whose gradients are not complete
  uint32_t staged_incomplete_ = 0;  // of those, the ones of several stages
  uint32_t exchange_ = 0;           // the next of this step
  bool parts_sent_ = false;         // its own parts have left
  uint32_t updating_ = 0;           // slices whose updates go on in other threads
  std::atomic<uint32_t> late_ = 0;  // workers
  std::atomic<bool> contributed_ = false;
  std::atomic<bool> complete_ = false;
};

}  // namespace fleet::strategies
