#include "benchmarks/tables/table_files.h"

#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/process/file_descriptor.h"
#include "base/strings.h"
#include "benchmarks/handwritten/plain_files.h"
#include "benchmarks/harness/temporary_folder.h"
#include "benchmarks/tables/table_rows.h"
#include "fluid/tables/growing_table.h"
#include "fluid/tables/table_loading.h"
#include "fluid/tables/table_saver.h"

namespace fleet::benchmarks {
namespace {

using namespace fluid::tables;

constexpr int kRounds = 5;
constexpr uint64_t kRows = 4'000'000;

TableOptions options_of() {
  return {.name = "files", .seed = 1, .width = kTableWidth};
}

// A table, its file, and a plain file of as many bytes in a folder of its own.
class Files {
 public:
  Files() : table_(options_of()) {
    constexpr uint64_t kAtOnce = 50'000;
    std::vector<float> values(kAtOnce * kTableWidth);
    std::vector<uint64_t> ids(kAtOnce);
    for (uint64_t rank = 0; rank < kRows; rank += kAtOnce) {
      for (uint64_t i = 0; i < kAtOnce; ++i) ids[i] = id_of_rank(rank + i);
      table_.rows(ids, values.data());
    }
    save_s();
    bytes_ = std::filesystem::file_size(table_file());
  }

  double save_s() {
    return seconds_of([&] { save_table(table_, table_file()); });
  }
  double load_s(bool cached) {
    if (!cached) leave_to_disk(table_file());
    GrowingTable loaded(options_of());
    const std::vector<std::filesystem::path> files = {table_file()};
    return seconds_of([&] { load_table(loaded, files); });
  }
  double write_plain_s() { return write_plain_file_s(plain_.file(""), bytes_); }
  double read_plain_s(bool cached) {
    if (!cached) leave_to_disk(plain_.file("part0"));
    return read_plain_files_s(plain_.file(""), 1, bytes_);
  }
  // GB a second.
  double rate(double seconds) const { return 1e-9 * static_cast<double>(bytes_) / seconds; }

 private:
  static double seconds_of(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  // The page cache forgets the file.
  static void leave_to_disk(const std::string& path) {
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
  std::string table_file() const { return ours_.file("table"); }

  TemporaryFolder ours_;
  TemporaryFolder plain_;
  GrowingTable table_;
  size_t bytes_ = 0;
};

Row row_against(const char* peer, const char* note) {
  return {.unit = "GB/s",
          .peer = peer,
          .kind = BenchPeer::kLimit,
          .target = 0.7,
          .note = str_cat(kRows / 1'000'000, " M rows of ", kTableWidth, " floats, one thread, ",
                          note)};
}

}  // namespace

Row table_save(const Rounds& rounds) {
  Files files;
  Row row = row_against("plain write", "with syncs of file and folder");
  row.take(rounds.pairs(
      kRounds, [&] { return files.rate(files.save_s()); },
      [&] { return files.rate(files.write_plain_s()); }));
  return row;
}

Row table_load(const Rounds& rounds, bool cached) {
  Files files;
  files.write_plain_s();
  Row row = row_against("plain read", cached ? "file in the page cache" : "file on the disk only");
  if (cached) row.target.reset();
  row.take(rounds.pairs(
      kRounds, [&] { return files.rate(files.load_s(cached)); },
      [&] { return files.rate(files.read_plain_s(cached)); }));
  return row;
}

}  // namespace fleet::benchmarks
