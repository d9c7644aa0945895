#include "transport/shared_collective/arena_heap.h"

#include <algorithm>
#include <fcntl.h>
#include <iterator>
#include <map>
#include <mutex>

namespace fleet::transport {
namespace {

constexpr size_t kUnit = 4096;  // of the sizes of blocks

}  // namespace

// Free blocks by their beginning; neighbours are joined.
class ArenaHeap::Blocks {
 public:
  explicit Blocks(std::shared_ptr<Arena> arena) : arena_(std::move(arena)) {
    if (arena_->layout().heap_bytes > 0) free_.emplace(0, arena_->layout().heap_bytes);
  }

  // Null when there is no room, or no memory.
  std::byte* take(size_t bytes) {
    const std::lock_guard guard(mutex_);
    const auto found = std::find_if(free_.begin(), free_.end(),
                                    [&](const auto& block) { return block.second >= bytes; });
    if (found == free_.end() || !provide(found->first + bytes)) return nullptr;
    const auto [begin, size] = *found;
    free_.erase(found);
    if (size > bytes) free_.emplace(begin + bytes, size - bytes);
    return arena_->heap() + begin;
  }

  void give_back(const std::byte* memory, size_t bytes) {
    const std::lock_guard guard(mutex_);
    auto block = free_.emplace(static_cast<size_t>(memory - arena_->heap()), bytes).first;
    const auto next = std::next(block);
    if (next != free_.end() && block->first + block->second == next->first) {
      block->second += next->second;
      free_.erase(next);
    }
    if (block == free_.begin()) return;
    const auto before = std::prev(block);
    if (before->first + before->second != block->first) return;
    before->second += block->second;
    free_.erase(block);
  }

 private:
  // Without it, a machine that is out of memory would end the process at the first write.
  bool provide(size_t end) {
    if (end <= provided_) return true;
    const auto at = static_cast<off_t>(arena_->layout().heap_at() + provided_);
    if (::fallocate(arena_->file(), 0, at, static_cast<off_t>(end - provided_)) != 0) return false;
    provided_ = end;
    return true;
  }

  std::shared_ptr<Arena> arena_;
  std::mutex mutex_;
  std::map<size_t, size_t> free_;
  size_t provided_ = 0;
};

ArenaHeap::ArenaHeap(const std::shared_ptr<Arena>& own,
                     std::vector<std::shared_ptr<const Arena>> arenas)
    : blocks_(std::make_shared<Blocks>(own)), own_(own), arenas_(std::move(arenas)) {}

ArenaHeap::~ArenaHeap() = default;

Buffer ArenaHeap::allocate(size_t bytes) {
  if (bytes > own_->layout().heap_bytes) return {};
  const size_t whole = std::max(kUnit, (bytes + kUnit - 1) / kUnit * kUnit);
  std::byte* const memory = blocks_->take(whole);
  if (memory == nullptr) return {};
  const std::shared_ptr<const void> owner(memory, [blocks = blocks_, whole](const void* block) {
    blocks->give_back(static_cast<const std::byte*>(block), whole);
  });
  return Buffer(memory, bytes, owner);
}

std::optional<uint64_t> ArenaHeap::place_of(std::span<const std::byte> bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(own_->heap());
  const auto first = reinterpret_cast<uintptr_t>(bytes.data());
  const uint64_t size = own_->layout().heap_bytes;
  if (first < begin || first - begin > size || bytes.size() > size - (first - begin)) return {};
  return first - begin;
}

const std::byte* ArenaHeap::at(int rank, uint64_t place, size_t bytes) const {
  const Arena& there = *arenas_[static_cast<size_t>(rank)];
  const uint64_t size = there.layout().heap_bytes;
  if (place > size || bytes > size - place) return nullptr;
  return there.heap() + place;
}

}  // namespace fleet::transport
