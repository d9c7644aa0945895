// What the tree's rules need to know of a C++ source, without a compiler: its text without comments
// and literals, its functions, its includes, its statements. Relies on the project's clang-format
// layout.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fleet::tree {

// Comments and the insides of string and character literals become blanks; lines stay lines.
std::string blank_comments_and_literals(std::string_view text);
// Comments become blanks; literals stay.
std::string blank_comments(std::string_view text);

struct FunctionSpan {
  std::string head;    // up to the opening brace, blanks collapsed
  int first_line = 0;  // 1-based, where the head begins
  int lines = 0;       // head and body
};
// Every outermost function of namespaces and classes; lambdas count into the one around them.
std::vector<FunctionSpan> find_functions(std::string_view text);

struct IncludeLine {
  std::string path;
  bool quoted = false;  // "path", not <path>
  int line = 0;
};
std::vector<IncludeLine> find_includes(std::string_view text);

// One entry a statement, brace or preprocessor line, without comments, blanks collapsed.
std::vector<std::string> statements(std::string_view text);

struct StatementDiff {
  std::vector<std::string> removed;
  std::vector<std::string> added;
  int changed_lines = 0;  // a replaced line counts once, not twice
};
StatementDiff diff_statements(const std::vector<std::string>& before,
                              const std::vector<std::string>& after);

std::string collapse_blanks(std::string_view text);

}  // namespace fleet::tree
