// Memory of one table: runs of cache lines out of large blocks on huge pages. Rows are read in no
// order, and with pages of 4 KiB most reads would wait for the page table, too.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <utility>

namespace fleet::fluid::tables {

// Best fit; neighbours that are free become one run, and a block without a used run goes back to
// the system. One thread at a time.
class LineMemory {
 public:
  static constexpr size_t kLine = 64;

  // `largest`: bytes of the largest run that is asked for; more of one run throws std::bad_alloc.
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
  using Run = std::pair<size_t, std::byte*>;  // bytes, begin

  void add_block();
  void release(std::byte* block, size_t bytes);

  size_t block_bytes_;
  size_t used_ = 0;
  size_t reserved_ = 0;
  std::map<std::byte*, size_t> blocks_;
  std::map<std::byte*, size_t> free_;  // runs by address
  std::set<Run> by_size_;              // the same
};

}  // namespace fleet::fluid::tables
