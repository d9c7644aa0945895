// A table for the terminal: a header, a rule, rows; the first column left, the others right.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace fleet::tools {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header);
  // A row with fewer cells than the header is filled up with empty ones.
  void add_row(std::vector<std::string> cells);
  void print(std::ostream& out) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace fleet::tools
