#include "transport/collective/in_process_communicator.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "base/strings.h"

namespace fleet::transport {
namespace {

enum class Kind { kAllReduce, kReduceScatter, kBroadcast, kAllGather, kBarrier };

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::kAllReduce:
      return "all_reduce";
    case Kind::kReduceScatter:
      return "reduce_scatter";
    case Kind::kBroadcast:
      return "broadcast";
    case Kind::kAllGather:
      return "all_gather";
    case Kind::kBarrier:
      return "barrier";
  }
  return "?";
}

// What a rank brings to an operation.
struct Posting {
  bool here = false;
  Kind kind = Kind::kBarrier;
  ElementType type = ElementType::kFloat32;
  const ShardLayout* layout = nullptr;
  std::vector<const void*> parts;
  void* out = nullptr;
  std::vector<size_t> counts;  // elements or bytes
  int root = 0;

  bool matches(const Posting& other) const {
    return kind == other.kind && type == other.type && counts == other.counts && root == other.root;
  }
  std::string to_string() const { return str_cat(name_of(kind), '(', join(counts, ","), ')'); }
};

struct Operation {
  CollectiveLabel label;
  std::vector<Posting> postings;
  size_t here = 0;
  bool done = false;
};

const std::byte* bytes_of(const void* memory) {
  return static_cast<const std::byte*>(memory);
}
std::byte* bytes_of(void* memory) {
  return static_cast<std::byte*>(memory);
}

void copy_bytes(void* out, const void* in, size_t bytes) {
  if (bytes > 0) std::memmove(out, in, bytes);
}

std::vector<std::byte> reduce(const std::vector<Posting>& postings, size_t count) {
  const Posting& first = postings[0];
  std::vector<const void*> parts;
  for (const auto& posting : postings) {
    parts.insert(parts.end(), posting.parts.begin(), posting.parts.end());
  }
  // Elements are at most eight bytes, and so is the alignment of the vector's memory.
  std::vector<std::byte> sum(count * size_of(first.type));
  collective_detail::sum_parts(*first.layout, first.type, parts, sum.data(), count);
  return sum;
}

void execute(const std::vector<Posting>& postings) {
  const Posting& first = postings[0];
  switch (first.kind) {
    case Kind::kAllReduce: {
      const auto sum = reduce(postings, first.counts[0]);
      for (const auto& posting : postings) copy_bytes(posting.out, sum.data(), sum.size());
      break;
    }
    case Kind::kReduceScatter: {
      size_t total = 0;
      for (const size_t count : first.counts) total += count;
      const auto sum = reduce(postings, total);
      size_t offset = 0;
      for (size_t i = 0; i < postings.size(); ++i) {
        const size_t bytes = first.counts[i] * size_of(first.type);
        copy_bytes(postings[i].out, sum.data() + offset, bytes);
        offset += bytes;
      }
      break;
    }
    case Kind::kBroadcast:
      for (const auto& posting : postings) {
        copy_bytes(posting.out, postings[static_cast<size_t>(first.root)].out, first.counts[0]);
      }
      break;
    case Kind::kAllGather: {
      const size_t each = first.counts[0];
      std::vector<std::byte> all(each * postings.size());
      for (size_t i = 0; i < postings.size(); ++i) {
        copy_bytes(all.data() + i * each, bytes_of(postings[i].parts[0]), each);
      }
      for (const auto& posting : postings)
        copy_bytes(bytes_of(posting.out), all.data(), all.size());
      break;
    }
    case Kind::kBarrier:
      break;
  }
}

}  // namespace

struct InProcessGroup::State {
  explicit State(int count) : size(count) {}

  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<uint64_t, std::shared_ptr<Operation>> operations;  // not yet done, by number
  Status broken;

  void fail(Status reason) {
    if (broken.ok()) broken = std::move(reason);
    changed.notify_all();
  }

  // With the mutex held.
  std::shared_ptr<Operation> post(uint64_t number, int rank, CollectiveLabel label,
                                  Posting posting) {
    auto& slot = operations[number];
    if (!slot) {
      slot = std::make_shared<Operation>();
      slot->label = label;
      slot->postings.resize(static_cast<size_t>(size));
    }
    auto operation = slot;
    for (size_t other = 0; other < operation->postings.size(); ++other) {
      const auto& theirs = operation->postings[other];
      if (!theirs.here || theirs.matches(posting)) continue;
      fail(Status(ErrorCode::kPrecondition,
                  {.what = "ranks call different collective operations",
                   .where = str_cat(label.phase, ", operation ", number),
                   .expected = "the same calls in the same order at every rank",
                   .got = str_cat(posting.to_string(), " at rank ", rank, ", ", theirs.to_string(),
                                  " at rank ", other),
                   .fix = "run the same program at every rank"}));
      return operation;
    }
    posting.here = true;
    operation->postings[static_cast<size_t>(rank)] = std::move(posting);
    if (++operation->here == operation->postings.size()) {
      execute(operation->postings);
      operation->done = true;
      operations.erase(number);
      changed.notify_all();
    }
    return operation;
  }
};

namespace {

using State = InProcessGroup::State;

class PendingOperation : public CollectiveOperation {
 public:
  PendingOperation(std::shared_ptr<State> state, std::shared_ptr<Operation> operation, int rank)
      : state_(std::move(state)), operation_(std::move(operation)), rank_(rank) {}

  bool test() override {
    const std::lock_guard guard(state_->mutex);
    return finished();
  }

  Status wait(TimePoint deadline) override {
    const TimePoint start = steady_clock().now();
    std::unique_lock guard(state_->mutex);
    if (!state_->changed.wait_until(guard, deadline, [&] { return finished(); })) {
      std::vector<int> missing;
      for (int i = 0; i < state_->size; ++i) {
        if (!operation_->postings[static_cast<size_t>(i)].here) missing.push_back(i);
      }
      const Kind kind = operation_->postings[static_cast<size_t>(rank_)].kind;
      state_->fail(collective_detail::missing_ranks(name_of(kind), operation_->label, rank_,
                                                    missing, steady_clock().now() - start));
    }
    return operation_->done ? Status() : state_->broken;
  }

 private:
  bool finished() const { return operation_->done || !state_->broken.ok(); }

  std::shared_ptr<State> state_;
  std::shared_ptr<Operation> operation_;
  int rank_;
};

class InProcessCommunicator : public CollectiveCommunicator {
 public:
  InProcessCommunicator(std::shared_ptr<State> state, int rank)
      : state_(std::move(state)), rank_(rank) {}

  ~InProcessCommunicator() override {
    const std::lock_guard guard(state_->mutex);
    for (const auto& [number, operation] : state_->operations) {
      if (operation->postings[static_cast<size_t>(rank_)].here) continue;
      const int missing[] = {rank_};
      state_->fail(collective_detail::missing_ranks("operation", operation->label, rank_, missing,
                                                    Duration(0)));
      return;
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return state_->size; }

  CollectiveToken all_reduce(const ShardLayout& layout, ElementType type,
                             std::span<const void* const> parts, void* out, size_t count,
                             CollectiveLabel label) override {
    return reduction(Kind::kAllReduce, layout, type, parts, out, std::span(&count, 1), label);
  }
  CollectiveToken reduce_scatter(const ShardLayout& layout, ElementType type,
                                 std::span<const void* const> parts, void* out,
                                 std::span<const size_t> counts, CollectiveLabel label) override {
    return reduction(Kind::kReduceScatter, layout, type, parts, out, counts, label);
  }
  CollectiveToken broadcast(std::span<std::byte> bytes, int root, CollectiveLabel label) override {
    Posting posting;
    posting.kind = Kind::kBroadcast;
    posting.out = bytes.data();
    posting.counts = {bytes.size()};
    posting.root = root;
    return start(std::move(posting), label);
  }
  CollectiveToken all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                             CollectiveLabel label) override {
    Posting posting;
    posting.kind = Kind::kAllGather;
    posting.parts = {mine.data()};
    posting.out = all.data();
    posting.counts = {mine.size()};
    return start(std::move(posting), label);
  }
  CollectiveToken barrier(CollectiveLabel label) override { return start(Posting(), label); }

  void abort(Status reason) override {
    const std::lock_guard guard(state_->mutex);
    state_->fail(std::move(reason));
  }

 private:
  CollectiveToken reduction(Kind kind, const ShardLayout& layout, ElementType type,
                            std::span<const void* const> parts, void* out,
                            std::span<const size_t> counts, CollectiveLabel label) {
    auto checked = collective_detail::check_reduction(layout, rank_, size(), parts.size());
    if (!checked.ok()) return CollectiveToken(std::move(checked));
    Posting posting;
    posting.kind = kind;
    posting.type = type;
    posting.layout = &layout;
    posting.parts.assign(parts.begin(), parts.end());
    posting.out = out;
    posting.counts.assign(counts.begin(), counts.end());
    return start(std::move(posting), label);
  }

  CollectiveToken start(Posting posting, CollectiveLabel label) {
    const std::lock_guard guard(state_->mutex);
    if (!state_->broken.ok()) return CollectiveToken(state_->broken);
    auto operation = state_->post(next_++, rank_, label, std::move(posting));
    return CollectiveToken(std::make_shared<PendingOperation>(state_, std::move(operation), rank_));
  }

  std::shared_ptr<State> state_;
  int rank_;
  uint64_t next_ = 0;
};

}  // namespace

InProcessGroup::InProcessGroup(int size) : state_(std::make_shared<State>(size)) {}
InProcessGroup::~InProcessGroup() = default;

std::unique_ptr<CollectiveCommunicator> InProcessGroup::member(int rank) {
  return std::make_unique<InProcessCommunicator>(state_, rank);
}

}  // namespace fleet::transport
