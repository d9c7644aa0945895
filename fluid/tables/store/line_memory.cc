#include "fluid/tables/store/line_memory.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <sys/mman.h>

namespace fleet::fluid::tables {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kBlock = size_t{16} << 20;

size_t rounded(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Pages of zeros that begin at a multiple of `alignment`.
std::byte* map_aligned(size_t bytes, size_t alignment) {
  const size_t mapped_bytes = bytes + alignment;
  void* const mapped =
      mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* const begin = static_cast<std::byte*>(mapped);
  const size_t skipped = (alignment - reinterpret_cast<uintptr_t>(begin) % alignment) % alignment;
  if (skipped > 0) munmap(begin, skipped);
  munmap(begin + skipped + bytes, alignment - skipped);
  return begin + skipped;
}

}  // namespace

struct LineMemory::FreeRun {
  FreeRun* next;
  FreeRun* previous;
  size_t lines;

  std::byte* bytes() { return reinterpret_cast<std::byte*>(this); }
};

// The begin of a block; then one bit a line for begins, one for ends, and the lines.
struct LineMemory::Block {
  Block* next;
  Block* previous;
  size_t lines;       // of the block, with this
  size_t head_lines;  // of this and the bits

  static size_t words_of(size_t lines) { return (lines + 63) / 64; }
  static size_t head_lines_of(size_t lines) {
    return rounded(sizeof(Block) + 2 * words_of(lines) * sizeof(uint64_t), kLine) / kLine;
  }
  size_t words() const { return words_of(lines); }
  size_t bytes() const { return lines * kLine; }
  std::byte* begin() { return reinterpret_cast<std::byte*>(this); }
  size_t line_of(const std::byte* run) { return static_cast<size_t>(run - begin()) / kLine; }
  std::byte* at(size_t line) { return begin() + line * kLine; }

  uint64_t& begins(size_t line) { return bits()[line / 64]; }
  uint64_t& ends(size_t line) { return bits()[words() + line / 64]; }
  static uint64_t bit(size_t line) { return uint64_t{1} << (line % 64); }

 private:
  uint64_t* bits() { return reinterpret_cast<uint64_t*>(this + 1); }
};

LineMemory::LineMemory(size_t largest)
    : first_bytes_(std::max(kHugePage, rounded(4 * largest, kHugePage))),
      block_bytes_(std::bit_ceil(std::max(kBlock, first_bytes_))),
      most_lines_(block_bytes_ / kLine - Block::head_lines_of(block_bytes_ / kLine)) {}

LineMemory::~LineMemory() {
  while (blocks_ != nullptr) release(blocks_);
}

LineMemory::Block* LineMemory::block_of(const std::byte* run) const {
  const uintptr_t address = reinterpret_cast<uintptr_t>(run) & ~(block_bytes_ - 1);
  return reinterpret_cast<Block*>(address);
}

size_t LineMemory::bin_of(size_t lines) {
  if (lines <= kExactBins) return lines - 1;
  const auto doubling = static_cast<size_t>(std::bit_width(lines) - 1);  // 8 or more
  const size_t bin = kExactBins + (doubling - 8) * 8 + (lines >> (doubling - 3) & 7);
  return std::min(bin, kBins - 1);
}

size_t LineMemory::next_bin(size_t bin) const {
  for (size_t word = bin / 64; word < kBinWords; ++word) {
    const uint64_t from = word == bin / 64 ? ~uint64_t{0} << (bin % 64) : ~uint64_t{0};
    if (const uint64_t found = filled_[word] & from; found != 0) {
      return word * 64 + static_cast<size_t>(std::countr_zero(found));
    }
  }
  return kBins;
}

LineMemory::FreeRun* LineMemory::find(size_t lines) const {
  const size_t bin = bin_of(lines);
  // Runs of the bin itself may be too short.
  for (FreeRun* run = bins_[bin]; run != nullptr; run = run->next) {
    if (run->lines >= lines) return run;
  }
  const size_t above = bin + 1 < kBins ? next_bin(bin + 1) : kBins;
  return above == kBins ? nullptr : bins_[above];
}

void LineMemory::link(Block* block, std::byte* run, size_t lines) {
  const size_t bin = bin_of(lines);
  auto* const made = new (run) FreeRun{bins_[bin], nullptr, lines};
  if (made->next != nullptr) made->next->previous = made;
  bins_[bin] = made;
  filled_[bin / 64] |= uint64_t{1} << (bin % 64);
  const size_t first = block->line_of(run);
  const size_t last = first + lines - 1;
  std::memcpy(block->at(last) + kLine - sizeof lines, &lines, sizeof lines);
  block->begins(first) |= Block::bit(first);
  block->ends(last) |= Block::bit(last);
}

void LineMemory::unlink(Block* block, FreeRun* run) {
  const size_t bin = bin_of(run->lines);
  (run->previous == nullptr ? bins_[bin] : run->previous->next) = run->next;
  if (run->next != nullptr) run->next->previous = run->previous;
  if (bins_[bin] == nullptr) filled_[bin / 64] &= ~(uint64_t{1} << (bin % 64));
  const size_t first = block->line_of(run->bytes());
  const size_t last = first + run->lines - 1;
  block->begins(first) &= ~Block::bit(first);
  block->ends(last) &= ~Block::bit(last);
}

void LineMemory::add_block() {
  // A small table has a small block, without huge pages; one that grows has larger ones.
  const bool first = blocks_ == nullptr;
  const size_t bytes = first ? first_bytes_ : block_bytes_;
  std::byte* const memory = map_aligned(bytes, block_bytes_);
  if (!first) madvise(memory, bytes, MADV_HUGEPAGE);
  const size_t lines = bytes / kLine;
  auto* const block = new (memory) Block{blocks_, nullptr, lines, Block::head_lines_of(lines)};
  if (blocks_ != nullptr) blocks_->previous = block;
  blocks_ = block;
  ++count_;
  reserved_ += bytes;
  link(block, block->at(block->head_lines), block->lines - block->head_lines);
}

void LineMemory::release(Block* block) {
  (block->previous == nullptr ? blocks_ : block->previous->next) = block->next;
  if (block->next != nullptr) block->next->previous = block->previous;
  --count_;
  reserved_ -= block->bytes();
  munmap(block, block->bytes());
}

std::byte* LineMemory::take(size_t bytes) {
  const size_t lines = rounded(bytes, kLine) / kLine;
  if (lines == 0) return nullptr;
  if (lines > most_lines_) throw std::bad_alloc();
  FreeRun* run = find(lines);
  // The first block may be too small for it.
  for (; run == nullptr; run = find(lines)) add_block();
  Block* const block = block_of(run->bytes());
  const size_t left = run->lines - lines;
  unlink(block, run);
  if (left > 0) link(block, run->bytes() + lines * kLine, left);
  used_ += lines * kLine;
  return run->bytes();
}

void LineMemory::give(std::byte* run, size_t bytes) {
  if (run == nullptr) return;
  size_t lines = rounded(bytes, kLine) / kLine;
  used_ -= lines * kLine;
  Block* const block = block_of(run);
  const size_t end = block->line_of(run) + lines;
  if (end < block->lines && (block->begins(end) & Block::bit(end)) != 0) {
    auto* const behind = reinterpret_cast<FreeRun*>(block->at(end));
    lines += behind->lines;
    unlink(block, behind);
  }
  const size_t before = block->line_of(run) - 1;  // the head's last line is never free
  if ((block->ends(before) & Block::bit(before)) != 0) {
    size_t more = 0;
    std::memcpy(&more, run - sizeof more, sizeof more);
    run -= more * kLine;
    lines += more;
    unlink(block, reinterpret_cast<FreeRun*>(run));
  }
  if (lines == block->lines - block->head_lines && count_ > 1) {
    release(block);
  } else {
    link(block, run, lines);
  }
}

}  // namespace fleet::fluid::tables
