#include <algorithm>
#include <cstring>
#include <emmintrin.h>

#include "base/strings.h"
#include "transport/collective/operations_impl.h"

namespace fleet::transport::collective_detail {
namespace {

// Rounds whose copies a rank keeps for others.
constexpr size_t kStages = 3;

// Of larger arrays little is left in the caches when the operation ends, whatever it does.
constexpr size_t kCachedBytes = 8 << 20;

// Copies past the caches: memory that is only written is then neither read first nor taken from the
// cache of another core that has read it.
void write_past_caches(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kWidth = sizeof(__m128i);
  const size_t before = std::min(bytes, -reinterpret_cast<uintptr_t>(to) % kWidth);
  std::memcpy(to, from, before);
  size_t at = before;
  for (; at + kWidth <= bytes; at += kWidth) {
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at));
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at), values);
  }
  std::memcpy(to + at, from + at, bytes - at);
  _mm_sfence();
}

// Where an array is: all of it, or round r's part of it in stage r mod kStages.
struct ArrayPlace {
  uint64_t place = 0;
  uint64_t staged = 0;
};

// A round is one piece of each rank. Rank r sums the r-th piece of every round from the parts of
// all ranks, where the others read it.
//
// Ranks go in step: each sends its n-th message when it has summed round n - 1, copied the sums of
// round n - 2, and round n of its parts can be read; it goes on when it has everybody's. So
// - a piece is summed after its parts can be read, and copied after it was summed;
// - `out` may be one of the parts: other pieces of it are written when they have been summed;
// - a stage is written again, by round n + 1 before the message of that number, when everybody's
// n-th
//   message has come: then all have copied the sums of round n - 2, which was there before.
// The last message says that everything was copied: until then the arrays stay as they are.
class ReadingAllReduce : public Machine {
 public:
  ReadingAllReduce(Group& group, const OperationId& id, Reduction reduction, size_t piece_bytes)
      : group_(group),
        memory_(*group.peers.peer_memory()),
        reduction_(std::move(reduction)),
        width_(transport::size_of(reduction_.type)),
        piece_(piece_of(piece_bytes)),
        rounds_((reduction_.count + piece_ * ranks() - 1) / (piece_ * ranks())),
        messages_(group.peers.messages(id)),
        addends_(reduction_.layout.parts()) {
    place_arrays();
    exchange_places();
  }

  bool advance() override {
    while (messages_->test()) {
      if (step_ == rounds_ + 1) return true;
      if (step_ > 0) copy_sums(step_ - 1);
      if (step_ < rounds_) sum(step_);
      if (step_ + 1 < rounds_) stage(step_ + 1);
      ++step_;
      for (int other = 0; other < group_.size; ++other) {
        if (other == group_.rank) continue;
        messages_->receive(other, {});
        messages_->send(other, {});
      }
    }
    return false;
  }
  void waits_for(std::vector<int>& ranks) override { messages_->unfinished(ranks); }

 private:
  struct Piece {
    size_t offset;  // bytes
    size_t bytes;
  };

  size_t ranks() const { return static_cast<size_t>(group_.size); }
  size_t piece_of(size_t bytes) const {
    const size_t even = whole((reduction_.count + ranks() - 1) / ranks(), kElementsPerLine);
    return std::max(kElementsPerLine,
                    std::min(bytes / width_ / kElementsPerLine * kElementsPerLine, even));
  }
  Piece piece(size_t round, int rank) const {
    const size_t first = (round * ranks() + static_cast<size_t>(rank)) * piece_;
    const size_t begin = std::min(first, reduction_.count);
    const size_t end = std::min(begin + piece_, reduction_.count);
    return {begin * width_, (end - begin) * width_};
  }

  // ---- stages: for each array, parts and then `out`, one round

  size_t arrays_of(int rank) const { return reduction_.layout.nodes(rank).size() + 1; }
  size_t round_bytes() const { return ranks() * piece_ * width_; }
  size_t in_stage(int rank, size_t round, int piece) const {
    return (round % kStages) * arrays_of(rank) * round_bytes() +
           static_cast<size_t>(piece) * piece_ * width_;
  }
  std::byte* own_stage(size_t array, size_t round, int piece) const {
    return stage_.data() + array * round_bytes() + in_stage(group_.rank, round, piece);
  }
  bool is_staged(size_t array) const { return own_places()[array].staged != 0; }
  const std::vector<ArrayPlace>& own_places() const {
    return places_[static_cast<size_t>(group_.rank)];
  }

  void place_arrays() {
    places_.resize(ranks());
    for (int rank = 0; rank < group_.size; ++rank) {
      places_[static_cast<size_t>(rank)].resize(arrays_of(rank));
    }
    auto& own = places_[static_cast<size_t>(group_.rank)];
    const size_t bytes = reduction_.count * width_;
    for (size_t k = 0; k < own.size(); ++k) {
      const std::byte* const array =
          k < reduction_.parts.size() ? reduction_.parts[k] : reduction_.out;
      const auto place = memory_.place_of({array, bytes});
      own[k] = {place.value_or(0), place ? uint64_t{0} : uint64_t{1}};
    }
    const bool any =
        std::any_of(own.begin(), own.end(), [](const ArrayPlace& at) { return at.staged != 0; });
    if (!any) return;
    const size_t needed = kStages * own.size() * round_bytes();
    stage_ = Scratch(group_.readable, needed);
    const uint64_t begin = memory_.place_of({stage_.data(), needed}).value();
    for (size_t k = 0; k < own.size(); ++k) {
      if (own[k].staged != 0) own[k].place = begin + k * round_bytes();
    }
  }

  void exchange_places() {
    if (rounds_ > 0) stage(0);
    for (int other = 0; other < group_.size; ++other) {
      if (other == group_.rank) continue;
      messages_->receive(other,
                         std::as_writable_bytes(std::span(places_[static_cast<size_t>(other)])));
      messages_->send(other, std::as_bytes(std::span(own_places())));
    }
  }

  // Nobody reads the piece that this rank sums.
  void stage(size_t round) {
    for (size_t k = 0; k < reduction_.parts.size(); ++k) {
      for (int rank = 0; is_staged(k) && rank < group_.size; ++rank) {
        const Piece theirs = piece(round, rank);
        if (rank == group_.rank || theirs.bytes == 0) continue;
        std::memcpy(own_stage(k, round, rank), reduction_.parts[k] + theirs.offset, theirs.bytes);
      }
    }
  }

  // ---- reading

  const std::byte* array_of(int rank, size_t array, size_t round, int piece_number) const {
    const Piece wanted = piece(round, piece_number);
    const ArrayPlace& there = places_[static_cast<size_t>(rank)][array];
    const uint64_t place =
        there.place + (there.staged != 0 ? in_stage(rank, round, piece_number) : wanted.offset);
    const std::byte* const found = memory_.at(rank, place, wanted.bytes);
    if (found != nullptr) return found;
    throw_error(ErrorCode::kBadFrame, {.what = "a rank tells a place outside its memory",
                                       .where = str_cat("rank ", rank),
                                       .expected = str_cat(wanted.bytes, " bytes of an array"),
                                       .got = str_cat("place ", place),
                                       .fix = "run the same version of Fleet at every rank"});
  }

  void sum(size_t round) {
    const Piece own = piece(round, group_.rank);
    if (own.bytes == 0) return;
    const ShardLayout& layout = reduction_.layout;
    for (int rank = 0; rank < group_.size; ++rank) {
      for (size_t k = 0; k < layout.nodes(rank).size(); ++k) {
        const std::byte* const values = rank == group_.rank ? reduction_.parts[k] + own.offset
                                                            : array_of(rank, k, round, group_.rank);
        addends_[layout.first_part(rank) + k] = {values, Form::kGiven};
      }
    }
    std::byte* const out = reduction_.out + own.offset;
    add_up(layout.sum(), reduction_.type, addends_, out, Form::kGiven, own.bytes / width_);
    const size_t last = reduction_.parts.size();
    if (is_staged(last)) std::memcpy(own_stage(last, round, group_.rank), out, own.bytes);
  }

  void copy_sums(size_t round) {
    for (int step = 1; step < group_.size; ++step) {
      const int rank = (group_.rank + step) % group_.size;
      const Piece theirs = piece(round, rank);
      if (theirs.bytes == 0) continue;
      const std::byte* const sums = array_of(rank, arrays_of(rank) - 1, round, rank);
      std::byte* const to = reduction_.out + theirs.offset;
      if (reduction_.count * width_ <= kCachedBytes) {
        std::memcpy(to, sums, theirs.bytes);
      } else {
        write_past_caches(to, sums, theirs.bytes);
      }
    }
  }

  Group& group_;
  PeerMemory& memory_;
  const Reduction reduction_;
  const size_t width_;
  const size_t piece_;  // elements
  const size_t rounds_;
  std::unique_ptr<MessageSet> messages_;
  Scratch stage_;
  std::vector<std::vector<ArrayPlace>> places_;  // by rank
  std::vector<Addend> addends_;
  size_t step_ = 0;  // whose messages are waited for
};

}  // namespace

std::unique_ptr<Machine> reading_all_reduce(Group& group, const OperationId& id,
                                            Reduction reduction, size_t piece_bytes) {
  return std::make_unique<ReadingAllReduce>(group, id, std::move(reduction), piece_bytes);
}

}  // namespace fleet::transport::collective_detail
