#include "tools/text_table.h"

#include <algorithm>
#include <ostream>

namespace fleet::tools {

TextTable::TextTable(std::vector<std::string> header) {
  rows_.push_back(std::move(header));
}

void TextTable::add_row(std::vector<std::string> cells) {
  cells.resize(rows_.front().size());
  rows_.push_back(std::move(cells));
}

void TextTable::print(std::ostream& out) const {
  std::vector<std::size_t> widths(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  const auto print_row = [&](const std::vector<std::string>& row, char fill) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), fill);
      out << (i == 0 ? "  " : "   ") << (i == 0 ? row[i] + padding : padding + row[i]);
    }
    out << "\n";
  };
  print_row(rows_.front(), ' ');
  print_row(std::vector<std::string>(widths.size()), '-');
  for (std::size_t r = 1; r < rows_.size(); ++r) print_row(rows_[r], ' ');
}

}  // namespace fleet::tools
