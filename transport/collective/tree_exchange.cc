#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "transport/collective/operations_impl.h"

namespace fleet::transport::collective_detail {
namespace {

constexpr size_t kAlignment = 8;  // of each array in a message

// What becomes of the array on the way: all of it is exchanged at each step, or the half that the
// other of a pair keeps. Halves of an all-reduce come together again by the same steps backwards.
enum class Way { kDoubling, kHalving, kScatter };

// An all-reduce or a reduce-scatter by the steps of an ExchangePlan. Each step sends the arrays
// that are held in one message, and adds up what it can.
class TreeExchange : public Machine {
 public:
  TreeExchange(Group& group, const OperationId& id, Reduction reduction, Way way,
               std::span<const size_t> counts)
      : group_(group),
        plan_(group.plan(reduction.layout)),
        reduction_(std::move(reduction)),
        way_(way),
        result_(reduction_.out),
        messages_(group.peers.messages(id)) {
    if (way_ == Way::kScatter) {
      put_slices_in_order(counts);
    } else {
      divide_evenly();
    }
    spans_.push_back({0, bounds_.size() - 1});
    for (size_t i = 0; i < plan_.given.size(); ++i) {
      held_.push_back({plan_.given[i], reduction_.parts[i]});
    }
    post();
  }

  bool advance() override {
    while (!done_) {
      if (!messages_->test()) return false;
      if (next_ < plan_.steps.size()) add_received();
      ++next_;
      if (next_ < 2 * plan_.steps.size()) {
        post();
      } else {
        finish();
      }
    }
    return true;
  }
  void waits_for(std::vector<int>& ranks) override { messages_->unfinished(ranks); }

 private:
  using Node = ExchangePlan::Node;
  using Step = ExchangePlan::Step;
  // Shares of the array, one for each of the ranks that pair.
  struct Span {
    size_t begin;
    size_t end;
  };
  struct Slice {
    size_t begin;  // elements
    size_t count;
  };
  // The values of a node in the span that is left.
  struct Held {
    Node node;
    const std::byte* values;
  };

  size_t width(Form form) const { return size_of(reduction_.type, form); }

  size_t begin_of(Span span) const { return bounds_[span.begin]; }
  size_t size_of_span(Span span) const { return bounds_[span.end] - bounds_[span.begin]; }

  void divide_evenly() {
    const size_t shares = way_ == Way::kDoubling ? 1 : pairing();
    const size_t each = whole((reduction_.count + shares - 1) / shares, kElementsPerLine);
    for (size_t i = 0; i < shares; ++i) bounds_.push_back(std::min(i * each, reduction_.count));
    bounds_.push_back(reduction_.count);
  }

  size_t pairing() const { return std::bit_floor(static_cast<size_t>(group_.size)); }

  // Halves of halves are to end with each rank's own slice: the first half has those of even
  // ranks, and so on. The share of a rank has its slice and that of the rank above the pairs which
  // gives to it.
  void put_slices_in_order(std::span<const size_t> counts) {
    const size_t width = transport::size_of(reduction_.type);
    std::vector<size_t> given(counts.size() + 1);
    std::partial_sum(counts.begin(), counts.end(), given.begin() + 1);
    std::vector<std::byte*> copies;
    for (size_t k = 0; k < reduction_.parts.size(); ++k) {
      copies.push_back(scratch(reduction_.count * width));
    }
    result_ = scratch(reduction_.count * width);
    slices_.resize(counts.size());
    size_t at = 0;
    for (size_t share = 0; share < pairing(); ++share) {
      bounds_.push_back(at);
      for (size_t rank = reversed(share); rank < counts.size(); rank += pairing()) {
        slices_[rank] = {at, counts[rank]};
        for (size_t k = 0; k < copies.size() && counts[rank] > 0; ++k) {
          std::memcpy(copies[k] + at * width, reduction_.parts[k] + given[rank] * width,
                      counts[rank] * width);
        }
        at += counts[rank];
      }
    }
    bounds_.push_back(at);
    for (size_t k = 0; k < copies.size(); ++k) reduction_.parts[k] = copies[k];
  }

  // The bits of a number below pairing() backwards.
  size_t reversed(size_t number) const {
    size_t result = 0;
    for (size_t bit = 1; bit < pairing(); bit *= 2) result = 2 * result + ((number & bit) != 0);
    return result;
  }

  std::byte* scratch(size_t bytes) { return scratch_.emplace_back(group_.scratch, bytes).data(); }

  // Messages of step next_: on the way there, or back.
  void post() {
    const size_t steps = plan_.steps.size();
    if (next_ < steps) {
      post_nodes(plan_.steps[next_]);
    } else {
      post_result(plan_.steps[2 * steps - 1 - next_]);
    }
  }

  // What this rank keeps of its span in a step, and what its peer keeps.
  std::pair<Span, Span> kept(const Step& step) const {
    const Span span = spans_.back();
    if (way_ == Way::kDoubling || !plan_.pairs(step)) return {span, span};
    const size_t middle = (span.begin + span.end) / 2;
    const Span low{span.begin, middle};
    const Span high{middle, span.end};
    return step.upper ? std::pair{high, low} : std::pair{low, high};
  }

  void post_nodes(const Step& step) {
    const auto [own, theirs] = kept(step);
    if (step.receives) receive_nodes(step, size_of_span(own));
    if (step.sends) messages_->send(step.peer, packed(theirs));
    const size_t skipped = begin_of(own) - begin_of(spans_.back());
    for (Held& held : held_) held.values += skipped * width(held.node.form);
    spans_.push_back(own);
  }

  // One message with `count` elements of each of the peer's nodes.
  void receive_nodes(const Step& step, size_t count) {
    size_t bytes = 0;
    std::vector<size_t> places;
    for (const Node& node : step.received) {
      places.push_back(whole(bytes, kAlignment));
      bytes = places.back() + count * width(node.form);
    }
    std::byte* memory = scratch(bytes);
    received_.clear();
    for (size_t i = 0; i < places.size(); ++i) {
      received_.push_back({step.received[i], memory + places[i]});
    }
    messages_->receive(step.peer, {memory, bytes});
  }

  // That span of all that is held, in one piece of memory.
  std::span<const std::byte> packed(Span span) {
    const size_t skipped = begin_of(span) - begin_of(spans_.back());
    const size_t count = size_of_span(span);
    const auto from = [&](const Held& held) {
      return held.values + skipped * width(held.node.form);
    };
    if (held_.size() == 1) {
      return {from(held_[0]), count * width(held_[0].node.form)};
    }
    size_t most = 0;
    for (const Held& held : held_) most += count * width(held.node.form) + kAlignment;
    std::byte* memory = scratch(most);
    size_t bytes = 0;
    for (const Held& held : held_) {
      bytes = whole(bytes, kAlignment);
      const size_t size = count * width(held.node.form);
      if (size > 0) std::memcpy(memory + bytes, from(held), size);
      bytes += size;
    }
    return {memory, bytes};
  }

  void add_received() {
    const Step& step = plan_.steps[next_];
    std::vector<Held> all = std::move(held_);
    all.insert(all.end(), received_.begin(), received_.end());
    held_.clear();
    const Span span = spans_.back();
    const size_t count = size_of_span(span);
    const bool last = next_ + 1 == plan_.steps.size();
    for (const auto& result : step.results) {
      if (!result.sum) {
        held_.push_back(all[result.inputs[0]]);
        continue;
      }
      addends_.clear();
      for (const size_t i : result.inputs) addends_.push_back({all[i].values, all[i].node.form});
      std::byte* out = last ? bytes_of(span).data() : scratch(count * width(Form::kSum));
      add_up(*result.sum, reduction_.type, addends_, out, last ? Form::kGiven : Form::kSum, count);
      held_.push_back({result.node, out});
    }
  }

  // The way back: halves go to the peer of a pair, the whole to a rank above the pairs.
  void post_result(const Step& step) {
    const Span own = spans_.back();
    spans_.pop_back();
    const Span both = spans_.back();
    if (!plan_.pairs(step)) {
      if (step.receives) messages_->send(step.peer, result_for(step.peer, both));
      if (step.sends) messages_->receive(step.peer, result_here(both));
    } else if (way_ == Way::kHalving) {
      const Span theirs = step.upper ? Span{both.begin, own.begin} : Span{own.end, both.end};
      messages_->receive(step.peer, bytes_of(theirs));
      messages_->send(step.peer, bytes_of(own));
    }
  }

  std::span<std::byte> bytes_of(Span span) const {
    return bytes_of(Slice{begin_of(span), size_of_span(span)});
  }
  std::span<std::byte> bytes_of(Slice slice) const {
    const size_t width = transport::size_of(reduction_.type);
    return {result_ + slice.begin * width, slice.count * width};
  }
  std::span<const std::byte> result_for(int peer, Span all) const {
    return slices_.empty() ? bytes_of(all) : bytes_of(slices_[static_cast<size_t>(peer)]);
  }
  std::span<std::byte> result_here(Span all) const {
    if (slices_.empty()) return bytes_of(all);
    return {reduction_.out, bytes_of(own_slice()).size()};
  }
  Slice own_slice() const { return slices_[static_cast<size_t>(group_.rank)]; }

  void finish() {
    done_ = true;
    const bool got_it = plan_.steps.front().sends && !plan_.steps.front().receives;
    if (slices_.empty() || got_it) return;
    const auto part = bytes_of(own_slice());
    if (!part.empty()) std::memcpy(reduction_.out, part.data(), part.size());
  }

  Group& group_;
  const ExchangePlan& plan_;
  Reduction reduction_;
  const Way way_;
  std::byte* result_;  // of the whole sum, as far as it is known here
  std::vector<Scratch> scratch_;
  std::unique_ptr<MessageSet> messages_;
  std::vector<size_t> bounds_;  // elements; where shares begin and the last one ends
  std::vector<Slice> slices_;   // of ranks, of a reduce-scatter
  std::vector<Span> spans_;     // what was left to sum after each step
  std::vector<Held> held_;
  std::vector<Held> received_;
  std::vector<Addend> addends_;
  size_t next_ = 0;  // the steps, then the steps backwards
  bool done_ = false;
};

}  // namespace

std::unique_ptr<Machine> doubling_all_reduce(Group& group, const OperationId& id,
                                             Reduction reduction) {
  return std::make_unique<TreeExchange>(group, id, std::move(reduction), Way::kDoubling,
                                        std::span<const size_t>());
}

std::unique_ptr<Machine> halving_all_reduce(Group& group, const OperationId& id,
                                            Reduction reduction) {
  return std::make_unique<TreeExchange>(group, id, std::move(reduction), Way::kHalving,
                                        std::span<const size_t>());
}

std::unique_ptr<Machine> halving_reduce_scatter(Group& group, const OperationId& id,
                                                Reduction reduction,
                                                std::span<const size_t> counts) {
  return std::make_unique<TreeExchange>(group, id, std::move(reduction), Way::kScatter, counts);
}

}  // namespace fleet::transport::collective_detail
