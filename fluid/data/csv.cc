#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/data/files.h"

namespace fleet::fluid::data {
namespace {

template <class T>
bool parse_number(std::string_view text, T& value) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

CsvTable CsvTable::load(const std::filesystem::path& path, const CsvOptions& options) {
  return parse(read_file(path), options, "file " + path.string());
}

CsvTable CsvTable::parse(std::string text, const CsvOptions& options, std::string where) {
  CsvTable table;
  table.where_ = std::move(where);
  table.text_ = std::move(text);
  table.parse_cells(options);
  return table;
}

void CsvTable::parse_cells(const CsvOptions& options) {
  size_t at = 0;
  size_t line = 1;
  while (at < text_.size()) {
    const size_t row_line = line;
    const size_t cells_before = cells_.size();
    bool quoted = false;
    for (bool more = true; more;) {
      if (at < text_.size() && text_[at] == '"') {
        at = parse_quoted(at, line, options);
        quoted = true;
      } else {
        const size_t end = std::min(
            text_.find_first_of(std::array<char, 2>{options.delimiter, '\n'}.data(), at, 2),
            text_.size());
        std::string_view cell = std::string_view(text_).substr(at, end - at);
        if (cell.ends_with('\r')) cell.remove_suffix(1);
        if (options.trim) cell = trim(cell);
        const size_t begin = cell.empty() ? at : static_cast<size_t>(cell.data() - text_.data());
        cells_.push_back({begin, cell.size()});
        at = end;
      }
      more = at < text_.size() && text_[at] == options.delimiter;
      if (more || at < text_.size()) ++at;
    }
    ++line;
    if (!quoted && cells_.size() == cells_before + 1 && cells_.back().size == 0) {
      cells_.pop_back();
      continue;
    }
    end_line(cells_before, row_line);
    if (names_.empty()) {
      for (size_t i = cells_before; i < cells_.size(); ++i) {
        names_.push_back(options.header ? text_.substr(cells_[i].begin, cells_[i].size)
                                        : std::to_string(i - cells_before));
      }
      if (options.header) {
        cells_.clear();
        continue;
      }
    }
    lines_.push_back(row_line);
    ++rows_;
  }
}

// Unescapes the quoted cell at `at` in place and counts the lines in it; returns where it ends.
size_t CsvTable::parse_quoted(size_t at, size_t& line, const CsvOptions& options) {
  const size_t first_line = line;
  const size_t begin = at;
  size_t out = begin;
  bool closed = false;
  for (++at; at < text_.size() && !closed; ++at) {
    if (text_[at] == '"') {
      closed = at + 1 >= text_.size() || text_[at + 1] != '"';
      if (closed) continue;
      ++at;
    }
    if (text_[at] == '\n') ++line;
    text_[out++] = text_[at];
  }
  if (at < text_.size() && text_[at] == '\r') ++at;
  if (!closed || (at < text_.size() && text_[at] != options.delimiter && text_[at] != '\n')) {
    throw_error(ErrorCode::kCorruptFile,
                {.what = "a quoted cell does not end",
                 .where = str_cat(where_, " line ", first_line),
                 .expected = "a closing quote, then a delimiter or the end of the line",
                 .got = closed ? "more text" : "the end of the file",
                 .fix = "double the quotes inside the cell"});
  }
  cells_.push_back({begin, out - begin});
  return at;
}

void CsvTable::end_line(size_t cells_before, size_t line) {
  const size_t cells = cells_.size() - cells_before;
  if (names_.empty() || cells == names_.size()) return;
  throw_error(ErrorCode::kCorruptFile, {.what = "a line does not have a cell for each column",
                                        .where = str_cat(where_, " line ", line),
                                        .expected = str_cat(names_.size(), " cells"),
                                        .got = str_cat(cells, " cells"),
                                        .fix = "mend the line, or check CsvOptions.delimiter"});
}

size_t CsvTable::column_index(std::string_view name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) {
    throw_error(ErrorCode::kUnknownName,
                {.what = str_cat("the table has no column '", name, "'"),
                 .where = where_,
                 .expected = str_cat("one of ", join(names_, ", ")),
                 .got = std::string(name),
                 .fix = str_cat("use one of them", did_you_mean(name, names_))});
  }
  return static_cast<size_t>(found - names_.begin());
}

std::string_view CsvTable::cell(int64_t row, size_t column) const {
  const Cell& cell = cells_[static_cast<size_t>(row) * names_.size() + column];
  return std::string_view(text_).substr(cell.begin, cell.size);
}

std::string_view CsvTable::cell(int64_t row, std::string_view column) const {
  const size_t index = column_index(column);
  if (row < 0 || row >= rows_) {
    throw_error(ErrorCode::kInvalidArgument, {.what = "the table has no such row",
                                              .where = where_,
                                              .expected = str_cat("0 to ", rows_ - 1),
                                              .got = std::to_string(row),
                                              .fix = "ask for rows below rows()"});
  }
  return cell(row, index);
}

void CsvTable::refuse_cell(int64_t row, size_t column, std::string expected) const {
  throw_error(ErrorCode::kInput,
              {.what = str_cat("a cell of column '", names_[column], "' cannot be used"),
               .where = str_cat(where_, " line ", lines_[static_cast<size_t>(row)]),
               .expected = std::move(expected),
               .got = str_cat("'", cell(row, column), "'"),
               .fix = "mend the cell, or leave the column out"});
}

Tensor CsvTable::numbers(std::span<const std::string> columns, DType dtype) const {
  std::vector<size_t> indices;
  for (const std::string& name : columns) indices.push_back(column_index(name));
  const auto width = static_cast<int64_t>(indices.size());
  Tensor out(dtype, {rows_, width});
  const auto fill = [&]<class T>(T* values) {
    for (int64_t row = 0; row < rows_; ++row) {
      for (const size_t column : indices) {
        if (!parse_number(cell(row, column), *values++)) {
          refuse_cell(row, column, str_cat("a number that fits ", dtype_name(dtype)));
        }
      }
    }
  };
  switch (dtype) {
    case DType::kFloat32:
      fill(out.data<float>());
      break;
    case DType::kFloat64:
      fill(out.data<double>());
      break;
    case DType::kInt32:
      fill(out.data<int32_t>());
      break;
    case DType::kInt64:
      fill(out.data<int64_t>());
      break;
    default:
      throw_error(ErrorCode::kNotSupported, {.what = "cells cannot be read as this type",
                                             .where = "CsvTable::numbers",
                                             .expected = "float32, float64, int32 or int64",
                                             .got = std::string(dtype_name(dtype)),
                                             .fix = "read float32 and cast it"});
  }
  return out;
}

Tensor CsvTable::categories(std::string_view column, std::vector<std::string>& vocabulary,
                            int64_t unknown) const {
  const size_t index = column_index(column);
  const bool learn = vocabulary.empty();
  std::unordered_map<std::string, int64_t> numbers;
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    numbers.emplace(vocabulary[i], static_cast<int64_t>(i));
  }
  Tensor out(DType::kInt64, {rows_, 1});
  for (int64_t row = 0; row < rows_; ++row) {
    std::string word(cell(row, index));
    auto found = numbers.find(word);
    if (found == numbers.end() && learn) {
      found = numbers.emplace(word, static_cast<int64_t>(vocabulary.size())).first;
      vocabulary.push_back(std::move(word));
    }
    if (found == numbers.end() && unknown < 0) {
      refuse_cell(row, index, str_cat("one of the ", vocabulary.size(), " words known so far"));
    }
    out.data<int64_t>()[row] = found == numbers.end() ? unknown : found->second;
  }
  return out;
}

}  // namespace fleet::fluid::data
