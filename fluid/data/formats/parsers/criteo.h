// The TSV files of Criteo's click logs: a label, 13 whole numbers, 26 categories as up to 8
// hexadecimal digits; all but the label may be empty.
#pragma once

#include <string>
#include <vector>

#include "fluid/data/formats/parsers/parser.h"

namespace fleet::fluid::data {

inline constexpr int kCriteoDense = 13;
inline constexpr int kCriteoCategories = 26;

// What becomes of a whole number x.
enum class DenseTransform {
  kNone,
  kLog1p,   // ln(1 + max(x, 0))
  kMinMax,  // (x - dense_min[i]) / dense_range[i], as in Paddle's CTR examples
};

// What becomes of category value v of slot i (1 to 26).
enum class CategoryIds {
  kSlotAndValue,  // i * 2^40 + v; i * 2^40 + 2^32 where the cell is empty: all slots, one table
  kHashed,        // xxh64 of that (8 bytes, little-endian) with seed 0, modulo `buckets`
  kValue,         // v; 2^32 where the cell is empty: a table for each slot
};

struct CriteoOptions {
  bool labelled = true;  // false: files without the label's column, as for predictions
  DenseTransform dense = DenseTransform::kLog1p;
  float dense_missing = 0;  // an empty cell, after the transform
  std::vector<float> dense_min = {};
  std::vector<float> dense_range = {};
  CategoryIds ids = CategoryIds::kSlotAndValue;
  uint64_t buckets = 0;  // of kHashed
};

// Slots: "label" (ids 0 and 1, dense [1]), "dense_input" (floats, [13]), "C1" to "C26" (sequences
// of one id). The values of kLog1p are within 1e-6 of the true ones, relatively, and the same on
// every machine.
class CriteoParser final : public RecordParser {
 public:
  // UsageError for options that contradict each other.
  explicit CriteoParser(CriteoOptions options = {});

  const Slots& slots() const override { return slots_; }
  uint64_t parse(std::string_view text, std::string_view header, RecordBatch& out,
                 BadLines& bad) const override;

 private:
  class Piece;
  CriteoOptions options_;
  Slots slots_;
};

}  // namespace fleet::fluid::data
