// Gradients of rows that a synchronous server collects: by slice and contributor, each once a step.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "fluid/core/value.h"
#include "strategies/parameter_server/protocol/contributor_sum.h"
#include "strategies/parameter_server/protocol/row_contributions.h"

namespace fleet::strategies {

// One thread at a time. Keys are of a slice with rows, and of the step that is collected or an
// earlier one; statuses say what is wrong with a frame.
class RowInbox {
 public:
  // The table must outlive it. `sum_on_arrival`: see ProtocolMutations.
  RowInbox(const std::vector<SliceGeometry>& slices, const ContributorTable& table,
           bool sum_on_arrival);

  // `step`: the one that is collected.
  transport::PayloadTarget prepare(uint64_t session, const PieceKey& key, uint32_t contributor,
                                   uint64_t bytes, uint64_t step);
  // Whether the piece is new.
  Result<bool> take(uint64_t session, const PieceKey& key, uint32_t contributor,
                    transport::ConstBytes payload, uint64_t step);
  void drop_session(uint64_t session) { pieces_.drop_session(session); }

  // Contributors whose gradients of the slice are whole.
  std::vector<uint32_t> present(uint32_t slice, uint64_t step) const;
  // Adds them up, and forgets them.
  void sum(uint32_t slice, uint64_t step, fluid::SelectedRows& out);

 private:
  struct Slot {
    uint64_t step = 0;  // that the contribution is of
    RowContribution contribution;
  };
  struct Slice {
    SliceGeometry geometry;
    std::vector<Slot> slots;         // by contributor; none of a slice without rows
    std::vector<uint32_t> arrivals;  // under mutation only
  };

  Status check(const Slot& slot, const SliceGeometry& geometry, const PieceKey& key,
               uint64_t bytes) const;
  template <class T>
  void sum_as(Slice& slice, const std::vector<uint32_t>& present, fluid::SelectedRows& out) const;

  const ContributorTable& table_;
  ContributorSum add_;
  bool sum_on_arrival_;
  std::vector<Slice> slices_;
  PieceMemory pieces_;
};

}  // namespace fleet::strategies
