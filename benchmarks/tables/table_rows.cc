#include "benchmarks/tables/table_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sys/mman.h>
#include <unistd.h>
#include <unordered_map>
#include <unordered_set>
#ifdef FLEET_BENCH_ABSL
#include <absl/container/flat_hash_map.h>
#endif

#include "base/hash.h"
#include "base/philox.h"

namespace fleet::benchmarks {
namespace {

constexpr double kExponent = 0.99;

using Row = std::array<float, kTableWidth>;

template <class Map>
class MapPeer : public RowPeer {
 public:
  MapPeer() {
    map_.reserve(kTableRows);
    for (uint64_t rank = 0; rank < kTableRows; ++rank) {
      map_[id_of_rank(rank)].fill(static_cast<float>(rank));
    }
  }
  void lookup(std::span<const uint64_t> ids, float* values) override {
    for (const uint64_t id : ids) {
      const auto found = map_.find(id);
      if (found != map_.end()) std::memcpy(values, found->second.data(), sizeof(Row));
      values += kTableWidth;
    }
  }
  void update(std::span<const uint64_t> ids, const float* gradients) override {
    for (const uint64_t id : ids) {
      const auto found = map_.find(id);
      if (found != map_.end()) sgd_row(found->second.data(), gradients);
      gradients += kTableWidth;
    }
  }

 private:
  Map map_;
};

class GatherPeer : public RowPeer {
 public:
  explicit GatherPeer(const std::vector<std::vector<uint64_t>>& batches) {
    constexpr size_t kHugePage = size_t{2} << 20;
    constexpr size_t kBytes = (kTableRows * sizeof(Row) + kHugePage - 1) / kHugePage * kHugePage;
    rows_ = static_cast<float*>(std::aligned_alloc(kHugePage, kBytes));
    madvise(rows_, kBytes, MADV_HUGEPAGE);
    std::fill_n(rows_, kTableRows * kTableWidth, 1.0f);
    std::unordered_map<uint64_t, uint32_t> positions;
    for (uint64_t rank = 0; rank < kTableRows; ++rank) {
      // Frequent ids lie anywhere, as in tables.
      positions[id_of_rank(rank)] = static_cast<uint32_t>(rank * 7'368'787 % kTableRows);
    }
    for (const auto& batch : batches) {
      std::vector<uint32_t>& known = positions_[batch.data()];
      for (const uint64_t id : batch) known.push_back(positions.at(id));
    }
  }
  ~GatherPeer() override { std::free(rows_); }
  void lookup(std::span<const uint64_t> ids, float* values) override {
    each(ids,
         [&](float* row, size_t i) { std::memcpy(values + i * kTableWidth, row, sizeof(Row)); });
  }
  void update(std::span<const uint64_t> ids, const float* gradients) override {
    each(ids, [&](float* row, size_t i) { sgd_row(row, gradients + i * kTableWidth); });
  }

 private:
  template <class Visit>
  void each(std::span<const uint64_t> ids, const Visit& visit) {
    constexpr size_t kAhead = 24;
    const std::vector<uint32_t>& at = positions_.at(ids.data());
    for (size_t i = 0; i < at.size(); ++i) {
      if (i + kAhead < at.size()) __builtin_prefetch(rows_ + at[i + kAhead] * kTableWidth);
      visit(rows_ + at[i] * kTableWidth, i);
    }
  }

  float* rows_;
  std::map<const uint64_t*, std::vector<uint32_t>> positions_;  // by batch
};

}  // namespace

uint64_t id_of_rank(uint64_t rank) {
  return mix64(rank * 0x9e3779b97f4a7c15ULL + 12345);
}

std::vector<std::vector<uint64_t>> zipf_batches(size_t batches, size_t draws) {
  std::vector<double> below(kTableRows);
  double sum = 0;
  for (size_t rank = 0; rank < kTableRows; ++rank) {
    sum += std::pow(static_cast<double>(rank + 1), -kExponent);
    below[rank] = sum;
  }
  std::vector<std::vector<uint64_t>> all(batches);
  for (size_t b = 0; b < batches; ++b) {
    std::unordered_set<uint64_t> seen;
    for (size_t i = 0; i < draws; ++i) {
      const double drawn = sum * uniform_double(RandomKey::of(b, "zipf"), i);
      const auto rank = static_cast<uint64_t>(
          std::upper_bound(below.begin(), below.end() - 1, drawn) - below.begin());
      if (seen.insert(rank).second) all[b].push_back(id_of_rank(rank));
    }
  }
  return all;
}

std::unique_ptr<RowPeer> std_map_peer() {
  return std::make_unique<MapPeer<std::unordered_map<uint64_t, Row>>>();
}

std::unique_ptr<RowPeer> absl_map_peer() {
#ifdef FLEET_BENCH_ABSL
  return std::make_unique<MapPeer<absl::flat_hash_map<uint64_t, Row>>>();
#else
  return nullptr;
#endif
}

std::unique_ptr<RowPeer> gather_peer(const std::vector<std::vector<uint64_t>>& batches) {
  return std::make_unique<GatherPeer>(batches);
}

double resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  double all = 0;
  double resident = 0;
  statm >> all >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

}  // namespace fleet::benchmarks
