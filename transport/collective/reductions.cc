#include <algorithm>
#include <new>
#include <numeric>

#include "transport/collective/pipeline_impl.h"

namespace fleet::transport::collective_detail {
namespace {

constexpr size_t kLine = 64;

// Every rank has the contributions of all to one array, and sums them.
class Contributions {
 public:
  Contributions(Group& group, const OperationId& id, const ShardLayout& layout, ElementType type,
                size_t count)
      : group_(group),
        layout_(layout),
        type_(type),
        count_(count),
        stride_(whole(count * transport::size_of(type), kLine)),
        messages_(group.peers.messages(id)),
        scratch_(group.scratch, stride_ * layout.parts()),
        addends_(layout.parts()) {}

  // The slice [offset, …) of this rank's own parts; the others' come by messages.
  void collect(std::span<const std::byte* const> parts, size_t offset) {
    const size_t bytes = count_ * transport::size_of(type_);
    for (int rank = 0; rank < group_.size; ++rank) {
      const size_t first = layout_.first_part(rank);
      for (size_t k = 0; k < layout_.nodes(rank).size(); ++k) {
        std::byte* place = scratch_.data() + (first + k) * stride_;
        const bool own = rank == group_.rank;
        addends_[first + k] = {own ? parts[k] + offset : place, Form::kGiven};
        if (!own && bytes > 0) messages_->receive(rank, {place, bytes});
      }
    }
  }
  void send(int to, std::span<const std::byte* const> parts, size_t offset, size_t bytes) {
    for (const std::byte* part : parts) {
      if (bytes > 0) messages_->send(to, {part + offset, bytes});
    }
  }
  // True when all have come and gone, and `out` is their sum.
  bool sum_into(std::byte* out) {
    if (!messages_->test()) return false;
    add_up(layout_.sum(), type_, addends_, out, Form::kGiven, count_);
    return true;
  }
  MessageSet& messages() { return *messages_; }

 private:
  Group& group_;
  const ShardLayout& layout_;
  ElementType type_;
  size_t count_;
  size_t stride_;
  std::unique_ptr<MessageSet> messages_;
  Scratch scratch_;
  std::vector<Addend> addends_;
};

class DirectAllReduce : public Machine {
 public:
  DirectAllReduce(Group& group, const OperationId& id, const Reduction& reduction)
      : out_(reduction.out), all_(group, id, reduction.layout, reduction.type, reduction.count) {
    all_.collect(reduction.parts, 0);
    const size_t bytes = reduction.count * transport::size_of(reduction.type);
    for (int step = 1; step < group.size; ++step) {
      all_.send((group.rank + step) % group.size, reduction.parts, 0, bytes);
    }
  }
  bool advance() override { return all_.sum_into(out_); }
  void waits_for(std::vector<int>& ranks) override { all_.messages().unfinished(ranks); }

 private:
  std::byte* out_;
  Contributions all_;
};

class DirectReduceScatter : public Machine {
 public:
  DirectReduceScatter(Group& group, const OperationId& id, const Reduction& reduction,
                      std::span<const size_t> counts)
      : out_(reduction.out),
        all_(group, id, reduction.layout, reduction.type, counts[static_cast<size_t>(group.rank)]) {
    const size_t width = transport::size_of(reduction.type);
    const auto offset_of = [&](int rank) {
      return std::accumulate(counts.begin(), counts.begin() + rank, size_t{0}) * width;
    };
    all_.collect(reduction.parts, offset_of(group.rank));
    for (int step = 1; step < group.size; ++step) {
      const int to = (group.rank + step) % group.size;
      all_.send(to, reduction.parts, offset_of(to), counts[static_cast<size_t>(to)] * width);
    }
  }
  bool advance() override { return all_.sum_into(out_); }
  void waits_for(std::vector<int>& ranks) override { all_.messages().unfinished(ranks); }

 private:
  std::byte* out_;
  Contributions all_;
};

// A round is one piece of each rank: every rank collects and sums its own, then sends it to all.
class PiecewiseAllReduce : public Pipeline {
 public:
  PiecewiseAllReduce(Group& group, const OperationId& id, Reduction reduction, size_t piece,
                     size_t window)
      : Pipeline(group, id, rounds_of(group, reduction, piece), window),
        reduction_(std::move(reduction)),
        piece_(piece) {
    start();
  }

  // Elements of a piece of at most `bytes`: less where the array would not give one to each rank.
  static size_t piece_of(const Group& group, const Reduction& reduction, size_t bytes) {
    const auto ranks = static_cast<size_t>(group.size);
    const size_t even = whole((reduction.count + ranks - 1) / ranks, kElementsPerLine);
    return std::max(kElementsPerLine, std::min(bytes / transport::size_of(reduction.type), even));
  }

 private:
  struct Span {
    size_t offset;  // bytes
    size_t bytes;
  };

  static size_t rounds_of(const Group& group, const Reduction& reduction, size_t piece) {
    const size_t round = piece * static_cast<size_t>(group.size);
    return (reduction.count + round - 1) / round;
  }

  Span span_of(size_t round, int rank) const {
    const size_t index = round * static_cast<size_t>(group_.size) + static_cast<size_t>(rank);
    const size_t begin = std::min(index * piece_, reduction_.count);
    const size_t end = std::min(begin + piece_, reduction_.count);
    const size_t width = transport::size_of(reduction_.type);
    return {begin * width, (end - begin) * width};
  }

  void begin(Round& round) override {
    const ShardLayout& layout = reduction_.layout;
    const Span own = span_of(round.number, group_.rank);
    round.scratch = Scratch(group_.scratch, own.bytes * layout.parts());
    for (int step = 1; step < group_.size; ++step) {
      const int from = (group_.rank + group_.size - step) % group_.size;
      for (size_t k = 0; own.bytes > 0 && k < layout.nodes(from).size(); ++k) {
        std::byte* place = round.scratch.data() + (layout.first_part(from) + k) * own.bytes;
        round.messages->receive(from, {place, own.bytes});
      }
    }
    for (int step = 1; step < group_.size; ++step) {
      const int to = (group_.rank + step) % group_.size;
      const Span theirs = span_of(round.number, to);
      if (theirs.bytes == 0) continue;
      for (const std::byte* part : reduction_.parts) {
        round.messages->send(to, {part + theirs.offset, theirs.bytes});
      }
    }
  }

  void relay(Round& round) override {
    const Span own = span_of(round.number, group_.rank);
    if (own.bytes > 0) sum(round, own);
    round.scratch = {};
    for (int step = 1; step < group_.size; ++step) {
      const int from = (group_.rank + group_.size - step) % group_.size;
      const Span theirs = span_of(round.number, from);
      if (theirs.bytes == 0) continue;
      round.messages->receive(from, {reduction_.out + theirs.offset, theirs.bytes});
    }
    for (int step = 1; step < group_.size && own.bytes > 0; ++step) {
      const int to = (group_.rank + step) % group_.size;
      round.messages->send(to, {reduction_.out + own.offset, own.bytes});
    }
  }

  void sum(const Round& round, Span own) {
    const ShardLayout& layout = reduction_.layout;
    addends_.resize(layout.parts());
    for (size_t i = 0; i < addends_.size(); ++i) {
      addends_[i] = {round.scratch.data() + i * own.bytes, Form::kGiven};
    }
    for (size_t k = 0; k < reduction_.parts.size(); ++k) {
      addends_[layout.first_part(group_.rank) + k].values = reduction_.parts[k] + own.offset;
    }
    add_up(layout.sum(), reduction_.type, addends_, reduction_.out + own.offset, Form::kGiven,
           own.bytes / transport::size_of(reduction_.type));
  }

  Reduction reduction_;
  size_t piece_;  // elements
  std::vector<Addend> addends_;
};

}  // namespace

Buffer ScratchPool::take(size_t bytes) {
  const auto found = std::find_if(free_.begin(), free_.end(),
                                  [&](const Buffer& buffer) { return buffer.size() >= bytes; });
  if (found == free_.end()) {
    const size_t size = std::max<size_t>(bytes, kLine);
    Buffer made = memory_ == nullptr ? Buffer(size) : memory_->allocate(size);
    if (!made) throw std::bad_alloc();
    owners_.push_back(made.owner());
    return made;
  }
  Buffer buffer = std::move(*found);
  free_.erase(found);
  return buffer;
}

void ScratchPool::give_back(Buffer buffer) {
  const auto larger = std::find_if(free_.begin(), free_.end(), [&](const Buffer& other) {
    return other.size() >= buffer.size();
  });
  free_.insert(larger, std::move(buffer));
}

const ExchangePlan& Group::plan(const ShardLayout& layout) {
  const auto found = plans.find(layout.shards());
  if (found != plans.end()) return found->second;
  return plans.emplace(layout.shards(), plan_exchange(layout, rank)).first->second;
}

std::unique_ptr<Machine> direct_all_reduce(Group& group, const OperationId& id,
                                           const Reduction& reduction) {
  return std::make_unique<DirectAllReduce>(group, id, reduction);
}

std::unique_ptr<Machine> direct_reduce_scatter(Group& group, const OperationId& id,
                                               const Reduction& reduction,
                                               std::span<const size_t> counts) {
  return std::make_unique<DirectReduceScatter>(group, id, reduction, counts);
}

std::unique_ptr<Machine> piecewise_all_reduce(Group& group, const OperationId& id,
                                              Reduction reduction, Pieces pieces) {
  const size_t piece = PiecewiseAllReduce::piece_of(group, reduction, pieces.bytes);
  return std::make_unique<PiecewiseAllReduce>(group, id, std::move(reduction), piece,
                                              pieces.window);
}

}  // namespace fleet::transport::collective_detail
