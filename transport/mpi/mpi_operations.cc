#include <algorithm>
#include <array>
#include <cstring>
#include <deque>

#include "base/strings.h"
#include "transport/mpi/mpi_operations_impl.h"

namespace fleet::transport::mpi_detail {
namespace {

constexpr size_t kLargestMessage = size_t{1} << 30;
constexpr size_t kElementsPerLine = 16;

void check(int code, int peer) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw_error(ErrorCode::kPeerLost,
              {.what = peer >= 0 ? str_cat("a message between this rank and rank ", peer, " failed")
                                 : "a message between ranks failed",
               .where = "MPI",
               .expected = "a message of the agreed size",
               .got = std::string(text.data(), static_cast<size_t>(length)),
               .fix = "read the logs of the other ranks; all must run the same program"});
}

// Every rank sends its contribution to every other, and sums all of them itself.
class DirectAllReduce : public Machine {
 public:
  DirectAllReduce(Reduction reduction, int tag) : reduction_(std::move(reduction)), tag_(tag) {}

  bool advance(Group& group) override {
    if (!started_) start(group);
    if (!messages_.test(group)) return false;
    collective_detail::sum_parts(reduction_.layout, reduction_.type, arrays_, reduction_.out,
                                 reduction_.count);
    group.scratch.give_back(std::move(scratch_));
    return true;
  }
  void waits_for(std::vector<int>& ranks) override { messages_.unfinished(ranks); }

 private:
  void start(Group& group) {
    started_ = true;
    const ShardLayout& layout = reduction_.layout;
    const size_t bytes = reduction_.count * size_of(reduction_.type);
    const size_t stride = (bytes + 63) / 64 * 64;
    scratch_ = group.scratch.take(stride * layout.parts());
    arrays_.resize(layout.parts());
    for (int rank = 0; rank < group.size; ++rank) {
      const size_t first = layout.first_part(rank);
      for (size_t k = 0; k < layout.nodes(rank).size(); ++k) {
        if (rank == group.rank) {
          arrays_[first + k] = reduction_.parts[k];
          continue;
        }
        std::byte* place = scratch_.data() + (first + k) * stride;
        messages_.receive(group, place, bytes, rank, tag_);
        arrays_[first + k] = place;
      }
    }
    for (int step = 1; step < group.size; ++step) {
      const int to = (group.rank + step) % group.size;
      for (const std::byte* part : reduction_.parts) messages_.send(group, part, bytes, to, tag_);
    }
  }

  Reduction reduction_;
  int tag_;
  bool started_ = false;
  Messages messages_;
  Buffer scratch_;
  std::vector<const void*> arrays_;
};

// Piece p belongs to rank p % size; a round is one piece of each rank. In a round every rank first
// collects and sums its own piece, then sends the sum to all.
class PiecewiseAllReduce : public Machine {
 public:
  PiecewiseAllReduce(Reduction reduction, int tag, size_t piece_bytes, int window)
      : reduction_(std::move(reduction)),
        tag_(tag),
        window_(static_cast<size_t>(std::max(1, window))),
        piece_(piece_bytes / size_of(reduction_.type)) {
    const auto ranks = static_cast<size_t>(reduction_.layout.ranks());
    const size_t even = (reduction_.count + ranks - 1) / ranks;
    const size_t whole_lines = (even + kElementsPerLine - 1) / kElementsPerLine * kElementsPerLine;
    piece_ = std::max(kElementsPerLine, std::min(piece_, whole_lines));
    const size_t round = piece_ * ranks;
    rounds_ = (reduction_.count + round - 1) / round;
  }

  bool advance(Group& group) override {
    while (true) {
      while (started_ < rounds_ && active_.size() < window_) begin_round(group);
      // Messages between two ranks match in order, so no round overtakes another.
      bool earlier_collected = true;
      for (Round& round : active_) {
        if (!round.collected) {
          if (!earlier_collected || !round.messages.test(group)) {
            earlier_collected = false;
            continue;
          }
          sum_and_spread(group, round);
        }
        if (!round.done) round.done = round.messages.test(group);
      }
      if (active_.empty() || !active_.front().done) return active_.empty();
      while (!active_.empty() && active_.front().done) active_.pop_front();
    }
  }

  void waits_for(std::vector<int>& ranks) override {
    for (Round& round : active_) round.messages.unfinished(ranks);
  }

 private:
  struct Round {
    size_t number = 0;
    Messages messages;
    Buffer scratch;
    bool collected = false;
    bool done = false;
  };
  struct Span {
    size_t offset;  // bytes
    size_t bytes;
  };

  Span piece_of(const Group& group, size_t round, int rank) const {
    const size_t index = round * static_cast<size_t>(group.size) + static_cast<size_t>(rank);
    const size_t begin = std::min(index * piece_, reduction_.count);
    const size_t end = std::min(begin + piece_, reduction_.count);
    const size_t width = size_of(reduction_.type);
    return {begin * width, (end - begin) * width};
  }

  void begin_round(Group& group) {
    Round& round = active_.emplace_back();
    round.number = started_++;
    const ShardLayout& layout = reduction_.layout;
    const Span own = piece_of(group, round.number, group.rank);
    round.scratch = group.scratch.take(own.bytes * layout.parts());
    for (int step = 1; step < group.size; ++step) {
      const int from = (group.rank + group.size - step) % group.size;
      for (size_t k = 0; own.bytes > 0 && k < layout.nodes(from).size(); ++k) {
        std::byte* place = round.scratch.data() + (layout.first_part(from) + k) * own.bytes;
        round.messages.receive(group, place, own.bytes, from, tag_);
      }
    }
    for (int step = 1; step < group.size; ++step) {
      const int to = (group.rank + step) % group.size;
      const Span theirs = piece_of(group, round.number, to);
      if (theirs.bytes == 0) continue;
      for (const std::byte* part : reduction_.parts) {
        round.messages.send(group, part + theirs.offset, theirs.bytes, to, tag_);
      }
    }
  }

  void sum_and_spread(Group& group, Round& round) {
    round.collected = true;
    const Span own = piece_of(group, round.number, group.rank);
    if (own.bytes > 0) sum_own(group, round, own);
    group.scratch.give_back(std::move(round.scratch));
    for (int step = 1; step < group.size; ++step) {
      const int from = (group.rank + group.size - step) % group.size;
      const Span theirs = piece_of(group, round.number, from);
      if (theirs.bytes == 0) continue;
      round.messages.receive(group, reduction_.out + theirs.offset, theirs.bytes, from, tag_ + 1);
    }
    for (int step = 1; step < group.size && own.bytes > 0; ++step) {
      const int to = (group.rank + step) % group.size;
      round.messages.send(group, reduction_.out + own.offset, own.bytes, to, tag_ + 1);
    }
  }

  void sum_own(const Group& group, const Round& round, Span own) {
    const ShardLayout& layout = reduction_.layout;
    std::vector<const void*> arrays(layout.parts());
    for (size_t i = 0; i < arrays.size(); ++i) arrays[i] = round.scratch.data() + i * own.bytes;
    for (size_t k = 0; k < reduction_.parts.size(); ++k) {
      arrays[layout.first_part(group.rank) + k] = reduction_.parts[k] + own.offset;
    }
    collective_detail::sum_parts(layout, reduction_.type, arrays, reduction_.out + own.offset,
                                 own.bytes / size_of(reduction_.type));
  }

  Reduction reduction_;
  int tag_;
  size_t window_;
  size_t piece_;  // elements
  size_t rounds_ = 0;
  size_t started_ = 0;
  std::deque<Round> active_;
};

// Every rank sends each other rank that one's slice, and sums its own.
class ScatterReduce : public Machine {
 public:
  ScatterReduce(Reduction reduction, std::vector<size_t> counts, int tag)
      : reduction_(std::move(reduction)), counts_(std::move(counts)), tag_(tag) {}

  bool advance(Group& group) override {
    if (!started_) start(group);
    if (!messages_.test(group)) return false;
    collective_detail::sum_parts(reduction_.layout, reduction_.type, arrays_, reduction_.out,
                                 counts_[static_cast<size_t>(group.rank)]);
    group.scratch.give_back(std::move(scratch_));
    return true;
  }
  void waits_for(std::vector<int>& ranks) override { messages_.unfinished(ranks); }

 private:
  void start(Group& group) {
    started_ = true;
    const ShardLayout& layout = reduction_.layout;
    const size_t width = size_of(reduction_.type);
    const size_t own = counts_[static_cast<size_t>(group.rank)] * width;
    scratch_ = group.scratch.take(own * layout.parts());
    arrays_.resize(layout.parts());
    size_t offset = 0;
    for (int rank = 0; rank < group.size; ++rank) {
      const size_t bytes = counts_[static_cast<size_t>(rank)] * width;
      const size_t first = layout.first_part(rank);
      for (size_t k = 0; rank != group.rank && k < layout.nodes(rank).size(); ++k) {
        std::byte* place = scratch_.data() + (first + k) * own;
        if (own > 0) messages_.receive(group, place, own, rank, tag_);
        arrays_[first + k] = place;
      }
      for (size_t k = 0; k < reduction_.parts.size(); ++k) {
        const std::byte* slice = reduction_.parts[k] + offset;
        if (rank == group.rank) {
          arrays_[first + k] = slice;
        } else if (bytes > 0) {
          messages_.send(group, slice, bytes, rank, tag_);
        }
      }
      offset += bytes;
    }
  }

  Reduction reduction_;
  std::vector<size_t> counts_;
  int tag_;
  bool started_ = false;
  Messages messages_;
  Buffer scratch_;
  std::vector<const void*> arrays_;
};

// A binomial tree rooted at `root`: the parent of a rank is itself with its lowest bit cleared,
// counted from the root.
class TreeBroadcast : public Machine {
 public:
  TreeBroadcast(std::span<std::byte> bytes, int root, int tag)
      : bytes_(bytes), root_(root), tag_(tag) {}

  bool advance(Group& group) override {
    const int place = (group.rank + group.size - root_) % group.size;
    if (stage_ == 0) {
      stage_ = 1;
      const int parent = (place & (place - 1)) + root_;
      if (place != 0) {
        messages_.receive(group, bytes_.data(), bytes_.size(), parent % group.size, tag_);
      }
    }
    if (!messages_.test(group)) return false;
    if (stage_ == 1) {
      stage_ = 2;
      for (int bit = 1; bit < group.size && (place & bit) == 0; bit <<= 1) {
        if (place + bit >= group.size) break;
        const int child = (place + bit + root_) % group.size;
        messages_.send(group, bytes_.data(), bytes_.size(), child, tag_);
      }
    }
    return messages_.test(group);
  }
  void waits_for(std::vector<int>& ranks) override { messages_.unfinished(ranks); }

 private:
  std::span<std::byte> bytes_;
  int root_;
  int tag_;
  int stage_ = 0;
  Messages messages_;
};

class DirectAllGather : public Machine {
 public:
  DirectAllGather(std::span<const std::byte> mine, std::span<std::byte> all, int tag)
      : mine_(mine), all_(all), tag_(tag) {}

  bool advance(Group& group) override {
    if (!started_) {
      started_ = true;
      const size_t each = mine_.size();
      for (int step = 1; step < group.size; ++step) {
        const int from = (group.rank + group.size - step) % group.size;
        std::byte* place = each == 0 ? nullptr : all_.data() + static_cast<size_t>(from) * each;
        messages_.receive(group, place, each, from, tag_);
      }
      for (int step = 1; step < group.size; ++step) {
        messages_.send(group, mine_.data(), each, (group.rank + step) % group.size, tag_);
      }
      std::byte* own = all_.data() + static_cast<size_t>(group.rank) * each;
      if (each > 0 && own != mine_.data()) std::memcpy(own, mine_.data(), each);
    }
    return messages_.test(group);
  }
  void waits_for(std::vector<int>& ranks) override { messages_.unfinished(ranks); }

 private:
  std::span<const std::byte> mine_;
  std::span<std::byte> all_;
  int tag_;
  bool started_ = false;
  Messages messages_;
};

}  // namespace

Buffer ScratchPool::take(size_t bytes) {
  const auto found = std::find_if(free_.begin(), free_.end(),
                                  [&](const Buffer& buffer) { return buffer.size() >= bytes; });
  if (found == free_.end()) return Buffer(std::max<size_t>(bytes, 64));
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

void Messages::send(const Group& group, const void* bytes, size_t count, int to, int tag) {
  const auto* next = static_cast<const std::byte*>(bytes);
  do {
    const size_t now = std::min(count, kLargestMessage);
    check(MPI_Isend(next, static_cast<int>(now), MPI_BYTE, to, tag, group.comm,
                    &requests_.emplace_back(MPI_REQUEST_NULL)),
          to);
    peers_.push_back({to, false});
    if (count == now) return;
    next += now;
    count -= now;
  } while (true);
}

void Messages::receive(const Group& group, void* bytes, size_t count, int from, int tag) {
  auto* next = static_cast<std::byte*>(bytes);
  do {
    const size_t now = std::min(count, kLargestMessage);
    check(MPI_Irecv(next, static_cast<int>(now), MPI_BYTE, from, tag, group.comm,
                    &requests_.emplace_back(MPI_REQUEST_NULL)),
          from);
    peers_.push_back({from, true});
    if (count == now) return;
    next += now;
    count -= now;
  } while (true);
}

bool Messages::test(Group& group) {
  if (requests_.empty()) return true;
  int done = 0;
  check(
      MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE),
      -1);
  if (done == 0) return false;
  ++group.progress;
  requests_.clear();
  peers_.clear();
  return true;
}

void Messages::unfinished(std::vector<int>& ranks) {
  std::vector<int> receivers;
  bool someone_sends = false;
  for (size_t i = 0; i < requests_.size(); ++i) {
    int done = 0;
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    const bool known =
        MPI_Request_get_status(requests_[i], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS;
    if (known && done != 0) continue;
    (peers_[i].sends ? ranks : receivers).push_back(peers_[i].rank);
    someone_sends = someone_sends || peers_[i].sends;
  }
  if (!someone_sends) ranks.insert(ranks.end(), receivers.begin(), receivers.end());
}

std::unique_ptr<Machine> direct_all_reduce(Reduction reduction, int tag) {
  return std::make_unique<DirectAllReduce>(std::move(reduction), tag);
}

std::unique_ptr<Machine> piecewise_all_reduce(Reduction reduction, int tag, size_t piece_bytes,
                                              int window) {
  return std::make_unique<PiecewiseAllReduce>(std::move(reduction), tag, piece_bytes, window);
}

std::unique_ptr<Machine> scatter_reduce(Reduction reduction, std::vector<size_t> counts, int tag) {
  return std::make_unique<ScatterReduce>(std::move(reduction), std::move(counts), tag);
}

std::unique_ptr<Machine> tree_broadcast(std::span<std::byte> bytes, int root, int tag) {
  return std::make_unique<TreeBroadcast>(bytes, root, tag);
}

std::unique_ptr<Machine> direct_all_gather(std::span<const std::byte> mine,
                                           std::span<std::byte> all, int tag) {
  return std::make_unique<DirectAllGather>(mine, all, tag);
}

}  // namespace fleet::transport::mpi_detail
