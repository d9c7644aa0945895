#include "fluid/tables/merge_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <immintrin.h>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/process/prefetch.h"
#include "base/strings.h"
#include "fluid/tables/float_copy_impl.h"

namespace fleet::fluid::tables {
namespace {

// Entries are divided by the highest bits of their ids' range into parts that fit the second-level
// cache, and sorted there by the highest digit of the bits that are left; entries of one digit that
// have several ids are sorted by comparison. Where each contributor's ids ascend, a part is read
// straight from them.
constexpr size_t kPartEntries = 2048;  // on average
constexpr int kMostPartBits = 12;
constexpr int kDigitBits = 11;
constexpr int64_t kFew = 32;       // entries that are sorted by insertion
constexpr size_t kRowsAhead = 20;  // rows that are on their way to the cache

// An entry is a row: its id, less the least one, its contributor, and its place there. In 64 bits
// where they have room, else in 128.
struct Packed {
  uint64_t word;
};
struct Wide {
  uint64_t key;
  uint32_t contributor;
  uint32_t row;
};

struct Form {
  bool ascending = true;  // ids of each contributor
  uint64_t least = 0;
  int key_bits = 0;
  int contributor_bits = 0;
  int row_bits = 0;
  bool packed() const { return key_bits + contributor_bits + row_bits <= 64; }

  uint64_t key(Packed entry) const {
    return key_bits == 0 ? 0 : entry.word >> (contributor_bits + row_bits);
  }
  uint32_t contributor(Packed entry) const {
    return static_cast<uint32_t>(entry.word >> row_bits & ((uint64_t{1} << contributor_bits) - 1));
  }
  uint32_t row(Packed entry) const {
    return static_cast<uint32_t>(entry.word & ((uint64_t{1} << row_bits) - 1));
  }
  void make(uint64_t key, uint32_t contributor, uint32_t row, Packed& entry) const {
    const uint64_t behind = uint64_t{contributor} << row_bits | row;
    entry.word = (key_bits == 0 ? 0 : key << (contributor_bits + row_bits)) | behind;
  }
  uint64_t key(const Wide& entry) const { return entry.key; }
  uint32_t contributor(const Wide& entry) const { return entry.contributor; }
  uint32_t row(const Wide& entry) const { return entry.row; }
  void make(uint64_t key, uint32_t contributor, uint32_t row, Wide& entry) const {
    entry = {key, contributor, row};
  }
};

Form form_of(std::span<const ContributedRows> contributors) {
  uint64_t least = ~uint64_t{0};
  uint64_t most = 0;
  size_t rows = 1;
  Form form;
  for (const ContributedRows& one : contributors) {
    if (one.keys.empty()) continue;
    const bool ascending = std::is_sorted(one.keys.begin(), one.keys.end());
    const auto [low, high] = ascending ? std::pair(one.keys.begin(), one.keys.end() - 1)
                                       : std::minmax_element(one.keys.begin(), one.keys.end());
    least = std::min(least, *low);
    most = std::max(most, *high);
    form.ascending = form.ascending && ascending;
    rows = std::max(rows, one.keys.size());
  }
  form.least = std::min(least, most);
  form.key_bits = std::bit_width(most - form.least);
  form.contributor_bits = std::bit_width(contributors.size() - 1);
  form.row_bits = std::bit_width(rows - 1);
  return form;
}

void add_floats(const float* a, const float* b, float* to, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(to + i, _mm256_add_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i)));
  }
  if (i + 4 <= n) {
    _mm_storeu_ps(to + i, _mm_add_ps(_mm_loadu_ps(a + i), _mm_loadu_ps(b + i)));
    i += 4;
  }
  for (; i < n; ++i) to[i] = a[i] + b[i];
}

// The sum of some contributors' values of one id, given from the left of the tree to its right. Of
// two neighbours, the highest bit in which their numbers differ says the height of the node where
// they meet.
class TreeSumOfSome {
 public:
  explicit TreeSumOfSome(size_t width) : width_(width), scratch_(kMostDepth * width) {}

  void add(uint32_t contributor, const float* values) {
    const int height = depth_ == 0 ? 0 : std::bit_width(contributor ^ last_);
    while (depth_ > 1 && heights_[depth_ - 1] <= height) join(scratch_of(depth_ - 2));
    values_[depth_] = values;
    heights_[depth_] = height;
    ++depth_;
    last_ = contributor;
  }
  void finish(float* out) {
    while (depth_ > 2) join(scratch_of(depth_ - 2));
    if (depth_ == 2) {
      join(out);
    } else {
      copy_floats(values_[0], out, width_);
    }
    depth_ = 0;
  }

 private:
  static constexpr size_t kMostDepth = 18;  // of a tree over 65536, and one

  float* scratch_of(size_t at) { return scratch_.data() + at * width_; }
  void join(float* to) {
    add_floats(values_[depth_ - 2], values_[depth_ - 1], to, width_);
    --depth_;
    values_[depth_ - 1] = to;
  }

  const size_t width_;
  std::vector<float> scratch_;
  std::array<const float*, kMostDepth> values_{};
  std::array<int, kMostDepth> heights_{};
  size_t depth_ = 0;
  uint32_t last_ = 0;
};

// Writes a row of sums to which +0.0 is added, eight floats at a time. Rows are written in their
// order, so that all but the last one of a part may write over the begin of the next, where that
// has eight floats or more.
class RowWriter {
 public:
  RowWriter(float* out, size_t width, bool last) : out_(out), width_(width), last_(last) {}

  void write_one(const float* a) const {
    write([&](size_t i) { return load(a, i); });
  }
  void write_two(const float* a, const float* b) const {
    write([&](size_t i) { return _mm256_add_ps(load(a, i), load(b, i)); });
  }

 private:
  template <class Sum>
  void write(const Sum& sum) const {
    const __m256 zero = _mm256_setzero_ps();
    for (size_t i = 0; i < width_; i += 8) {
      const __m256 eight = _mm256_add_ps(sum(i), zero);
      if (!last_ || i + 8 <= width_) {
        _mm256_storeu_ps(out_ + i, eight);
      } else {
        _mm256_maskstore_ps(out_ + i, mask(width_ - i), eight);
      }
    }
  }
  __m256 load(const float* from, size_t i) const {
    return i + 8 <= width_ ? _mm256_loadu_ps(from + i)
                           : _mm256_maskload_ps(from + i, mask(width_ - i));
  }
  static __m256i mask(size_t floats) {
    static constexpr int32_t kOnes[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kOnes + 8 - floats));
  }

  float* const out_;
  const size_t width_;
  const bool last_;
};

template <class Entry>
class Merge {
 public:
  Merge(std::span<const ContributedRows> contributors, size_t width, const Form& form)
      : contributors_(contributors), width_(width), form_(form) {
    for (const ContributedRows& one : contributors) total_ += one.keys.size();
  }

  void run(MergedRows& out, const Tiles& tiles) {
    plan();
    if (form_.ascending) {
      order_ascending(tiles);
    } else {
      divide();
      tiles.run(parts(), [&](int64_t i) {
        const auto p = static_cast<size_t>(i);
        uniques_[p + 1] = sort_part(entries(divided_) + begins_[p], begins_[p + 1] - begins_[p],
                                    entries(sorted_) + begins_[p]);
      });
    }
    for (size_t p = 1; p < uniques_.size(); ++p) uniques_[p] += uniques_[p - 1];
    out.keys.resize(uniques_.back());
    const size_t bytes = uniques_.back() * width_ * sizeof(float);
    if (out.memory.size() < bytes) out.memory = Buffer(bytes + bytes / 8);
    auto* const values = reinterpret_cast<float*>(out.memory.data());
    tiles.run(parts(), [&](int64_t i) {
      const auto p = static_cast<size_t>(i);
      sum_part(p, out.keys.data() + uniques_[p], values + uniques_[p] * width_);
    });
  }

 private:
  static constexpr size_t kDigits = size_t{1} << kDigitBits;

  void plan() {
    int bits = total_ <= kPartEntries ? 0 : std::bit_width(total_ / kPartEntries);
    bits = std::min({bits, kMostPartBits, form_.key_bits});
    shift_ = form_.key_bits - bits;
    begins_.assign((size_t{1} << bits) + 1, 0);
    uniques_.assign(begins_.size(), 0);
    sorted_ = Buffer(total_ * sizeof(Entry));
  }
  int64_t parts() const { return static_cast<int64_t>(begins_.size()) - 1; }
  size_t part_of(uint64_t key) const {
    return shift_ == 64 ? 0 : static_cast<size_t>((key - form_.least) >> shift_);
  }
  Entry make(const std::span<const uint64_t>& keys, size_t contributor, size_t row) const {
    Entry entry;
    form_.make(keys[row] - form_.least, static_cast<uint32_t>(contributor),
               static_cast<uint32_t>(row), entry);
    return entry;
  }

  void divide() {
    for (const ContributedRows& one : contributors_) {
      for (const uint64_t key : one.keys) ++begins_[part_of(key) + 1];
    }
    for (size_t p = 1; p < begins_.size(); ++p) begins_[p] += begins_[p - 1];
    std::vector<size_t> next(begins_.begin(), begins_.end() - 1);
    divided_ = Buffer(total_ * sizeof(Entry));
    Entry* const to = entries(divided_);
    for (size_t c = 0; c < contributors_.size(); ++c) {
      const std::span<const uint64_t> keys = contributors_[c].keys;
      for (size_t i = 0; i < keys.size(); ++i) to[next[part_of(keys[i])]++] = make(keys, c, i);
    }
  }

  void order_ascending(const Tiles& tiles) {
    constexpr int64_t kMostTiles = 32;
    const int64_t at_once = tiles.parallel() ? (parts() + kMostTiles - 1) / kMostTiles : parts();
    begins_.back() = total_;
    tiles.ranges(parts(), at_once, [&](int64_t first, int64_t end) {
      std::vector<size_t> next = rows_before(static_cast<size_t>(first));
      size_t at = std::accumulate(next.begin(), next.end(), size_t{0});
      std::vector<Entry> part;
      for (auto p = static_cast<size_t>(first); p < static_cast<size_t>(end); ++p) {
        read_part(p, next, part);
        begins_[p] = at;
        uniques_[p + 1] = sort_part(part.data(), part.size(), entries(sorted_) + at);
        at += part.size();
      }
    });
  }

  // By contributor, of parts before `part`.
  std::vector<size_t> rows_before(size_t part) const {
    std::vector<size_t> rows(contributors_.size(), 0);
    for (size_t c = 0; c < rows.size() && part > 0; ++c) {
      const std::span<const uint64_t> keys = contributors_[c].keys;
      const auto found = std::partition_point(keys.begin(), keys.end(),
                                              [&](uint64_t key) { return part_of(key) < part; });
      rows[c] = static_cast<size_t>(found - keys.begin());
    }
    return rows;
  }

  // From rows next[c] of each contributor on, which it advances.
  void read_part(size_t p, std::vector<size_t>& next, std::vector<Entry>& part) {
    part.clear();
    const bool last = p + 2 == begins_.size();
    for (size_t c = 0; c < contributors_.size(); ++c) {
      const std::span<const uint64_t> keys = contributors_[c].keys;
      const size_t first = next[c];
      size_t end = first;
      if (last) {
        end = keys.size();
      } else {
        while (end < keys.size() && part_of(keys[end]) == p) ++end;
      }
      const size_t at = part.size();
      part.resize(at + end - first);
      for (size_t i = first; i < end; ++i) part[at + i - first] = make(keys, c, i);
      next[c] = end;
    }
  }

  // Stable, so that contributors of an id stay in their order. Returns how many ids there are.
  size_t sort_part(const Entry* from, size_t n, Entry* to) const {
    const int bits = std::min(kDigitBits, shift_);
    const int low = shift_ - bits;
    const size_t digits = size_t{1} << bits;
    const auto digit = [&](const Entry& entry) {
      return static_cast<size_t>(form_.key(entry) >> low & (digits - 1));
    };
    std::array<uint32_t, kDigits> next;
    std::fill_n(next.begin(), digits, 0);
    for (size_t i = 0; i < n; ++i) ++next[digit(from[i])];
    size_t filled = 0;
    uint32_t before = 0;
    for (size_t d = 0; d < digits; ++d) {
      filled += next[d] != 0 ? 1 : 0;
      before += std::exchange(next[d], before);
    }
    for (size_t i = 0; i < n; ++i) to[next[digit(from[i])]++] = from[i];
    if (low == 0) return filled;
    size_t ids = 0;
    for (size_t d = 0, begin = 0; d < digits; begin = next[d++]) {
      ids += sort_ids(to + begin, to + next[d]);
    }
    return ids;
  }

  // Entries of one digit: few, unless ids lie close together.
  size_t sort_ids(Entry* begin, Entry* end) const {
    if (begin == end) return 0;
    const auto less = [this](const Entry& a, const Entry& b) {
      return form_.key(a) < form_.key(b);
    };
    if (!std::is_sorted(begin, end, less)) {
      if (end - begin > kFew) {
        std::stable_sort(begin, end, less);
      } else {
        for (Entry* next = begin + 1; next != end; ++next) {
          const Entry entry = *next;
          Entry* to = next;
          for (; to != begin && less(entry, to[-1]); --to) *to = to[-1];
          *to = entry;
        }
      }
    }
    size_t ids = 1;
    for (const Entry* one = begin + 1; one != end; ++one) ids += less(one[-1], *one) ? 1 : 0;
    return ids;
  }

  // Most ids have few contributors: these are summed in registers.
  void sum_part(size_t p, uint64_t* keys, float* out) const {
    const Entry* entry = entries(sorted_) + begins_[p];
    const Entry* const end = entries(sorted_) + begins_[p + 1];
    TreeSumOfSome sum(width_);
    while (entry != end) {
      const uint64_t key = form_.key(*entry);
      const Entry* next = entry;
      do {
        if (next + kRowsAhead < end) fetch(next[kRowsAhead]);
        ++next;
      } while (next != end && form_.key(*next) == key);
      const RowWriter writer(out, width_, next == end || width_ < 8);
      if (next - entry == 1 && contributors_.size() > 1) {
        writer.write_one(values_of(entry[0]));
      } else if (next - entry == 2 && contributors_.size() > 2) {
        writer.write_two(values_of(entry[0]), values_of(entry[1]));
      } else {
        sum_many(entry, next, sum, out);
      }
      *keys++ = key + form_.least;
      out += width_;
      entry = next;
    }
  }

  void sum_many(const Entry* entry, const Entry* end, TreeSumOfSome& sum, float* out) const {
    size_t contributed = 0;
    uint32_t last = ~uint32_t{0};
    for (; entry != end; ++entry) {
      const uint32_t contributor = form_.contributor(*entry);
      contributed += contributor != last ? 1 : 0;
      last = contributor;
      sum.add(contributor, values_of(*entry));
    }
    sum.finish(out);
    if (contributed == contributors_.size()) return;
    for (size_t i = 0; i < width_; ++i) out[i] += 0.0f;
  }

  const float* values_of(const Entry& entry) const {
    return contributors_[form_.contributor(entry)].values + form_.row(entry) * width_;
  }
  void fetch(const Entry& entry) const { prefetch(values_of(entry), width_ * sizeof(float)); }
  static Entry* entries(const Buffer& memory) { return reinterpret_cast<Entry*>(memory.data()); }

  const std::span<const ContributedRows> contributors_;
  const size_t width_;
  const Form form_;
  size_t total_ = 0;
  int shift_ = 0;
  std::vector<size_t> begins_;   // by part, and the end of the last one
  std::vector<size_t> uniques_;  // ids before each part
  Buffer divided_;
  Buffer sorted_;
};

void check(std::span<const ContributedRows> contributors, size_t width) {
  size_t most = 0;
  for (const ContributedRows& one : contributors) most = std::max(most, one.keys.size());
  if (!contributors.empty() && contributors.size() <= 65536 && most <= 0xffffffff && width > 0) {
    return;
  }
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "these rows cannot be merged",
               .where = "merge_rows",
               .expected = "1 to 65536 contributors, fewer than 2^32 rows each, a width above 0",
               .got = str_cat(contributors.size(), " contributors, ", most, " rows, width ", width),
               .fix = "merge in several steps, or leave out what has no rows"});
}

}  // namespace

void merge_rows(std::span<const ContributedRows> contributors, size_t width, MergedRows& out,
                Tiles tiles) {
  check(contributors, width);
  const Form form = form_of(contributors);
  if (form.packed()) {
    Merge<Packed>(contributors, width, form).run(out, tiles);
  } else {
    Merge<Wide>(contributors, width, form).run(out, tiles);
  }
}

}  // namespace fleet::fluid::tables
