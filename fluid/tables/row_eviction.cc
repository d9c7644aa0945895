#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/tables/growing_table.h"
#include "fluid/tables/row_ranks_impl.h"
#include "fluid/tables/waiting_ids_impl.h"

namespace fleet::fluid::tables {
namespace {

float norm_of(const float* values, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(values[i]) * values[i];
  return static_cast<float>(std::sqrt(sum));
}

}  // namespace

template <class Gone>
uint64_t GrowingTable::erase(uint32_t bucket, const Gone& gone) {
  const size_t most = gone_.size() + rows_->size_of(bucket);
  if (options_.deltas && most > gone_.capacity()) gone_.reserve(std::max(most, 2 * gone_.size()));
  const uint64_t erased = rows_->erase_if(bucket, [&](uint64_t key, const std::byte* row) {
    if (!gone(key, row)) return false;
    if (options_.deltas) gone_.push_back(key);
    return true;
  });
  counts_.evicted += erased;
  return erased;
}

uint64_t GrowingTable::evict(std::span<const uint64_t> keys) {
  std::vector<std::pair<uint32_t, uint64_t>> wanted;
  wanted.reserve(keys.size());
  for (const uint64_t key : keys) wanted.emplace_back(bucket_of(key), key);
  std::sort(wanted.begin(), wanted.end());
  uint64_t erased = 0;
  for (auto begin = wanted.begin(); begin != wanted.end();) {
    const uint32_t bucket = begin->first;
    const auto end =
        std::find_if(begin, wanted.end(), [&](const auto& one) { return one.first != bucket; });
    erased += erase(bucket, [&](uint64_t key, const std::byte*) {
      return std::binary_search(begin, end, std::pair{bucket, key});
    });
    begin = end;
  }
  return erased;
}

void GrowingTable::require_rank(RowRank rank, const char* call) const {
  const RowFields fields = layout_.fields();
  const char* lacks = nullptr;
  if (rank == RowRank::kSeen && !fields.seen) lacks = "seen";
  if (rank == RowRank::kCount && !fields.count) lacks = "count";
  if (rank == RowRank::kScore && !fields.score) lacks = "score";
  if (lacks == nullptr) return;
  throw_error(ErrorCode::kPrecondition,
              {.what = "rows do not keep what this eviction asks for",
               .where = str_cat("growing table '", options_.name, "', ", call),
               .expected = str_cat("TableOptions::fields with '", lacks, "'"),
               .got = "rows without it",
               .fix = str_cat("set options.fields.", lacks, " when the table is made")});
}

double GrowingTable::score_of(const std::byte* row) const {
  return options_.score.show_coefficient * static_cast<double>(layout_.show(row)) +
         options_.score.click_coefficient * static_cast<double>(layout_.click(row));
}

uint64_t GrowingTable::evict_unseen(uint32_t age) {
  require_rank(RowRank::kSeen, "evict_unseen");
  uint64_t erased = 0;
  for (uint32_t b = 0; b < kBuckets; ++b) {
    erased += erase(b, [&](uint64_t, const std::byte* row) {
      const uint32_t seen = layout_.seen(row);
      return clock_ > seen && clock_ - seen > age;
    });
  }
  return erased;
}

uint64_t GrowingTable::evict_least(uint64_t count, RowRank rank) {
  const auto evict = [&](const auto& rank_of_row) {
    uint64_t erased = 0;
    const bool all = count >= rows_->size();
    const RowOrder bound = all ? RowOrder{} : order_above_least(*rows_, count, rank_of_row);
    for (uint32_t b = 0; b < kBuckets; ++b) {
      erased += erase(b, [&](uint64_t key, const std::byte* row) {
        return all || RowOrder{rank_of_row(row), key} < bound;
      });
    }
    return erased;
  };
  switch (rank) {
    case RowRank::kSeen:
      return evict([&](const std::byte* row) { return layout_.seen(row); });
    case RowRank::kCount:
      return evict([&](const std::byte* row) { return layout_.count(row); });
    case RowRank::kScore:
      return evict(
          [&](const std::byte* row) { return rank_of(static_cast<float>(score_of(row))); });
    case RowRank::kNorm:
      return evict([&](const std::byte* row) {
        return rank_of(norm_of(layout_.values(row), layout_.width()));
      });
  }
  return 0;
}

uint64_t GrowingTable::evict_to(uint64_t rows, RowRank rank) {
  require_rank(rank, "evict_to");
  return rows_->size() <= rows ? 0 : evict_least(rows_->size() - rows, rank);
}

uint64_t GrowingTable::evict_below(double bound, RowRank rank) {
  require_rank(rank, "evict_below");
  uint64_t erased = 0;
  for (uint32_t b = 0; b < kBuckets; ++b) {
    erased += erase(b, [&](uint64_t, const std::byte* row) {
      switch (rank) {
        case RowRank::kSeen:
          return layout_.seen(row) < bound;
        case RowRank::kCount:
          return layout_.count(row) < bound;
        case RowRank::kScore:
          return score_of(row) < bound;
        case RowRank::kNorm:
          return static_cast<double>(norm_of(layout_.values(row), layout_.width())) < bound;
      }
      return false;
    });
  }
  return erased;
}

void GrowingTable::require_fields_of(const PassRule& rule) const {
  const PassRule none;
  if (std::isnan(rule.evict_below) || std::isnan(rule.shrink.delete_below) ||
      !std::isfinite(rule.shrink.decay)) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "a rule for the end of a pass has a bound that is no number",
                 .where = str_cat("growing table '", options_.name, "', end_pass"),
                 .expected = "numbers for decay, delete_below and evict_below",
                 .got = str_cat(rule.shrink.decay, ", ", rule.shrink.delete_below, " and ",
                                rule.evict_below),
                 .fix = "leave out what is not to count"});
  }
  const bool ranks = rule.evict_below != none.evict_below || rule.most_rows != none.most_rows;
  if (ranks) require_rank(rule.rank, "end_pass");
  if (rule.shrink.delete_unseen != none.shrink.delete_unseen) {
    require_rank(RowRank::kSeen, "end_pass");
  }
  if (rule.shrink.decay != 1 || rule.shrink.delete_below != none.shrink.delete_below) {
    require_rank(RowRank::kScore, "end_pass");
  }
}

uint64_t GrowingTable::end_pass(const PassRule& rule, uint64_t servers) {
  require_fields_of(rule);
  const PassRule none;
  clock_ += std::min(rule.clock, std::numeric_limits<uint32_t>::max() - clock_);
  uint64_t gone = shrink(rule.shrink);
  if (rule.evict_below != none.evict_below) gone += evict_below(rule.evict_below, rule.rank);
  if (rule.most_rows == none.most_rows) return gone;
  const uint64_t share = rule.most_rows / servers + (rule.most_rows % servers == 0 ? 0 : 1);
  return gone + evict_to(share, rule.rank);
}

uint64_t GrowingTable::shrink(const ShrinkRule& rule) {
  const RowFields fields = layout_.fields();
  const auto decay = static_cast<float>(rule.decay);
  uint64_t erased = 0;
  for (uint32_t b = 0; b < kBuckets; ++b) {
    for (uint32_t i = 0; fields.score && i < rows_->size_of(b); ++i) {
      rows_->change({b, i});
      std::byte* const row = rows_->row({b, i});
      layout_.set_score(row, layout_.show(row) * decay, layout_.click(row) * decay);
    }
    erased += erase(b, [&](uint64_t, const std::byte* row) {
      const uint32_t seen = layout_.seen(row);
      const bool unseen = fields.seen && clock_ > seen && clock_ - seen > rule.delete_unseen;
      return unseen || (fields.score && score_of(row) < rule.delete_below);
    });
  }
  if (options_.admission.kind != Admission::Kind::kScore) return erased;
  for (uint32_t b = 0; b < kBuckets; ++b) {
    for (uint32_t i = 0; i < waiting_->size_of(b); ++i) {
      std::byte* const id = waiting_->row({b, i});
      if (first_word(id) == kSettled) continue;
      waiting_->change({b, i});
      std::array<float, 2> score{};
      std::memcpy(score.data(), id, sizeof score);
      for (float& one : score) one *= decay;
      std::memcpy(id, score.data(), sizeof score);
    }
  }
  return erased;
}

void GrowingTable::drop_bucket(uint32_t bucket) {
  rows_->erase_if(bucket, [](uint64_t, const std::byte*) { return true; });
  settled_ -= waiting_->erase_if(
      bucket, [](uint64_t, const std::byte* id) { return first_word(id) == kSettled; });
  waiting_->erase_if(bucket, [](uint64_t, const std::byte*) { return true; });
}

void GrowingTable::forget_waiting() {
  // Ids that got their rows go together: each time, the index of every bucket is made anew.
  if (settled_ > 1024 + waiting_->size() / 8) {
    for (uint32_t b = 0; b < kBuckets; ++b) {
      waiting_->erase_if(b,
                         [](uint64_t, const std::byte* id) { return first_word(id) == kSettled; });
    }
    settled_ = 0;
  }
  const uint64_t most = options_.admission.counted_ids;
  if (waiting_->size() - settled_ <= most) return;
  const bool counts = options_.admission.kind == Admission::Kind::kCount;
  const auto rank = [&](const std::byte* id) {
    const uint32_t word = first_word(id);
    if (word == kSettled) return 0U;
    if (counts) return word;
    std::array<float, 2> score{};
    std::memcpy(score.data(), id, sizeof score);
    return std::max(1U, rank_of(static_cast<float>(options_.score.show_coefficient * score[0] +
                                                   options_.score.click_coefficient * score[1])));
  };
  const uint64_t stay = most - most / 8;
  const RowOrder bound = order_above_least(*waiting_, waiting_->size() - stay, rank);
  for (uint32_t b = 0; b < kBuckets; ++b) {
    waiting_->erase_if(b, [&](uint64_t key, const std::byte* id) {
      return RowOrder{rank(id), key} < bound;
    });
  }
  settled_ = 0;
}

void GrowingTable::limit_memory() {
  const MemoryLimit& limit = options_.memory;
  if (limit.bytes == 0) return;
  while (rows_->size() > 0 && rows_->bytes() > limit.bytes) {
    evict_least(std::max<uint64_t>(1, rows_->size() / 16), limit.rank);
  }
}

}  // namespace fleet::fluid::tables
