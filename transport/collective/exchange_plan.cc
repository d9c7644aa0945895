#include <algorithm>
#include <bit>

#include "transport/collective/exchange_plan_impl.h"

namespace fleet::transport::collective_detail {
namespace {

using Node = ExchangePlan::Node;
using Step = ExchangePlan::Step;

class Planner {
 public:
  explicit Planner(const ShardLayout& layout)
      : layout_(layout),
        ranks_(layout.ranks()),
        pairing_(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks_)))) {}

  ExchangePlan plan(int rank) const {
    ExchangePlan plan;
    plan.given = nodes_of({rank, rank + 1}, {});
    const auto above = [&](int low) { return low + pairing_ < ranks_; };
    if (rank >= pairing_) {
      plan.steps.push_back(step(rank - pairing_, true, false, {}, {}));
      return plan;
    }
    std::vector<Node> held = plan.given;
    if (above(rank)) {
      const int peer = rank + pairing_;
      plan.steps.push_back(step(peer, false, true, held, nodes_of({peer, peer + 1}, {})));
      held = known(rank, 1);
    }
    for (int distance = 1; distance < pairing_; distance *= 2) {
      const int peer = rank ^ distance;
      plan.steps.push_back(step(peer, true, true, held, known(peer, distance)));
      plan.steps.back().upper = rank > peer;
      held = known(rank, 2 * distance);
    }
    return plan;
  }

 private:
  struct Ranks {
    int begin = 0;
    int end = 0;
  };

  // What a rank below p holds when it knows its block of `width` ranks.
  std::vector<Node> known(int rank, int width) const {
    const int begin = rank / width * width;
    const Ranks above{std::min(begin + pairing_, ranks_),
                      std::min(begin + pairing_ + width, ranks_)};
    return nodes_of({begin, begin + width}, above);
  }

  std::vector<Node> nodes_of(Ranks low, Ranks high) const {
    std::vector<Node> nodes;
    const auto add = [&](ShardRange shards) {
      for (const ShardRange& node : maximal_nodes(shards, layout_.shards())) {
        nodes.push_back({node, form_of(node)});
      }
    };
    const ShardRange first = shards_of(low);
    if (high.begin == high.end) {
      add(first);
    } else if (const ShardRange second = shards_of(high); second.begin == first.end) {
      add({first.begin, second.end});
    } else {
      add(first);
      add(second);
    }
    return nodes;
  }

  ShardRange shards_of(Ranks ranks) const {
    return {layout_.range(ranks.begin).begin, layout_.range(ranks.end - 1).end};
  }

  Form form_of(ShardRange node) const {
    for (int rank = 0; rank < ranks_; ++rank) {
      if (!layout_.range(rank).contains(node)) continue;
      const auto own = layout_.nodes(rank);
      return std::find(own.begin(), own.end(), node) != own.end() ? Form::kGiven : Form::kSum;
    }
    return Form::kSum;
  }

  Step step(int peer, bool sends, bool receives, const std::vector<Node>& held,
            std::vector<Node> received) const {
    Step made{peer, sends, receives, false, std::move(received), {}};
    std::vector<Node> all = held;
    all.insert(all.end(), made.received.begin(), made.received.end());
    std::vector<size_t> order(all.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return all[a].range.begin < all[b].range.begin; });
    for (size_t next = 0; next < order.size();) next = take_result(all, order, next, made.results);
    return made;
  }

  // The largest node that begins with order[next] and is made up of what is there; returns the
  // place of what follows it.
  size_t take_result(const std::vector<Node>& all, const std::vector<size_t>& order, size_t next,
                     std::vector<ExchangePlan::Result>& results) const {
    size_t contiguous = next + 1;
    while (contiguous < order.size() &&
           all[order[contiguous]].range.begin == all[order[contiguous - 1]].range.end) {
      ++contiguous;
    }
    size_t end = next + 1;
    for (size_t last = next; last < contiguous; ++last) {
      const ShardRange range{all[order[next]].range.begin, all[order[last]].range.end};
      if (is_tree_node(range, layout_.shards())) end = last + 1;
    }
    ExchangePlan::Result result{all[order[next]], {}, {}};
    std::vector<ShardRange> parts;
    for (size_t i = next; i < end; ++i) {
      result.inputs.push_back(order[i]);
      parts.push_back(all[order[i]].range);
    }
    if (parts.size() > 1) {
      result.node = {{parts.front().begin, parts.back().end}, Form::kSum};
      result.sum.emplace(parts, layout_.shards());
    }
    results.push_back(std::move(result));
    return end;
  }

  const ShardLayout& layout_;
  int ranks_;
  int pairing_;  // p
};

}  // namespace

ExchangePlan plan_exchange(const ShardLayout& layout, int rank) {
  return Planner(layout).plan(rank);
}

}  // namespace fleet::transport::collective_detail
