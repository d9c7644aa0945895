#include "fluid/data/formats/file_list.h"

#include <algorithm>
#include <glob.h>
#include <immintrin.h>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/philox.h"
#include "base/strings.h"

namespace fleet::fluid::data {
namespace {

class Glob {
 public:
  explicit Glob(const std::string& pattern)
      : found_(::glob(pattern.c_str(), GLOB_ERR | GLOB_NOSORT, nullptr, &paths_)) {}
  ~Glob() { globfree(&paths_); }
  Glob(const Glob&) = delete;
  Glob& operator=(const Glob&) = delete;

  std::vector<std::string> sorted() const {
    std::vector<std::string> files;
    if (found_ == 0) files.assign(paths_.gl_pathv, paths_.gl_pathv + paths_.gl_pathc);
    std::sort(files.begin(), files.end());  // glob's own order depends on the locale
    return files;
  }

 private:
  glob_t paths_{};
  int found_;
};

}  // namespace

std::vector<std::string> expand_files(std::span<const std::string> names) {
  std::vector<std::string> files;
  for (const std::string& name : names) {
    if (name.find_first_of("*?[") == std::string::npos) {
      files.push_back(name);
      continue;
    }
    std::vector<std::string> found = Glob(name).sorted();
    if (found.empty()) {
      throw_error(ErrorCode::kInvalidArgument,
                  {.what = "no file matches a pattern of the file list",
                   .where = str_cat("pattern ", name),
                   .expected = "at least one file, in folders that can be read",
                   .fix = "check the folder; a file whose name has *, ? or [ is matched by [*]"});
    }
    files.insert(files.end(), std::make_move_iterator(found.begin()),
                 std::make_move_iterator(found.end()));
  }
  return files;
}

std::vector<std::string> split_files(std::span<const std::string> files, int worker, int workers) {
  if (workers < 1 || worker < 0 || worker >= workers) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "there is no such worker to give files to",
                 .where = "split_files",
                 .expected = "0 <= worker < workers",
                 .got = str_cat("worker ", worker, " of ", workers),
                 .fix = "pass the worker's index and the number of workers"});
  }
  const size_t each = files.size() / static_cast<size_t>(workers);
  const size_t more = files.size() % static_cast<size_t>(workers);
  const auto index = static_cast<size_t>(worker);
  const auto part = files.subspan(index * each + std::min(index, more), each + (index < more));
  return {part.begin(), part.end()};
}

std::vector<uint64_t> shuffled(uint64_t n, uint64_t seed) {
  std::vector<uint64_t> order(n);
  std::iota(order.begin(), order.end(), uint64_t{0});
  const RandomKey key = RandomKey::of(seed, "shuffled");
  for (uint64_t left = n; left > 1; --left) {
    const auto words = philox(key, left, 0);
    const uint64_t random = uint64_t{words[0]} << 32 | words[1];
    // The upper half of the product: uniform but for a share of left / 2^64.
    unsigned long long at = 0;
    _mulx_u64(random, left, &at);
    std::swap(order[left - 1], order[at]);
  }
  return order;
}

}  // namespace fleet::fluid::data
