#include "fluid/tables/line_memory.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <new>
#include <sys/mman.h>

namespace fleet::fluid::tables {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSmallBlock = size_t{2} << 20;
constexpr size_t kBlock = size_t{16} << 20;

size_t rounded(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Pages of zeros that begin where a huge page may.
std::byte* map_aligned(size_t bytes) {
  void* const mapped =
      mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* const begin = static_cast<std::byte*>(mapped);
  const size_t skipped = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (skipped > 0) munmap(begin, skipped);
  if (skipped < kHugePage) munmap(begin + skipped + bytes, kHugePage - skipped);
  return begin + skipped;
}

}  // namespace

LineMemory::LineMemory(size_t largest)
    : block_bytes_(std::max(kSmallBlock, rounded(4 * largest, kHugePage))) {}

LineMemory::~LineMemory() {
  for (const auto& [block, bytes] : blocks_) munmap(block, bytes);
}

void LineMemory::add_block() {
  // A small table has a small block, without huge pages; one that grows has larger ones.
  const bool first = blocks_.empty();
  const size_t bytes = first ? block_bytes_ : std::max(block_bytes_, kBlock);
  std::byte* const block = map_aligned(bytes);
  if (!first) madvise(block, bytes, MADV_HUGEPAGE);
  blocks_.emplace(block, bytes);
  free_.emplace(block, bytes);
  by_size_.emplace(bytes, block);
  reserved_ += bytes;
}

std::byte* LineMemory::take(size_t bytes) {
  bytes = rounded(bytes, kLine);
  if (bytes == 0) return nullptr;
  auto found = by_size_.lower_bound(Run{bytes, nullptr});
  if (found == by_size_.end()) {
    if (bytes > block_bytes_) throw std::bad_alloc();
    add_block();
    found = by_size_.lower_bound(Run{bytes, nullptr});
  }
  const auto [have, begin] = *found;
  by_size_.erase(found);
  free_.erase(begin);
  if (have > bytes) {
    free_.emplace(begin + bytes, have - bytes);
    by_size_.emplace(have - bytes, begin + bytes);
  }
  used_ += bytes;
  return begin;
}

void LineMemory::give(std::byte* run, size_t bytes) {
  if (run == nullptr) return;
  bytes = rounded(bytes, kLine);
  used_ -= bytes;
  // Runs of two blocks never join, though one may begin where the other ends.
  auto next = free_.lower_bound(run);
  if (next != free_.end() && next->first == run + bytes && !blocks_.contains(next->first)) {
    bytes += next->second;
    by_size_.erase(Run{next->second, next->first});
    next = free_.erase(next);
  }
  if (next != free_.begin() && !blocks_.contains(run)) {
    const auto before = std::prev(next);
    if (before->first + before->second == run) {
      run = before->first;
      bytes += before->second;
      by_size_.erase(Run{before->second, run});
      free_.erase(before);
    }
  }
  const auto block = blocks_.find(run);
  if (block != blocks_.end() && block->second == bytes && blocks_.size() > 1) {
    return release(run, bytes);
  }
  free_.emplace(run, bytes);
  by_size_.emplace(bytes, run);
}

void LineMemory::release(std::byte* block, size_t bytes) {
  blocks_.erase(block);
  reserved_ -= bytes;
  munmap(block, bytes);
}

}  // namespace fleet::fluid::tables
