#include "benchmarks/handwritten/all_reduce_by_arrival.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>

#include "base/clock.h"
#include "base/error.h"
#include "base/strings.h"
#include "benchmarks/handwritten/arithmetic.h"

namespace fleet::benchmarks {
namespace {

using transport::CollectiveKind;
using transport::ElementType;
using transport::MessageSet;

constexpr size_t kElementsPerLine = 16;
constexpr auto kGlance = std::chrono::milliseconds(20);

}  // namespace

AllReduceByArrival::AllReduceByArrival(transport::PointToPoint& peers, size_t count)
    : peers_(peers),
      count_(count),
      memory_(peers.peer_memory()->allocate(count * sizeof(float))),
      theirs_(static_cast<size_t>(peers.size())),
      places_(theirs_.size()) {}

AllReduceByArrival::Piece AllReduceByArrival::piece(int rank) const {
  const auto ranks = static_cast<size_t>(peers_.size());
  const size_t even = (count_ + ranks - 1) / ranks;
  const size_t each = (even + kElementsPerLine - 1) / kElementsPerLine * kElementsPerLine;
  const size_t begin = std::min(static_cast<size_t>(rank) * each, count_);
  return {begin, std::min(each, count_ - begin)};
}

const float* AllReduceByArrival::values_of(int rank, Piece piece) const {
  const uint64_t place = places_[static_cast<size_t>(rank)] + piece.begin * sizeof(float);
  const std::byte* found = peers_.peer_memory()->at(rank, place, piece.count * sizeof(float));
  if (found != nullptr) return reinterpret_cast<const float*>(found);
  throw_error(ErrorCode::kBadFrame,
              {.what = "a rank tells a place outside its memory", .where = str_cat("rank ", rank)});
}

template <class Each>
void AllReduceByArrival::exchange(uint64_t mine, const Each& each) {
  const transport::OperationId id{operations_++, CollectiveKind::kAllReduce, ElementType::kFloat32,
                                  count_};
  std::vector<std::unique_ptr<MessageSet>> messages(theirs_.size());
  size_t left = theirs_.size() - 1;
  const auto look = [&] {
    const auto guard = peers_.lock();
    peers_.poll();
    for (size_t rank = 0; rank < messages.size(); ++rank) {
      if (!messages[rank] || !messages[rank]->test()) continue;
      messages[rank].reset();
      --left;
      each(static_cast<int>(rank));
    }
  };
  {
    const auto guard = peers_.lock();
    for (size_t rank = 0; rank < messages.size(); ++rank) {
      const auto other = static_cast<int>(rank);
      if (other == peers_.rank()) continue;
      messages[rank] = peers_.messages(id);
      messages[rank]->receive(other, std::as_writable_bytes(std::span(&theirs_[rank], 1)));
      messages[rank]->send(other, std::as_bytes(std::span(&mine, 1)));
    }
  }
  TimePoint moved = steady_clock().now();
  uint64_t progress = peers_.progress();
  for (look(); left > 0; look()) {
    const TimePoint now = steady_clock().now();
    if (const uint64_t seen = peers_.progress(); seen != progress) {
      progress = seen;
      moved = now;
    }
    peers_.rest(now - moved, now + kGlance);
  }
}

void AllReduceByArrival::run() {
  const std::span own(memory_.data(), count_ * sizeof(float));
  const Piece mine = piece(peers_.rank());
  float* const sum = values() + mine.begin;
  exchange(peers_.peer_memory()->place_of(own).value(), [&](int rank) {
    places_[static_cast<size_t>(rank)] = theirs_[static_cast<size_t>(rank)];
    add(sum, sum, values_of(rank, mine), static_cast<int>(mine.count));
  });
  exchange(0, [](int) {});
  for (int rank = 0; rank < peers_.size(); ++rank) {
    const Piece their = piece(rank);
    if (rank == peers_.rank()) continue;
    std::memcpy(values() + their.begin, values_of(rank, their), their.count * sizeof(float));
  }
  exchange(0, [](int) {});
}

}  // namespace fleet::benchmarks
