// Memory of one table: runs of cache lines out of large blocks on huge pages. Rows are read in no
// order, and with pages of 4 KiB most reads would wait for the page table, too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace fleet::fluid::tables {

// A run is taken from the smallest free run that has room for it, as far as bins tell them apart:
// one for each number of lines up to 256, eight for each doubling above. Giving back, and taking up
// to 256 lines, cost the same however many runs there are; where more are taken, free runs of the
// bin are looked at one after the other. Neighbours that are free become one run, and a block
// without a used run goes back to the system. One thread at a time.
//
// What is known of free runs lies in them: links of the bin's list and the length at the begin, the
// length at the end. Each block begins with two bits a line: whether a free run begins, and ends,
// there.
class LineMemory {
 public:
  static constexpr size_t kLine = 64;

  // `largest`: bytes of a large run; blocks have room for some. A run that no block can hold throws
  // std::bad_alloc.
  explicit LineMemory(size_t largest);
  ~LineMemory();
  LineMemory(const LineMemory&) = delete;
  LineMemory& operator=(const LineMemory&) = delete;

  // `bytes` rounded up to whole lines, aligned to one, with any content. Throws std::bad_alloc.
  std::byte* take(size_t bytes);
  // What take(bytes) gave.
  void give(std::byte* run, size_t bytes);

  // Bytes of runs that are in use, in whole lines, and of all blocks.
  size_t used() const { return used_; }
  size_t reserved() const { return reserved_; }

 private:
  struct Block;
  struct FreeRun;

  static constexpr size_t kExactBins = 256;
  static constexpr size_t kBinWords = 8;
  static constexpr size_t kBins = 64 * kBinWords;

  static size_t bin_of(size_t lines);
  Block* block_of(const std::byte* run) const;
  void add_block();
  void release(Block* block);
  // The number of the first bin from `bin` on that has runs; kBins: none.
  size_t next_bin(size_t bin) const;
  FreeRun* find(size_t lines) const;
  void link(Block* block, std::byte* run, size_t lines);
  void unlink(Block* block, FreeRun* run);

  const size_t first_bytes_;  // of the first block
  const size_t block_bytes_;  // of others; all begin at multiples of it
  const size_t most_lines_;   // of a run
  size_t used_ = 0;
  size_t reserved_ = 0;
  size_t count_ = 0;         // of blocks
  Block* blocks_ = nullptr;  // a list
  std::array<FreeRun*, kBins> bins_{};
  std::array<uint64_t, kBinWords> filled_{};  // a bit for each bin that has runs
};

}  // namespace fleet::fluid::tables
