// The least that a merge of sorted rows costs: a radix sort of (id, contributor), one read of all
// values, one write of the sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fluid/tables/merge_rows.h"

namespace fleet::benchmarks {

class MergePeer {
 public:
  // Ids have so many bits at most.
  MergePeer(std::span<const fluid::tables::ContributedRows> rows, size_t width, int id_bits);
  void run();
  // So that nothing is left out.
  float checksum() const { return checksum_; }

 private:
  struct Entry {
    uint64_t id;
    uint32_t contributor;
    uint32_t row;
  };
  void sort();

  std::vector<fluid::tables::ContributedRows> rows_;
  size_t width_;
  int id_bits_;
  std::vector<Entry> entries_;
  std::vector<Entry> spare_;
  std::vector<float> sums_;
  float checksum_ = 0;
};

}  // namespace fleet::benchmarks
