#include "tests/tree/tree_rules.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <regex>
#include <sstream>

#include "base/strings.h"
#include "tests/tree/source_text.h"

namespace fleet::tree {
namespace {

namespace fs = std::filesystem;

std::string folder_of(const std::string& path) {
  return fs::path(path).parent_path().string();
}
std::string extension_of(const std::string& path) {
  return fs::path(path).extension().string();
}
std::string stem_of(const std::string& path) {
  return path.substr(0, path.rfind('.'));
}
std::string top_level_of(const std::string& path) {
  return path.substr(0, path.find('/'));
}

bool is_header(const std::string& path) {
  return extension_of(path) == ".h" || extension_of(path) == ".cuh";
}
bool is_source(const std::string& path) {
  return extension_of(path) == ".cc" || extension_of(path) == ".cu";
}
bool is_text(const std::string& path) {
  static const std::set<std::string> known = {".h",  ".cuh",  ".cc",  ".cu", ".cmake",
                                              ".sh", ".json", ".txt", ".md", ".py"};
  return known.contains(extension_of(path)) || path == ".ci/run";
}

std::string breach(const SourceFile& file, int line, const std::string& what) {
  return str_cat(file.path, ":", line, ": ", what);
}

// What a file is a part of: x.h, x_impl.h and x.cc of x.
std::string unit_of(const std::string& path) {
  const std::string stem = fs::path(path).stem().string();
  return stem.ends_with("_impl") ? stem.substr(0, stem.size() - 5) : stem;
}

int count_lines(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

std::string underscored(std::string path) {
  std::replace(path.begin(), path.end(), '/', '_');
  return path;
}

}  // namespace

bool is_cpp(const std::string& path) {
  return is_header(path) || is_source(path);
}

std::vector<SourceFile> read_tree(const fs::path& root) {
  std::vector<SourceFile> tree;
  for (auto entry = fs::recursive_directory_iterator(root); entry != fs::end(entry); ++entry) {
    const std::string path = fs::relative(entry->path(), root).generic_string();
    const std::string name = entry->path().filename().string();
    if (entry->is_directory()) {
      const bool hidden = name.starts_with('.') && path != ".ci";
      if (hidden || path == "build" || path == "tests/golden" || path == "examples/data") {
        entry.disable_recursion_pending();
      }
    } else if (is_text(path)) {
      std::ostringstream text;
      text << std::ifstream(entry->path()).rdbuf();
      tree.push_back({path, std::move(text).str()});
    }
  }
  std::sort(tree.begin(), tree.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return tree;
}

LayerMap::LayerMap(const std::string& layer_table, const std::vector<SourceFile>& tree) {
  static const std::regex row("\"([a-z_]+):([a-z_ ]*)\"");
  for (auto match = std::sregex_iterator(layer_table.begin(), layer_table.end(), row);
       match != std::sregex_iterator(); ++match) {
    std::istringstream names((*match)[2]);
    auto& allowed = allowed_[(*match)[1]];
    for (std::string name; names >> name;) allowed.insert(name);
  }
  for (const SourceFile& file : tree) {
    if (fs::path(file.path).filename() == "CMakeLists.txt") read_sources(file);
  }
}

void LayerMap::read_sources(const SourceFile& cmake_lists) {
  static const std::regex call(R"(fleet_add_library\(\s*([a-z_]+)([^)]*)\))");
  static const std::regex source(R"([\w/.]+\.(cc|cu)\b)");
  const std::string folder = folder_of(cmake_lists.path);
  const std::string& text = cmake_lists.text;
  for (auto library = std::sregex_iterator(text.begin(), text.end(), call);
       library != std::sregex_iterator(); ++library) {
    const std::string arguments = (*library)[2];
    for (auto name = std::sregex_iterator(arguments.begin(), arguments.end(), source);
         name != std::sregex_iterator(); ++name) {
      const std::string path = folder + "/" + name->str();
      listed_.insert(path);
      library_of_stem_[stem_of(path)] = (*library)[1];
    }
  }
  for (auto name = std::sregex_iterator(text.begin(), text.end(), source);
       name != std::sregex_iterator(); ++name) {
    listed_.insert(folder + "/" + name->str());
  }
}

std::string LayerMap::library_of(const std::string& path) const {
  std::string stem = stem_of(path);
  // A private header belongs to the library of the source that it is named after.
  if (stem.ends_with("_impl") && !library_of_stem_.contains(stem)) stem.resize(stem.size() - 5);
  if (const auto found = library_of_stem_.find(stem); found != library_of_stem_.end()) {
    return found->second;
  }
  for (std::string folder = folder_of(path); !folder.empty(); folder = folder_of(folder)) {
    if (std::string name = underscored(folder); allowed_.contains(name)) return name;
  }
  return "";
}

bool LayerMap::allows(const std::string& from, const std::string& to) const {
  const auto found = allowed_.find(from);
  return from == to || (found != allowed_.end() && found->second.contains(to));
}

Breaches check_function_lengths(const SourceFile& file) {
  if (!is_cpp(file.path) || file.path.starts_with("fluid/kernels/")) return {};
  Breaches breaches;
  for (const FunctionSpan& function : find_functions(file.text)) {
    if (function.lines <= kMaxFunctionLines) continue;
    breaches.push_back(breach(file, function.first_line,
                              str_cat("a function of ", function.lines, " lines (at most ",
                                      kMaxFunctionLines, "): ", function.head.substr(0, 60))));
  }
  return breaches;
}

Breaches check_source_length(const SourceFile& file) {
  const int lines = count_lines(file.text);
  if (!is_source(file.path) || lines <= kMaxSourceLines) return {};
  return {breach(file, lines,
                 str_cat("a source of ", lines, " lines (at most ", kMaxSourceLines,
                         "): give its parts files of their own"))};
}

Breaches check_layers(const SourceFile& file, const LayerMap& layers) {
  const std::string from = layers.library_of(file.path);
  if (!is_cpp(file.path) || from.empty()) return {};
  Breaches breaches;
  for (const IncludeLine& include : find_includes(file.text)) {
    if (!include.quoted) continue;
    const std::string to = layers.library_of(include.path);
    const bool umbrella = from == "fleet" && include.path == "fluid/fluid.h";
    if (umbrella || (!to.empty() && layers.allows(from, to))) continue;
    breaches.push_back(breach(file, include.line,
                              str_cat("library ", from, " may not include \"", include.path,
                                      "\"; cmake/FleetLayers.cmake has the table")));
  }
  return breaches;
}

Breaches check_listed(const SourceFile& file, const LayerMap& layers) {
  if (!is_source(file.path) || layers.library_of(file.path).empty()) return {};
  if (layers.is_listed(file.path)) return {};
  return {breach(file, 1, "no CMakeLists.txt names this source")};
}

Breaches check_public_header(const SourceFile& file, const LayerMap& layers) {
  static const std::regex foreign(
      R"(^(boost/|mpi\.h|dnnl|oneapi/|cuda|cublas|cudnn|cub/|nccl|thrust/))");
  const std::string library = layers.library_of(file.path);
  const bool is_public = is_header(file.path) && !library.empty() && library != "tools" &&
                         !stem_of(file.path).ends_with("_impl");
  if (!is_public) return {};
  Breaches breaches;
  for (const IncludeLine& include : find_includes(file.text)) {
    if (!include.path.ends_with("_impl.h") && !std::regex_search(include.path, foreign)) continue;
    breaches.push_back(
        breach(file, include.line,
               str_cat("<", include.path, "> in a public header; private ones are *_impl.h")));
  }
  return breaches;
}

Breaches check_header_habits(const SourceFile& file, const std::set<std::string>& headers) {
  if (is_header(file.path)) {
    if (file.text.find("#pragma once\n") != std::string::npos) return {};
    return {breach(file, 1, "no #pragma once")};
  }
  const std::string own = stem_of(file.path) + ".h";
  if (!is_source(file.path) || !headers.contains(own)) return {};
  const auto includes = find_includes(file.text);
  if (!includes.empty() && includes.front().path == own) return {};
  return {breach(file, 1, str_cat("its own header \"", own, "\" is not included first"))};
}

Breaches check_words(const SourceFile& file) {
  // In pieces, so that this file keeps its own rule.
  static const std::regex markers(
      "\\b(TO"
      "DO|FIX"
      "ME|XX"
      "X|HA"
      "CK)\\b|/(ho"
      "me|ro"
      "ot|Us"
      "ers|wo"
      "rk)/");
  Breaches breaches;
  std::istringstream lines(file.text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::smatch match;
    if (!std::regex_search(line, match, markers)) continue;
    breaches.push_back(breach(file, number, str_cat("'", match.str(), "' in the tree")));
  }
  return breaches;
}

Breaches check_dialect(const SourceFile& file) {
  struct Word {
    std::regex own;
    const char* known;
  };
  static const std::vector<Word> words = {
      {std::regex(R"(\b[Tt]he original('s)?\b|original_(form|schedules|program|tensor)|kOriginal)"),
       "Paddle"},
      {std::regex(R"(\b[Gg]radients of rows\b|GradientsOfRows)"), "sparse gradients"},
      {std::regex(R"(\brows that rise\b)"), "ascending rows"},
      {std::regex(R"(\b[Aa]ttendant|\bclass (Meter|Stay|Seat)\b)"),
       "status reporter, timer, scope, workspace"},
      {std::regex(R"(\bdeal_order\b)"), "dispatch order"},
      {std::regex(R"(\bask_apart)"), "separate get"},
      {std::regex(R"(\b(take|append|check)_followers\b)"), "post-update ops"},
      {std::regex(R"(\b[Ww]aiting_?[Rr]oom\b)"), "pending sessions"},
  };
  if (file.path == "LICENSE" || file.path.starts_with("tests/tree/")) return {};
  Breaches breaches;
  std::istringstream lines(file.text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    for (const Word& word : words) {
      std::smatch match;
      if (!std::regex_search(line, match, word.own)) continue;
      breaches.push_back(
          breach(file, number,
                 str_cat("'", match.str(), "' is the project's own word for: ", word.known)));
    }
  }
  return breaches;
}

Breaches check_folders(const std::vector<SourceFile>& tree) {
  std::map<std::string, int> sources;
  for (const SourceFile& file : tree) {
    if (is_cpp(file.path)) ++sources[folder_of(file.path)];
  }
  Breaches breaches;
  for (const auto& [folder, count] : sources) {
    if (count <= kMaxSourcesInFolder) continue;
    breaches.push_back(
        str_cat(folder, ": ", count, " sources in one folder (at most ", kMaxSourcesInFolder, ")"));
  }
  return breaches;
}

Breaches check_test_places(const std::vector<SourceFile>& tree) {
  std::map<std::string, std::set<std::string>> folders_of_unit;
  std::set<std::string> folders = {"faults", "fluid/mistakes", "tree"};  // the suites
  for (const SourceFile& file : tree) {
    if (file.path.starts_with("tests/")) continue;
    const std::string folder = folder_of(file.path);
    if (is_cpp(file.path)) folders_of_unit[unit_of(file.path)].insert(folder);
    for (fs::path at = folder; !at.empty(); at = at.parent_path()) folders.insert(at.string());
  }
  Breaches breaches;
  for (const SourceFile& file : tree) {
    if (!file.path.starts_with("tests/") || !file.path.ends_with("_test.cc")) continue;
    const std::string folder = fs::path(folder_of(file.path)).lexically_relative("tests").string();
    const std::string stem = fs::path(file.path).stem().string();
    const auto unit = folders_of_unit.find(stem.substr(0, stem.size() - 5));
    if (unit != folders_of_unit.end() && !unit->second.contains(folder)) {
      breaches.push_back(breach(file, 1,
                                str_cat(unit->first, " is in ", join(unit->second, ", "),
                                        ", so its test belongs below tests/ there")));
    } else if (!folders.contains(folder)) {
      breaches.push_back(breach(file, 1, str_cat("there is no folder ", folder, "/ to test")));
    }
  }
  return breaches;
}

Breaches check_top_level(const std::vector<SourceFile>& tree, const std::string& architecture) {
  std::set<std::string> folders;
  for (const SourceFile& file : tree) {
    if (file.path.find('/') != std::string::npos) folders.insert(top_level_of(file.path));
  }
  Breaches breaches;
  for (const std::string& folder : folders) {
    if (architecture.find("`" + folder + "/`") != std::string::npos) continue;
    breaches.push_back(str_cat(folder, "/: docs/architecture.md has no line with `", folder, "/`"));
  }
  return breaches;
}

}  // namespace fleet::tree
