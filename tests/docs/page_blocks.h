// What a page of docs/ shows, and what a test of it compiles and runs between its marks.
#pragma once

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "tests/testing/paths.h"

namespace fleet::testing {

// The texts between lines that are `begin` and `end`, without the indentation of `begin`.
inline std::vector<std::string> blocks_between(const std::string& path, const std::string& begin,
                                               const std::string& end) {
  std::ifstream file(source_path(path));
  const size_t indentation = begin.find_first_not_of(' ');
  std::vector<std::string> found;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (inside && line == end) {
      inside = false;
    } else if (inside) {
      found.back() += line.substr(std::min(indentation, line.size())) + "\n";
    } else if (line == begin) {
      inside = true;
      found.emplace_back();
    }
  }
  return found;
}

// Of a page: its blocks in one language.
inline std::vector<std::string> blocks_shown(const std::string& page,
                                             const std::string& language = "cpp") {
  return blocks_between(page, "```" + language, "```");
}

// Of a source, indented by two blanks: between "// [" and "// ]".
inline std::vector<std::string> blocks_that_run(const std::string& source) {
  return blocks_between(source, "  // [", "  // ]");
}

}  // namespace fleet::testing
