// Ids as ranking models look them up, and the peers that hold a row of 16 floats for each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace fleet::benchmarks {

inline constexpr size_t kTableWidth = 16;
inline constexpr size_t kTableRows = 10'000'000;

uint64_t id_of_rank(uint64_t rank);

// The different ids of so many draws from a Zipf distribution (exponent 0.99) over kTableRows ids,
// in the order of their first draws.
std::vector<std::vector<uint64_t>> zipf_batches(size_t batches, size_t draws);

// Holds rows of kTableWidth floats by id.
class RowPeer {
 public:
  virtual ~RowPeer() = default;
  virtual void lookup(std::span<const uint64_t> ids, float* values) = 0;
  // value -= 0.01 * gradient
  virtual void update(std::span<const uint64_t> ids, const float* gradients) = 0;
};

// All have kTableRows rows. Null: this build has no such peer.
std::unique_ptr<RowPeer> std_map_peer();
std::unique_ptr<RowPeer> absl_map_peer();
// An array of rows on huge pages, with the position of each id of each batch known beforehand.
std::unique_ptr<RowPeer> gather_peer(const std::vector<std::vector<uint64_t>>& batches);

inline void sgd_row(float* row, const float* gradient) {
  for (size_t i = 0; i < kTableWidth; ++i) row[i] -= 0.01f * gradient[i];
}

// Bytes of this process that are in memory.
double resident_bytes();

}  // namespace fleet::benchmarks
