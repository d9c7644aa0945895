// The rules that every file of the project keeps. Each returns what breaks it, one line a breach:
// "path:line: what".
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace fleet::tree {

inline constexpr int kMaxFunctionLines = 70;
inline constexpr int kMaxSourceLines = 900;
inline constexpr int kMaxSourcesInFolder = 30;

struct SourceFile {
  std::string path;  // from the project's root, with '/'
  std::string text;
};

using Breaches = std::vector<std::string>;

// Every file of the project but build folders, hidden folders and data, sorted by path.
std::vector<SourceFile> read_tree(const std::filesystem::path& root);

// Which library a file belongs to, and which libraries may be included from it.
class LayerMap {
 public:
  // From the text of cmake/FleetLayers.cmake and the CMakeLists.txt files of the tree.
  LayerMap(const std::string& layer_table, const std::vector<SourceFile>& tree);

  // The library's name, such as fluid_core; empty for what belongs to none (tests, examples).
  std::string library_of(const std::string& path) const;
  bool allows(const std::string& from, const std::string& to) const;
  bool is_listed(const std::string& source_path) const { return listed_.contains(source_path); }

 private:
  void read_sources(const SourceFile& cmake_lists);

  std::map<std::string, std::set<std::string>> allowed_;
  std::map<std::string, std::string> library_of_stem_;  // "transport/link/link"
  std::set<std::string> listed_;
};

bool is_cpp(const std::string& path);

// Functions of at most 70 lines; kernels excepted.
Breaches check_function_lengths(const SourceFile& file);
// A .cc or .cu of at most 900 lines: longer ones are several things. No class is cut in two to
// obey a smaller bound.
Breaches check_source_length(const SourceFile& file);
// Quoted includes that obey the layer table and lead to no test, tool or example.
Breaches check_layers(const SourceFile& file, const LayerMap& layers);
// A library's source that no CMakeLists.txt names is dead.
Breaches check_listed(const SourceFile& file, const LayerMap& layers);
// No Boost, MPI, oneDNN, CUDA or NCCL header, and no *_impl.h, in a public header: one that is not
// *_impl.h. Public headers are installed, private ones are not.
Breaches check_public_header(const SourceFile& file, const LayerMap& layers);
// #pragma once in headers; own header first in sources.
Breaches check_header_habits(const SourceFile& file, const std::set<std::string>& headers);
// No markers of unfinished work, no paths of somebody's home.
Breaches check_words(const SourceFile& file);
// None of the words that only this project had for what Paddle and PyTorch have names for.
Breaches check_dialect(const SourceFile& file);
// At most 30 sources a folder, headers counted.
Breaches check_folders(const std::vector<SourceFile>& tree);
// A test lies where the tree has what it tests: x_test.cc in tests/ before the folder of x.h,
// x_impl.h or x.cc, where there is one, and every other in tests/ before a folder of the tree, save
// suites that cross it.
Breaches check_test_places(const std::vector<SourceFile>& tree);
// Every top-level folder has its line in docs/architecture.md.
Breaches check_top_level(const std::vector<SourceFile>& tree, const std::string& architecture);

}  // namespace fleet::tree
