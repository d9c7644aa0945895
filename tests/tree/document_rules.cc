#include "tests/tree/document_rules.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <functional>
#include <regex>

#include "base/strings.h"
#include "tests/tree/source_text.h"

namespace fleet::tree {
namespace {

namespace fs = std::filesystem;

using Visit = std::function<void(const std::smatch& match, int line)>;

void for_each_match(const std::string& text, const std::regex& pattern, const Visit& visit) {
  int number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    for (std::sregex_iterator it(line.begin(), line.end(), pattern), end; it != end; ++it) {
      visit(*it, number);
    }
  }
}

std::string breach(const SourceFile& page, int line, const std::string& what) {
  return str_cat(page.path, ":", line, ": ", what);
}

std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (const char c : heading) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == ' ') {
      anchor += '-';
    } else if (std::isalnum(byte) != 0 || c == '-' || c == '_' || byte >= 0x80) {
      anchor += static_cast<char>(std::tolower(byte));
    }
  }
  return anchor;
}

}  // namespace

std::set<std::string> anchors(const std::string& page) {
  static const std::regex heading("^#+ (.*)$");
  std::set<std::string> found;
  for_each_match(page, heading,
                 [&](const std::smatch& match, int) { found.insert(anchor_of(match[1].str())); });
  return found;
}

Breaches check_links(const SourceFile& page, const std::vector<SourceFile>& pages,
                     const std::set<std::string>& paths) {
  static const std::regex link(R"(\]\(([^)#\s]*)(#[^)\s]*)?\))");
  Breaches breaches;
  for_each_match(page.text, link, [&](const std::smatch& match, int line) {
    const std::string target = match[1].str();
    if (target.find("://") != std::string::npos) return;
    std::string path = page.path;
    if (!target.empty()) {
      path = (fs::path(page.path).parent_path() / target).lexically_normal().generic_string();
    }
    if (!paths.contains(path)) {
      breaches.push_back(breach(page, line, "links to '" + target + "', which is not there"));
      return;
    }
    if (!match[2].matched) return;
    const auto found = std::find_if(pages.begin(), pages.end(),
                                    [&](const SourceFile& other) { return other.path == path; });
    if (found == pages.end() || !anchors(found->text).contains(match[2].str().substr(1))) {
      breaches.push_back(breach(page, line, "no heading of " + path + " is " + match[2].str()));
    }
  });
  return breaches;
}

Breaches check_paths(const SourceFile& page, const std::set<std::string>& paths) {
  static const std::regex path("`([A-Za-z0-9_.]+/[A-Za-z0-9_./]*[A-Za-z0-9_])/?`");
  Breaches breaches;
  for_each_match(page.text, path, [&](const std::smatch& match, int line) {
    const std::string name = match[1].str();
    const bool ours = paths.contains(name.substr(0, name.find('/')));
    if (ours && !name.starts_with("build/") && !paths.contains(name)) {
      breaches.push_back(breach(page, line, "names '" + name + "', which is not there"));
    }
  });
  return breaches;
}

Breaches check_names(const SourceFile& page, const std::set<std::string>& identifiers) {
  static const std::regex name(
      R"(\b(?:fleet|fluid|strategies|role_maker|transpiler|layers|io|optimizer|initializer|)"
      R"(regularizer|clip|data|unique_name|explain|collective)::(?:\w+::)*(\w+))");
  Breaches breaches;
  for_each_match(page.text, name, [&](const std::smatch& match, int line) {
    if (identifiers.contains(match[1].str())) return;
    breaches.push_back(breach(page, line, "no header has '" + match[0].str() + "'"));
  });
  return breaches;
}

std::set<std::string> identifiers_of_headers(const std::vector<SourceFile>& tree) {
  std::set<std::string> found;
  for (const SourceFile& file : tree) {
    if (!file.path.ends_with(".h") || file.path.starts_with("tests/")) continue;
    std::string word;
    for (const char c : blank_comments_and_literals(file.text) + "\n") {
      if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
        word += c;
      } else {
        if (!word.empty()) found.insert(word);
        word.clear();
      }
    }
  }
  return found;
}

}  // namespace fleet::tree
