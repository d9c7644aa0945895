// Whose sparse gradients a synchronous server lets in, so that what it keeps of them is bounded.
//
// Dense gradients come piece by piece in one order (piece_inbox.h). Sparse ones have other rows at
// every contributor and are summed when they are whole, so whole gradients are let in.
//
// - One half of the window is for small ones, which contributors send without asking: each has an
//   equal share of it, for all its gradients of a step together.
// - For others a contributor asks, and says how large the gradient is. The other half has room for
//   what is under way, and for what came before its turn: while gradients of contributors to the
//   left in the tree are missing. Whoever asks is let in when there is room, in the order of slices
//   and contributors.
// - It is the turn of a slice's first contributor whose gradient is missing: it is let in whatever
//   its size, one such gradient at a time. So nothing stands still: if nothing else is possible,
//   gradients come in order, and sums of those that came in order wait for at most one sibling on
//   each level of the tree.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

namespace fleet::strategies {

// Of the step that is collected.
struct RowGradient {
  uint32_t slice = 0;
  uint32_t contributor = 0;
  friend bool operator==(const RowGradient&, const RowGradient&) = default;
  friend bool operator<(const RowGradient& left, const RowGradient& right) {
    return std::tie(left.slice, left.contributor) < std::tie(right.slice, right.contributor);
  }
};

// One thread at a time. Bytes are those of a whole gradient on the wire.
class RowWindow {
 public:
  // `sparse`: by slice, whether its gradients are sparse; there is nothing to say of others.
  RowWindow(const std::vector<bool>& sparse, uint32_t contributors, uint64_t window_bytes);

  // A new step. `active`: by contributor, whether anything comes from it.
  void begin(const std::vector<bool>& active);

  // A contributor's share of a step.
  uint64_t free_bytes() const { return half_ / contributors_; }
  // A gradient begins that nobody asked for; false when it is more than the free share has left.
  bool take_free(RowGradient gradient, uint64_t bytes);
  // Let in at once, or by let_in() later. What asks twice has asked once.
  void ask(RowGradient gradient, uint64_t bytes);
  // It is whole, or does not come.
  void end(RowGradient gradient);
  // Those that have been let in since the last call, of those that asked.
  std::vector<RowGradient> let_in();

  // It neither began, nor asked, nor ended.
  bool unknown(RowGradient gradient) const { return state(gradient) == State::kUnknown; }
  bool asking(RowGradient gradient) const { return state(gradient) == State::kAsking; }
  bool is_open(RowGradient gradient) const { return state(gradient) == State::kOpen; }
  bool ended(RowGradient gradient) const { return state(gradient) == State::kEnded; }

 private:
  enum class State : uint8_t { kUnknown, kAsking, kOpen, kEnded };
  struct Slice {
    uint32_t turn = 0;  // the first contributor whose gradient has not ended
    std::vector<State> states;
    std::vector<uint64_t> charges;  // of those that asked
  };

  State state(RowGradient g) const { return slices_[g.slice].states[g.contributor]; }
  bool in_turn(RowGradient g) const { return slices_[g.slice].turn == g.contributor; }
  std::optional<RowGradient> next();
  void open(RowGradient gradient, uint64_t charge);

  const uint32_t contributors_;
  const uint64_t half_;  // of the window
  std::vector<Slice> slices_;
  std::vector<uint32_t> sparse_;     // slices
  std::vector<uint64_t> free_used_;  // by contributor
  std::map<RowGradient, uint64_t> asking_;
  std::set<RowGradient> asking_in_turn_;
  std::optional<RowGradient> beyond_;  // let in without room
  uint64_t charged_ = 0;
};

}  // namespace fleet::strategies
