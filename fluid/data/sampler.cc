#include "fluid/data/sampler.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/shard_tree.h"
#include "base/strings.h"

namespace fleet::fluid::data {
namespace {

constexpr uint32_t kRounds = 6;

[[noreturn]] void refuse(std::string_view field, std::string expected, int64_t got,
                         std::string fix) {
  throw_error(ErrorCode::kInvalidArgument, {.what = "these rows cannot be sampled",
                                            .where = str_cat("SamplerOptions.", field),
                                            .expected = std::move(expected),
                                            .got = std::to_string(got),
                                            .fix = std::move(fix)});
}

void check(SamplerOptions& options) {
  if (options.rows < 1) {
    refuse("rows", "at least one row", options.rows, "check that the data set was loaded");
  }
  if (options.workers < 1) {
    refuse("workers", "at least 1", options.workers, "pass fleet::worker_num()");
  }
  if (options.worker < 0 || options.worker >= options.workers) {
    refuse("worker", str_cat("0 to ", options.workers - 1), options.worker,
           "pass fleet::worker_index()");
  }
  if (options.shards == 0) options.shards = options.workers;
  if (options.shards < options.workers) {
    refuse("shards", str_cat("at least one for each of ", options.workers, " workers"),
           options.shards, "use more shards or fewer workers");
  }
  if (options.batch_size < 1) {
    refuse("batch_size", "at least one row a step", options.batch_size, "use a larger batch");
  }
  if (options.last != LastBatch::kKeep && options.batch_size % options.shards != 0) {
    refuse("batch_size", str_cat("a multiple of ", options.shards, " shards"), options.batch_size,
           "change batch_size or shards");
  }
  if (options.last == LastBatch::kDrop && options.batch_size > options.rows) {
    refuse("batch_size", str_cat("at most the ", options.rows, " rows that there are"),
           options.batch_size, "use a smaller batch, or LastBatch::kFill");
  }
}

}  // namespace

Permutation::Permutation(RandomKey key, int64_t n, int64_t epoch)
    : key_(key), n_(static_cast<uint64_t>(n)), epoch_(static_cast<uint64_t>(epoch)) {
  half_bits_ = std::max(1, static_cast<int>(std::bit_width(n_ - 1) + 1) / 2);
}

uint64_t Permutation::encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t mixed = philox(key_, right * kRounds + round, epoch_)[0] & mask;
    left ^= mixed;
    std::swap(left, right);
  }
  return left << half_bits_ | right;
}

int64_t Permutation::operator()(int64_t index) const {
  auto value = static_cast<uint64_t>(index);
  do {
    value = encrypt(value);
  } while (value >= n_);
  return static_cast<int64_t>(value);
}

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  check(options_);
  steps_per_epoch_ = options_.last == LastBatch::kDrop
                         ? options_.rows / options_.batch_size
                         : (options_.rows + options_.batch_size - 1) / options_.batch_size;
}

std::vector<int64_t> Sampler::rows_of(int64_t position) const {
  const int64_t epoch = position / steps_per_epoch_;
  const int64_t first = position % steps_per_epoch_ * options_.batch_size;
  int64_t size = options_.batch_size;
  if (options_.last == LastBatch::kKeep) size = std::min(size, options_.rows - first);
  const ShardRange mine = owned_shards(options_.worker, options_.workers, options_.shards);
  const int64_t begin = first + size * mine.begin / options_.shards;
  const int64_t end = first + size * mine.end / options_.shards;

  const Permutation order(RandomKey::of(options_.seed, "order of rows"), options_.rows, epoch);
  std::vector<int64_t> rows;
  rows.reserve(static_cast<size_t>(end - begin));
  for (int64_t i = begin; i < end; ++i) {
    const int64_t index = i % options_.rows;
    rows.push_back(options_.shuffle ? order(index) : index);
  }
  return rows;
}

}  // namespace fleet::fluid::data
