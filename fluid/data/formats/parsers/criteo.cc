#include "fluid/data/formats/parsers/criteo.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"
#include "fluid/data/formats/parsers/cells_impl.h"
#include "fluid/data/formats/parsers/number_text_impl.h"
#include "fluid/data/formats/parsers/token_index_impl.h"

namespace fleet::fluid::data {
namespace {

constexpr uint64_t kMissingCategory = uint64_t{1} << 32;
constexpr int kSlotBit = 40;
constexpr float kMissingDense = std::numeric_limits<float>::quiet_NaN();

void apply_log1p(float* values, size_t count, float missing) {
  const __m128 missing_values = _mm_set1_ps(missing);
  for (; count >= 4; values += 4, count -= 4) {
    _mm_storeu_ps(values, text::log1p_of_four(_mm_loadu_ps(values), missing_values));
  }
  if (count == 0) return;
  std::array<float, 4> rest{};
  std::copy_n(values, count, rest.begin());
  _mm_storeu_ps(rest.data(), text::log1p_of_four(_mm_loadu_ps(rest.data()), missing_values));
  std::copy_n(rest.begin(), count, values);
}

void apply_min_max(float* values, size_t count, const CriteoOptions& options) {
  for (size_t i = 0; i < count; ++i) {
    const size_t column = i % kCriteoDense;
    const float x = values[i];
    values[i] = x == x ? (x - options.dense_min[column]) / options.dense_range[column]
                       : options.dense_missing;
  }
}

void replace_missing(float* values, size_t count, float missing) {
  for (size_t i = 0; i < count; ++i) values[i] = values[i] == values[i] ? values[i] : missing;
}

std::vector<SlotSpec> slots_of(const CriteoOptions& options) {
  std::vector<SlotSpec> slots;
  if (options.labelled) slots.push_back(SlotSpec::dense("label", SlotType::kId, {1}));
  slots.push_back(SlotSpec::dense("dense_input", SlotType::kFloat, {kCriteoDense}));
  for (int i = 1; i <= kCriteoCategories; ++i) {
    slots.push_back({.name = str_cat("C", i), .type = SlotType::kId, .width = 1});
  }
  return slots;
}

[[noreturn]] void refuse_options(std::string what, std::string expected, std::string got,
                                 std::string fix) {
  throw_error(ErrorCode::kInvalidArgument, {.what = std::move(what),
                                            .where = "CriteoOptions",
                                            .expected = std::move(expected),
                                            .got = std::move(got),
                                            .fix = std::move(fix)});
}

void check(const CriteoOptions& options) {
  if (options.ids == CategoryIds::kHashed && options.buckets == 0) {
    refuse_options("hashed ids need a range", "buckets of 1 or more", "0", "set buckets");
  }
  if (options.dense != DenseTransform::kMinMax) return;
  if (options.dense_min.size() != kCriteoDense || options.dense_range.size() != kCriteoDense) {
    refuse_options("kMinMax needs a minimum and a range of each number",
                   str_cat(kCriteoDense, " values in dense_min and in dense_range"),
                   str_cat(options.dense_min.size(), " and ", options.dense_range.size()),
                   "fill both");
  }
  if (std::find(options.dense_range.begin(), options.dense_range.end(), 0.0f) !=
      options.dense_range.end()) {
    refuse_options("a range of kMinMax is 0", "another number", "0", "leave the number's range 1");
  }
}

}  // namespace

// The lines of a piece of the text, written behind what a batch has.
class CriteoParser::Piece {
 public:
  Piece(const CriteoParser& parser, RecordBatch& out, size_t lines)
      : options_(parser.options_), out_(out) {
    size_t slot = 0;
    if (options_.labelled) label_ = out.column(slot++).ids.room(lines);
    dense_slot_ = slot;
    dense_ = out.column(slot++).floats.room(lines * kCriteoDense);
    for (uint64_t*& ids : ids_) ids = out.column(slot++).ids.room(lines);
  }

  void set_text(const char* text, const uint32_t* ends) {
    text_ = text;
    ends_ = ends;
  }

  bool parse(const text::IndexedLine& line) {
    cells_ = line.last - line.first;
    const uint32_t wanted = kCriteoDense + kCriteoCategories + (options_.labelled ? 1 : 0);
    bad_cell_ = -1;
    if (cells_ != wanted) return false;
    const uint32_t* end = ends_ + line.first;
    uint32_t begin = line.begin;
    bad_cell_ = 0;
    if (options_.labelled) {
      const bool binary = *end - begin == 1 && (text_[begin] & 0xFE) == '0';
      if (!binary) return false;
      label_[rows_] = static_cast<uint64_t>(text_[begin] - '0');
      begin = *end++ + 1;
      bad_cell_ = 1;
    }
    // Cells with many digits are rare, and those that are no numbers, too.
    if (!parse_in_fours(end)) {
      if (!parse_dense(begin, end) || !parse_categories(begin, end)) return false;
    }
    ++rows_;
    return true;
  }

  std::string reason() const {
    if (bad_cell_ < 0) {
      return str_cat("the line has ", cells_, " cells, not ",
                     kCriteoDense + kCriteoCategories + (options_.labelled ? 1 : 0));
    }
    const int cell = bad_cell_ - (options_.labelled ? 1 : 0);
    if (cell < 0) return "the label is neither 0 nor 1";
    if (cell < kCriteoDense) return str_cat("cell I", cell + 1, " is no whole number");
    return str_cat("cell C", cell - kCriteoDense + 1, " is not 1 to 8 hexadecimal digits");
  }

  void finish() {
    const size_t values = rows_ * kCriteoDense;
    switch (options_.dense) {
      case DenseTransform::kLog1p:
        apply_log1p(dense_, values, options_.dense_missing);
        break;
      case DenseTransform::kMinMax:
        apply_min_max(dense_, values, options_);
        break;
      case DenseTransform::kNone:
        replace_missing(dense_, values, options_.dense_missing);
    }
    if (options_.ids == CategoryIds::kHashed) hash_ids();
    if (options_.labelled) out_.column(0).ids.grown(rows_);
    out_.column(dense_slot_).floats.grown(values);
    for (size_t i = 0; i < ids_.size(); ++i) out_.column(dense_slot_ + 1 + i).ids.grown(rows_);
    out_.count(static_cast<int64_t>(rows_));
  }

 private:
  bool parse_in_fours(const uint32_t* end) {
    __m256i errors = _mm256_setzero_si256();
    float* out = dense_ + rows_ * kCriteoDense;
    // The last four overlap the ones before.
    for (const int i : {0, 4, 8, kCriteoDense - 4}) {
      _mm_storeu_ps(out + i, text::whole_numbers(text::Cells4(text_, end + i), errors));
    }
    end += kCriteoDense;
    const bool with_slot = options_.ids != CategoryIds::kValue;
    const __m256i missing = _mm256_set1_epi64x(kMissingCategory);
    __m256i slots = _mm256_set_epi64x(int64_t{4} << kSlotBit, int64_t{3} << kSlotBit,
                                      int64_t{2} << kSlotBit, int64_t{1} << kSlotBit);
    for (size_t i = 0;; i += 4) {
      if (i + 4 > kCriteoCategories) i = kCriteoCategories - 4;
      const text::Cells4 cells(text_, end + i);
      __m256i ids = text::hex_values(cells, errors);
      ids = _mm256_or_si256(ids, _mm256_and_si256(cells.empty(), missing));
      if (with_slot) {
        const auto first = static_cast<int64_t>(i);
        ids = _mm256_add_epi64(ids, _mm256_add_epi64(slots, _mm256_set1_epi64x(first << kSlotBit)));
      }
      alignas(32) std::array<uint64_t, 4> lanes;
      _mm256_store_si256(reinterpret_cast<__m256i*>(lanes.data()), ids);
      for (size_t k = 0; k < 4; ++k) ids_[i + k][rows_] = lanes[k];
      if (i + 4 == kCriteoCategories) break;
    }
    return _mm256_testz_si256(errors, errors) != 0;
  }

  bool parse_dense(uint32_t& begin, const uint32_t*& end) {
    float* out = dense_ + rows_ * kCriteoDense;
    for (int i = 0; i < kCriteoDense; ++i, ++end) {
      const char* cell = text_ + begin;
      size_t size = *end - begin;
      begin = *end + 1;
      if (size == 0) {
        out[i] = kMissingDense;
        continue;
      }
      const bool negative = *cell == '-';
      uint64_t value = 0;
      if (!text::parse_digits(cell + negative, size - negative, value) || value >> 63 != 0) {
        bad_cell_ += i;
        return false;
      }
      const auto number = static_cast<float>(static_cast<int64_t>(value));
      out[i] = negative ? -number : number;
    }
    bad_cell_ += kCriteoDense;
    return true;
  }

  bool parse_categories(uint32_t begin, const uint32_t* end) {
    const bool with_slot = options_.ids != CategoryIds::kValue;
    for (size_t i = 0; i < kCriteoCategories; ++i) {
      const char* cell = text_ + begin;
      size_t size = end[i] - begin;
      begin = end[i] + 1;
      if (i + 1 == kCriteoCategories && size > 0 && cell[size - 1] == '\r') --size;
      uint64_t value = kMissingCategory;
      if (size > 0 && (size > 8 || !text::parse_hex(cell, size, value))) {
        bad_cell_ += static_cast<int>(i);
        return false;
      }
      ids_[i][rows_] = with_slot ? (i + 1) << kSlotBit | value : value;
    }
    return true;
  }

  void hash_ids() {
    for (uint64_t* ids : ids_) {
      for (size_t row = 0; row < rows_; ++row) {
        ids[row] =
            xxh64({reinterpret_cast<const char*>(ids + row), sizeof *ids}) % options_.buckets;
      }
    }
  }

  const CriteoOptions& options_;
  RecordBatch& out_;
  size_t dense_slot_ = 0;
  uint64_t* label_ = nullptr;
  float* dense_ = nullptr;
  std::array<uint64_t*, kCriteoCategories> ids_{};
  const char* text_ = nullptr;
  const uint32_t* ends_ = nullptr;
  size_t rows_ = 0;
  uint32_t cells_ = 0;
  int bad_cell_ = -1;  // -1: there are too few or too many
};

CriteoParser::CriteoParser(CriteoOptions options) : options_(std::move(options)) {
  check(options_);
  slots_ = make_slots(slots_of(options_));
}

uint64_t CriteoParser::parse(std::string_view text, std::string_view /*header*/, RecordBatch& out,
                             BadLines& bad) const {
  uint64_t lines = 0;
  text::WordIndex index;
  const text::CellSeparators separators('\t');
  text::for_each_piece(text, [&](std::string_view part) {
    index.build(part, separators);
    Piece piece(*this, out, index.lines().size());
    piece.set_text(part.data(), index.ends());
    for (const text::IndexedLine& line : index.lines()) {
      const std::string_view whole = part.substr(line.begin, line.end - line.begin);
      if (!piece.parse(line) && !whole.empty() && whole != "\r") {
        bad.add(lines, whole, [&] { return piece.reason(); });
      }
      ++lines;
    }
    piece.finish();
  });
  return lines;
}

}  // namespace fleet::fluid::data
