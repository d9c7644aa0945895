#include "fluid/data/formats/parsers/csv_parser.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <deque>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"
#include "fluid/data/formats/parsers/number_text_impl.h"
#include "fluid/data/formats/parsers/token_index_impl.h"

namespace fleet::fluid::data {
namespace {

[[noreturn]] void refuse_schema(const std::string& slot, std::string what, std::string fix) {
  throw_error(
      ErrorCode::kInvalidArgument,
      {.what = std::move(what), .where = str_cat("CsvSlot '", slot, "'"), .fix = std::move(fix)});
}

std::vector<SlotSpec> slots_of(std::vector<CsvSlot>& schema) {
  std::vector<SlotSpec> slots;
  for (CsvSlot& slot : schema) {
    if (slot.columns.empty()) slot.columns = {slot.name};
    if (slot.kind == CsvKind::kWord && slot.vocabulary.empty()) {
      refuse_schema(slot.name, "a slot of words has no vocabulary",
                    "fill `vocabulary`, or use kHashed");
    }
    slots.push_back({.name = slot.name,
                     .type = slot.kind == CsvKind::kFloat ? SlotType::kFloat : SlotType::kId,
                     .width = static_cast<int64_t>(slot.columns.size()),
                     .sequence = slot.sequence});
  }
  return slots;
}

// Where the record at `at` ends: behind its line end; npos when the text ends before that.
size_t end_of_record(std::string_view text, size_t at, char delimiter) {
  const std::array<char, 2> marks = {delimiter, '\n'};
  while (true) {
    if (at < text.size() && text[at] == '"') {
      for (++at;; at += 2) {
        at = text.find('"', at);
        if (at == std::string_view::npos) return at;
        if (at + 1 >= text.size() || text[at + 1] != '"') break;
      }
    }
    at = text.find_first_of(marks.data(), at, marks.size());
    if (at == std::string_view::npos) return at;
    if (text[at++] == '\n') return at;
  }
}

}  // namespace

// What a text's lines are parsed with.
class CsvParser::Lines {
 public:
  Lines(const CsvParser& parser, std::string_view header, RecordBatch& out)
      : parser_(parser), out_(out) {
    if (parser.options_.header) read_names(header);
    for (const CsvSlot& slot : parser.schema_) {
      for (const std::string& name : slot.columns) columns_.push_back(column_of(name));
    }
    most_ = *std::max_element(columns_.begin(), columns_.end()) + 1;
  }

  // Splits a record, which may have a '"', into cells; false when a quoted cell does not end well.
  bool split_quoted(std::string_view record) {
    cells_.clear();
    unescaped_.clear();
    for (size_t at = 0;; ++at) {
      const bool quoted = at < record.size() && record[at] == '"';
      if (quoted && !take_quoted(record, at)) return false;
      if (!quoted) {
        const size_t end = std::min(record.find(parser_.options_.delimiter, at), record.size());
        cells_.push_back(bare(record.substr(at, end - at)));
        at = end;
      }
      if (at >= record.size()) return true;
    }
  }

  void split_words(const char* text, const text::IndexedLine& line, const uint32_t* ends) {
    cells_.clear();
    uint32_t begin = line.begin;
    for (uint32_t i = line.first; i < line.last; ++i) {
      cells_.push_back(bare({text + begin, ends[i] - begin}));
      begin = ends[i] + 1;
    }
  }

  bool blank(std::string_view record) const {
    return cells_.size() == 1 && cells_[0].empty() && !record.starts_with('"');
  }

  // Writes the cells as a record, or says why not.
  bool write(std::string& reason) {
    if (names_.empty() ? cells_.size() < most_ : cells_.size() != names_.size()) {
      reason = str_cat("the line has ", cells_.size(), " cells, not ",
                       names_.empty() ? most_ : names_.size(), names_.empty() ? " or more" : "");
      return false;
    }
    size_t column = 0;
    for (size_t slot = 0; slot < parser_.schema_.size(); ++slot) {
      for (size_t i = 0; i < parser_.schema_[slot].columns.size(); ++i, ++column) {
        const std::string_view cell = cells_[columns_[column]];
        const char* fault = write_cell(slot, cell);
        if (fault == nullptr) continue;
        reason = str_cat("column '", parser_.schema_[slot].columns[i], "': ", fault);
        return false;
      }
    }
    out_.count(1);
    return true;
  }

 private:
  void read_names(std::string_view header) {
    while (header.ends_with('\n') || header.ends_with('\r')) header.remove_suffix(1);
    if (header.starts_with("\xEF\xBB\xBF")) header.remove_prefix(3);  // a mark of UTF-8
    if (!split_quoted(header)) cells_.clear();
    for (const std::string_view name : cells_) names_.emplace_back(name);
  }

  size_t column_of(const std::string& name) const {
    if (!parser_.options_.header) {
      const auto number = parse_int(name);
      if (number && *number >= 0 && *number < 1 << 20) return static_cast<size_t>(*number);
      throw_error(ErrorCode::kUnknownName,
                  {.what = str_cat("columns of a text without a header have no name '", name, "'"),
                   .where = "CsvParser",
                   .expected = "\"0\", \"1\", …",
                   .fix = "name the column by its position, or set header"});
    }
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found != names_.end()) return static_cast<size_t>(found - names_.begin());
    throw_error(ErrorCode::kUnknownName, {.what = str_cat("the text has no column '", name, "'"),
                                          .where = "the first line of a CSV file",
                                          .expected = str_cat("one of ", join(names_, ", ")),
                                          .got = name,
                                          .fix = str_cat("use one of them, or another delimiter",
                                                         did_you_mean(name, names_))});
  }

  std::string_view bare(std::string_view cell) const {
    if (cell.ends_with('\r')) cell.remove_suffix(1);
    return parser_.options_.trim ? trim(cell) : cell;
  }

  bool take_quoted(std::string_view record, size_t& at) {
    const size_t begin = ++at;
    size_t quote = record.find('"', begin);
    std::string* cell = nullptr;
    for (; quote != std::string_view::npos; quote = record.find('"', at)) {
      const bool doubled = quote + 1 < record.size() && record[quote + 1] == '"';
      if (cell == nullptr && doubled) cell = &unescaped_.emplace_back();
      if (cell != nullptr) cell->append(record.substr(at, quote - at + (doubled ? 1 : 0)));
      at = quote + (doubled ? 2 : 1);
      if (!doubled) break;
    }
    if (quote == std::string_view::npos) return false;
    cells_.push_back(cell != nullptr ? std::string_view(*cell)
                                     : record.substr(begin, quote - begin));
    if (at < record.size() && record[at] == '\r') ++at;
    return at >= record.size() || record[at] == parser_.options_.delimiter;
  }

  // What is wrong with the cell; null when nothing is.
  const char* write_cell(size_t slot, std::string_view cell) {
    const CsvSlot& spec = parser_.schema_[slot];
    Column& column = out_.column(slot);
    if (spec.kind == CsvKind::kFloat) {
      float value = 0;
      if (cell.empty() && spec.missing) {
        value = static_cast<float>(*spec.missing);
      } else if (!number(cell, text::parse_float, value)) {
        return "the cell is no number";
      }
      column.floats.push_back(value);
      return nullptr;
    }
    uint64_t id = 0;
    if (spec.kind == CsvKind::kHashed) {
      id = xxh64(cell);
      if (spec.buckets > 0) id %= spec.buckets;
    } else if (spec.kind == CsvKind::kWord) {
      word_.assign(cell);
      const auto found = parser_.words_[slot].find(word_);
      if (found == parser_.words_[slot].end() && !spec.unknown) {
        return "the vocabulary has no such word";
      }
      id = found == parser_.words_[slot].end() ? *spec.unknown : found->second;
    } else if (cell.empty() && spec.missing) {
      id = static_cast<uint64_t>(static_cast<int64_t>(*spec.missing));
    } else if (!number(cell, text::parse_id, id)) {
      return "the cell is no id of 64 bits";
    }
    column.ids.push_back(id);
    return nullptr;
  }

  // Cells of unescaped_ have no padding behind them; what was quoted is no number in a hurry.
  template <class Value>
  bool number(std::string_view cell, bool (*parse)(const char*, size_t, Value&), Value& value) {
    if (unescaped_.empty()) return parse(cell.data(), cell.size(), value);
    padded_.assign(cell);
    padded_.append(kTextPadding, '\0');
    return parse(padded_.data(), cell.size(), value);
  }

  const CsvParser& parser_;
  RecordBatch& out_;
  std::vector<std::string> names_;
  std::vector<size_t> columns_;  // of the schema, slot by slot
  size_t most_ = 0;
  std::vector<std::string_view> cells_;
  std::deque<std::string> unescaped_;
  std::string word_;
  std::string padded_;
};

CsvParser::CsvParser(std::vector<CsvSlot> schema, CsvParserOptions options)
    : schema_(std::move(schema)), options_(options) {
  if (schema_.empty()) {
    throw_error(ErrorCode::kInvalidArgument, {.what = "the schema has no slot",
                                              .where = "CsvParser",
                                              .expected = "at least one",
                                              .fix = "name the columns that you need"});
  }
  slots_ = make_slots(slots_of(schema_));
  for (const CsvSlot& slot : schema_) {
    auto& words = words_.emplace_back();
    for (size_t i = 0; i < slot.vocabulary.size(); ++i) words.emplace(slot.vocabulary[i], i);
  }
}

size_t CsvParser::whole_records(std::string_view text) const {
  if (text.find('"') == std::string_view::npos) return whole_lines(text);
  size_t whole = 0;
  while (true) {
    const size_t end = end_of_record(text, whole, options_.delimiter);
    if (end == std::string_view::npos) return whole;
    whole = end;
  }
}

uint64_t CsvParser::parse(std::string_view text, std::string_view header, RecordBatch& out,
                          BadLines& bad) const {
  Lines lines(*this, header, out);
  uint64_t line = 0;
  std::string reason;
  const auto write = [&](std::string_view record) {
    if (lines.blank(record) || lines.write(reason)) return;
    bad.add(line, record, [&] { return reason; });
    out.roll_back();
  };
  if (text.find('"') != std::string_view::npos) {
    while (!text.empty()) {
      const size_t end = std::min(end_of_record(text, 0, options_.delimiter), text.size());
      std::string_view record = text.substr(0, end);
      const auto of_record = std::count(record.begin(), record.end(), '\n');
      if (record.ends_with('\n')) record.remove_suffix(1);
      if (lines.split_quoted(record)) {
        write(record);
      } else {
        bad.add(line, record, [] {
          return std::string(
              "a quoted cell does not end, or has more behind it; "
              "double the quotes inside the cell");
        });
      }
      line += static_cast<uint64_t>(of_record);
      text.remove_prefix(end);
    }
    return line;
  }
  text::WordIndex index;
  const text::CellSeparators separators(options_.delimiter);
  text::for_each_piece(text, [&](std::string_view part) {
    index.build(part, separators);
    for (const text::IndexedLine& indexed : index.lines()) {
      lines.split_words(part.data(), indexed, index.ends());
      write(part.substr(indexed.begin, indexed.end - indexed.begin));
      ++line;
    }
  });
  return line;
}

}  // namespace fleet::fluid::data
