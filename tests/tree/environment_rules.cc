#include "tests/tree/environment_rules.h"

#include <algorithm>
#include <regex>

#include "base/strings.h"
#include "tests/tree/source_text.h"

namespace fleet::tree {
namespace {

void find_in(const SourceFile& file, const std::string& text, const std::regex& pattern,
             std::vector<NamedVariable>& found) {
  for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at) {
    const std::string name = (*at)[1].str();
    if (name.empty() || name.ends_with('_')) continue;
    const auto line = 1 + std::count(text.begin(), text.begin() + at->position(1), '\n');
    found.push_back({name, str_cat(file.path, ":", line)});
  }
}

}  // namespace

std::vector<NamedVariable> find_variables(const SourceFile& file) {
  static const std::regex literal(R"re((starts_with\(\s*)?"((?:[^"\\\n]|\\.)*)")re");
  static const std::regex ours(R"(\b((?:FLEET|FLAGS)_[A-Za-z0-9_]+))");
  static const std::regex asked(
      R"re((?:getenv|\.get|\.has|\.optional|\.required|\.number)\(\s*"([A-Z][A-Z0-9_]+)")re");
  const std::string text = blank_comments(file.text);
  std::string literals = text;  // all but them becomes blank
  size_t end_of_last = 0;
  const auto blank = [&literals](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) literals[i] = literals[i] == '\n' ? '\n' : ' ';
  };
  for (std::sregex_iterator at(text.begin(), text.end(), literal), end; at != end; ++at) {
    const auto begin = static_cast<size_t>(at->position(2));
    const bool prefix = (*at)[1].matched;
    blank(end_of_last, prefix ? begin + at->length(2) : begin);
    end_of_last = begin + static_cast<size_t>(at->length(2));
  }
  blank(end_of_last, literals.size());
  std::vector<NamedVariable> found;
  find_in(file, literals, ours, found);
  find_in(file, text, asked, found);
  return found;
}

std::vector<NamedVariable> find_script_variables(const SourceFile& file) {
  static const std::regex expanded(R"(\$\{?(FLEET_[A-Z0-9_]+))");
  std::vector<NamedVariable> found;
  find_in(file, file.text, expanded, found);
  return found;
}

}  // namespace fleet::tree
