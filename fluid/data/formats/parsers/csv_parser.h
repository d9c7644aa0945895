// CSV text with a schema: columns by name become slots. The rules are CsvTable's
// (fluid/data/files.h): RFC 4180, quoted cells may hold delimiters, line ends and doubled quotes.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "fluid/data/formats/parsers/parser.h"

namespace fleet::fluid::data {

enum class CsvKind {
  kFloat,   // a number
  kId,      // a whole number: uint64, or int64
  kHashed,  // any text: xxh64 with seed 0, modulo `buckets`; all 64 bits when that is 0
  kWord,    // its position in `vocabulary`
};

// Columns side by side in one slot, as wide as there are columns.
struct CsvSlot {
  std::string name;
  std::vector<std::string> columns;  // empty: {name}
  CsvKind kind = CsvKind::kFloat;
  bool sequence = false;  // the slot's tensor has sequences
  uint64_t buckets = 0;
  std::vector<std::string> vocabulary = {};
  // Of a word that the vocabulary lacks; without it, the line is bad.
  std::optional<uint64_t> unknown = {};
  // Of an empty cell of kFloat and kId; without it, the line is bad.
  std::optional<double> missing = {};
};

struct CsvParserOptions {
  char delimiter = ',';
  bool header = true;  // the first line names the columns; else they are named "0", "1", …
  bool trim = true;    // spaces around a cell that is not quoted do not count
};

// A line whose number of cells is not that of the header is bad (without a header: that has too few
// for the schema), and so is a quoted cell that does not end; empty lines are left out.
class CsvParser final : public RecordParser {
 public:
  // UsageError for a schema that contradicts itself.
  explicit CsvParser(std::vector<CsvSlot> schema, CsvParserOptions options = {});

  const Slots& slots() const override { return slots_; }
  bool has_header() const override { return options_.header; }
  size_t whole_records(std::string_view text) const override;
  // UsageError that names the column and those that there are when the header lacks one.
  uint64_t parse(std::string_view text, std::string_view header, RecordBatch& out,
                 BadLines& bad) const override;

 private:
  class Lines;
  std::vector<CsvSlot> schema_;
  CsvParserOptions options_;
  std::vector<std::unordered_map<std::string, uint64_t>> words_;  // of each slot
  Slots slots_;
};

}  // namespace fleet::fluid::data
