// Sparse gradients (SelectedRows) that a synchronous server collects: each contributor's once a
// step, added up as soon as siblings of the tree are whole. Which of them may come is RowWindow's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "fluid/core/value.h"
#include "strategies/parameter_server/protocol/contributors.h"
#include "strategies/parameter_server/protocol/row_contributions.h"
#include "strategies/parameter_server/protocol/row_window.h"
#include "strategies/parameter_server/protocol/sum_tree.h"
#include "strategies/parameter_server/protocol/sync_server_rules.h"

namespace fleet::strategies {

// One thread at a time. Keys are of a slice with sparse gradients, and of the step that is
// collected or an earlier one; statuses say what is wrong with a frame.
class RowInbox {
 public:
  // What is referred to must outlive it. `whole`: everybody's gradients of the slice are there, or
  // will not come.
  RowInbox(const std::vector<SliceGeometry>& slices, const ContributorTable& table,
           const SumTree& tree, uint64_t window_bytes, const SyncServerRules& rules,
           std::function<void(uint32_t slice)> whole);

  // A new step. `active`: by worker, who contributes.
  void begin(uint64_t step, const std::vector<bool>& active);

  transport::PayloadTarget prepare(uint64_t session, const PieceKey& key, uint32_t contributor,
                                   uint64_t bytes);
  // Whether the piece is new.
  Result<bool> take(uint64_t session, const PieceKey& key, uint32_t contributor,
                    transport::ConstBytes payload);
  // Somebody wants to send the gradient; let_in() says when it may.
  Status ask(const PieceKey& key, uint32_t contributor);
  // Since the last call, of those that asked.
  std::vector<RowGradient> let_in() { return window_.let_in(); }
  bool asking(RowGradient gradient) const { return window_.asking(gradient); }
  // Of this step and the slices of that lane, nothing comes from the worker that has not begun to
  // or asked to.
  void pass(uint32_t worker, uint32_t lane, uint32_t lanes);
  // Of this step, nothing more comes from the worker.
  void pass(uint32_t worker);
  void drop_session(uint64_t session) { pieces_.drop_session(session); }

  // Logical shards whose gradients of the slice are whole.
  int shards(uint32_t slice) const { return slices_[slice].shards; }
  // Their sum; forgets it.
  void sum(uint32_t slice, fluid::SelectedRows& out);
  uint64_t free_bytes() const { return window_.free_bytes(); }
  // Memory of contributions and partial sums.
  uint64_t held_bytes() const { return held_bytes_ + pieces_.bytes(); }

 private:
  // A sum: row numbers, strictly ascending, and their values, in memory that `owner` keeps.
  struct Part {
    std::span<const int64_t> rows;
    const std::byte* values = nullptr;
    std::shared_ptr<const void> owner;
    // That has them, unless a frame brought them.
    std::shared_ptr<fluid::SelectedRows> made = nullptr;
    explicit operator bool() const { return owner != nullptr; }
  };
  static constexpr uint64_t kUnknown = ~uint64_t{0};
  struct Slice {
    SliceGeometry geometry;
    uint32_t awaited = 0;  // contributors whose gradients have not ended
    uint32_t arrived = 0;
    int shards = 0;
    // By contributor, how many rows its gradient has.
    std::vector<uint64_t> rows;
    // By contributor, those of which pieces have come.
    std::unordered_map<uint32_t, RowContribution> partial;
    std::unique_ptr<SiblingSums<Part>> sums;
  };

  static Status check_rows(const Slice& slice, uint32_t contributor, uint64_t rows);
  Status check(const PieceKey& key, uint32_t contributor, uint64_t bytes) const;
  bool has(const PieceKey& key, uint32_t contributor) const;
  Status admit(const PieceKey& key, uint32_t contributor);
  void complete(uint32_t index, uint32_t contributor);
  void end(RowGradient gradient);
  Part join(const SliceGeometry& geometry, const Part& left, const Part& right);

  const ContributorTable& table_;
  const SyncServerRules& rules_;
  std::function<void(uint32_t)> whole_;
  uint64_t step_ = 0;
  std::vector<Slice> slices_;
  RowWindow window_;
  PieceMemory pieces_;
  uint64_t held_bytes_ = 0;
};

}  // namespace fleet::strategies
