#include "benchmarks/tables/merge_peer.h"

#include <algorithm>
#include <array>
#include <immintrin.h>

namespace fleet::benchmarks {
namespace {

constexpr int kDigitBits = 11;
constexpr size_t kDigits = size_t{1} << kDigitBits;

}  // namespace

MergePeer::MergePeer(std::span<const fluid::tables::ContributedRows> rows, size_t width,
                     int id_bits)
    : rows_(rows.begin(), rows.end()), width_(width), id_bits_(id_bits) {
  size_t total = 0;
  for (const auto& one : rows_) total += one.keys.size();
  entries_.resize(total);
  spare_.resize(total);
  sums_.resize(total * width);
}

void MergePeer::sort() {
  for (int low = 0; low < id_bits_; low += kDigitBits) {
    std::array<uint32_t, kDigits + 1> next{};
    for (const Entry& entry : entries_) ++next[(entry.id >> low & (kDigits - 1)) + 1];
    for (size_t d = 1; d < kDigits; ++d) next[d] += next[d - 1];
    for (const Entry& entry : entries_) spare_[next[entry.id >> low & (kDigits - 1)]++] = entry;
    entries_.swap(spare_);
  }
}

void MergePeer::run() {
  size_t at = 0;
  for (size_t c = 0; c < rows_.size(); ++c) {
    for (size_t i = 0; i < rows_[c].keys.size(); ++i) {
      entries_[at++] = {rows_[c].keys[i], static_cast<uint32_t>(c), static_cast<uint32_t>(i)};
    }
  }
  sort();
  __m256 sum = _mm256_setzero_ps();
  for (const auto& one : rows_) {
    const size_t floats = one.keys.size() * width_;
    for (size_t i = 0; i + 8 <= floats; i += 8) {
      sum = _mm256_add_ps(sum, _mm256_loadu_ps(one.values + i));
    }
  }
  checksum_ = _mm256_cvtss_f32(sum);
  size_t ids = entries_.empty() ? 0 : 1;
  for (size_t i = 1; i < entries_.size(); ++i) {
    ids += entries_[i].id != entries_[i - 1].id ? 1 : 0;
  }
  std::fill_n(sums_.begin(), ids * width_, checksum_);
}

}  // namespace fleet::benchmarks
