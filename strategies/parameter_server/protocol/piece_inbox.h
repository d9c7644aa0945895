// Dense gradients that a synchronous server collects on one data lane: each piece of each
// contributor once a step, added up as soon as siblings of the tree are there.
//
// Memory: a piece is let in when what it and the others under way can take fits the window: one
// piece for every contributor still to come, and for every sum that waits for its sibling. At
// least one piece is always let in. What contributors sent is never kept beyond that, however many
// they are.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "fluid/core/value.h"
#include "strategies/parameter_server/protocol/contributors.h"
#include "strategies/parameter_server/protocol/send_order.h"
#include "strategies/parameter_server/protocol/server_calls.h"
#include "strategies/parameter_server/protocol/sum_tree.h"
#include "strategies/parameter_server/protocol/sync_server_rules.h"
#include "transport/session/session.h"

namespace fleet::strategies {

// What a call led to, and what calls before it did that nobody was told of.
struct PieceProgress {
  uint64_t step = 0;            // that was collected then
  bool taken = false;           // the piece is new
  bool opened = false;          // more pieces are let in
  uint32_t open = 0;            // pieces of the order that are let in
  std::vector<uint32_t> whole;  // slices whose pieces are all summed now, or that get none
};

// Any thread: sums of one lane go on beside those of others and beside the steps of the server.
// Keys are of a slice without rows.
class PieceInbox {
 public:
  // What is referred to must outlive it. `gradients`: by slice, the tensor that the sum of its
  // contributions goes to.
  PieceInbox(const std::vector<SliceGeometry>& slices, const ContributorTable& table,
             const SumTree& tree, SendOrder order, uint64_t window_bytes,
             const SyncServerRules& rules, const std::vector<fluid::Value*>& gradients);

  // A new step: everything of the one before was summed. `active`: by worker, who contributes.
  void begin(uint64_t step, const std::vector<bool>& active);

  transport::PayloadTarget prepare(const Sender& sender, const PieceKey& key, uint32_t contributor,
                                   uint64_t bytes);
  Result<PieceProgress> take(const Sender& sender, const PieceKey& key, uint32_t contributor,
                             transport::ConstBytes payload);
  // Of this step, nothing more comes from the worker for the pieces before `position`.
  PieceProgress pass(uint32_t worker, uint32_t position);
  // Nothing comes from the worker any more, in this step or a later one.
  PieceProgress leave(uint32_t worker);
  // What a broken connection had half sent is waited for anew.
  void drop_session(uint64_t session);

  uint32_t pieces() const { return order_.size(); }
  // Of those, how many are let in when a step begins, whoever takes part.
  uint32_t open_at_begin() const;
  // New pieces of the worker in this step.
  uint32_t received(uint32_t worker) const;
  // Logical shards that have contributed to the slice.
  int shards(uint32_t slice) const;
  // Memory of contributions and partial sums, with what is kept for the next ones.
  uint64_t held_bytes() const;

 private:
  using Lock = std::lock_guard<std::mutex>;
  struct Piece {
    bool closed = false;
    uint32_t arrived = 0;
    uint32_t awaited = 0;         // contributors still to come
    int shards = 0;               // that have come
    uint64_t cost = 0;            // its part of the window
    std::vector<uint64_t> taken;  // a bit for each contributor
    SiblingSums<Buffer>* sums = nullptr;
  };

  uint64_t bytes_of(uint32_t position) const;
  // Where the sum of the piece goes.
  std::byte* memory_of(uint32_t position) const;
  Status check_step(const Sender& sender, const PieceKey& key) const;
  bool repeated(const PieceKey& key, const Piece& piece, uint32_t contributor) const;
  uint32_t awaited_at(uint32_t position) const;
  void let_in();
  void count_cost(uint32_t position);
  void pass_to(uint32_t worker, uint32_t position);
  PieceProgress progress(bool taken);
  void add(uint32_t position, uint32_t contributor, Buffer memory);
  void close(uint32_t position, bool in_place);
  // Adds up to the slice's own memory when it is the last, and sets `in_place` then.
  Buffer join(uint32_t position, Buffer left, Buffer right, bool last, bool& in_place);
  Buffer borrow(uint64_t bytes);
  void give_back(Buffer memory);

  const std::vector<SliceGeometry>& slices_;
  const ContributorTable& table_;
  const SumTree& tree_;
  const SendOrder order_;
  const uint64_t window_bytes_;
  const SyncServerRules& rules_;
  const std::vector<fluid::Value*>& gradients_;

  mutable std::mutex mutex_;  // guards what follows
  uint64_t step_ = 0;
  std::vector<bool> active_;        // by worker
  std::vector<uint32_t> received_;  // by worker, pieces
  uint32_t open_ = 0;
  uint32_t told_open_ = 0;
  uint64_t cost_ = 0;               // of all pieces that are let in
  std::vector<Piece> pieces_;       // by position
  std::vector<uint32_t> unsummed_;  // by slice, pieces
  std::vector<uint32_t> passed_;    // by worker, positions
  bool anyone_passed_ = false;
  std::vector<uint32_t> whole_;                     // slices, since the last call that told
  std::unordered_map<uint64_t, Buffer> receiving_;  // by session
  // Of contributions that are being collected; those not in use are in idle_sums_.
  std::vector<std::unique_ptr<SiblingSums<Buffer>>> sums_;
  std::vector<SiblingSums<Buffer>*> idle_sums_;
  std::vector<std::vector<Buffer>> spare_;  // by size class
  uint64_t used_bytes_ = 0;
  uint64_t spare_bytes_ = 0;
};

}  // namespace fleet::strategies
