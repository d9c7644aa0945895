#include "fluid/data/formats/datasets/record_exchange.h"

#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"
#include "fluid/data/formats/record_cache.h"

namespace fleet::fluid::data {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void throw_file(const fs::path& file, const char* what, const char* expected,
                             const std::string& got) {
  throw_error(ErrorCode::kInput,
              {.what = what,
               .where = "file " + file.string(),
               .expected = expected,
               .got = got,
               .fix = "give a folder on a file system that all workers share, and that has room"});
}

fs::path count_file(const fs::path& folder, int worker) {
  return folder / str_cat("records-of-", worker);
}
fs::path record_file(const fs::path& folder, int from, int to) {
  return folder / str_cat("records-from-", from, "-to-", to);
}

void write_count(const fs::path& folder, int worker, uint64_t count) {
  const fs::path file = count_file(folder, worker);
  if (std::ofstream(file) << count << std::flush) return;
  throw_file(file, "the number of records cannot be written", "a folder that can be written",
             std::generic_category().message(errno));
}

uint64_t read_count(const fs::path& folder, int worker) {
  const fs::path file = count_file(folder, worker);
  uint64_t count = 0;
  if (std::ifstream(file) >> count) return count;
  throw_file(file, "the number of another worker's records is not there",
             "the file that the worker wrote", fs::exists(file) ? "no number in it" : "no file");
}

// What this worker wrote; removed at the end, whatever that is.
class OwnFiles {
 public:
  OwnFiles() = default;
  ~OwnFiles() {
    std::error_code ignored;
    for (const fs::path& file : files_) fs::remove(file, ignored);
  }
  OwnFiles(const OwnFiles&) = delete;
  OwnFiles& operator=(const OwnFiles&) = delete;
  void add(fs::path file) { files_.push_back(std::move(file)); }

 private:
  std::vector<fs::path> files_;
};

// Calls `work(begin, end)` for each run of neighbours that belong to `to`.
template <class Work>
void each_run(int64_t records, uint64_t number, uint64_t seed, int to, int workers,
              const Work& work) {
  int64_t begin = 0;
  for (int64_t i = 0; i <= records; ++i) {
    if (i < records && worker_of_record(seed, number + static_cast<uint64_t>(i), workers) == to) {
      continue;
    }
    if (begin < i) work(begin, i);
    begin = i + 1;
  }
}

uint64_t records_of(const RecordBlocks& blocks) {
  uint64_t records = 0;
  for (const auto& block : blocks) records += static_cast<uint64_t>(block->records());
  return records;
}

void write_records(const RecordBlocks& blocks, const Slots& slots, uint64_t first, uint64_t seed,
                   int to, int workers, const fs::path& file) {
  CacheWriter writer(file, slots);
  for (const auto& block : blocks) {
    each_run(block->records(), first, seed, to, workers, [&](int64_t begin, int64_t end) {
      writer.append({block.get(), begin, end});
    });
    first += static_cast<uint64_t>(block->records());
  }
  writer.finish();
}

void read_records(const fs::path& file, const Slots& slots, RecordBlocks& blocks) {
  const RecordCache cache(file);
  if (*cache.slots() != *slots) {
    throw_file(file, "another worker's records have other slots", "the same slots in all workers",
               str_cat(cache.slots()->size(), " slots there, ", slots->size(), " here"));
  }
  for (int64_t group = 0; group < cache.groups(); ++group) {
    const RecordBatch& batch = cache.group(group);
    auto own = std::make_unique<RecordBatch>(slots);
    own->append({&batch, 0, batch.records()});
    blocks.push_back(std::move(own));
  }
}

}  // namespace

int worker_of_record(uint64_t seed, uint64_t record, int workers) {
  return static_cast<int>(mix64(mix64(seed) ^ record) % static_cast<uint64_t>(workers));
}

void keep_own(const RecordBatch& from, uint64_t number, uint64_t seed, int worker, int workers,
              RecordBatch& to) {
  each_run(from.records(), number, seed, worker, workers, [&](int64_t begin, int64_t end) {
    to.append({&from, begin, end});
  });
}

RecordBlocks exchange_records(RecordBlocks own, const Slots& slots, uint64_t seed, int worker,
                              int workers, const RecordExchange& exchange) {
  const fs::path& folder = exchange.folder;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw_file(folder, "the folder cannot be made", "a folder", error.message());
  OwnFiles files;
  files.add(count_file(folder, worker));
  write_count(folder, worker, records_of(own));
  exchange.meet();
  uint64_t first = 0;
  for (int other = 0; other < worker; ++other) first += read_count(folder, other);

  for (int other = 0; other < workers; ++other) {
    if (other == worker) continue;
    files.add(record_file(folder, worker, other));
    write_records(own, slots, first, seed, other, workers, record_file(folder, worker, other));
  }
  RecordBlocks kept;
  for (auto& block : own) {
    auto mine = std::make_unique<RecordBatch>(slots);
    keep_own(*block, first, seed, worker, workers, *mine);
    first += static_cast<uint64_t>(block->records());
    block.reset();
    kept.push_back(std::move(mine));
  }
  exchange.meet();
  RecordBlocks all;
  for (int other = 0; other < workers; ++other) {
    if (other == worker) {
      for (auto& block : kept) all.push_back(std::move(block));
    } else {
      read_records(record_file(folder, other, worker), slots, all);
    }
  }
  exchange.meet();
  std::erase_if(all, [](const auto& block) { return block->records() == 0; });
  return all;
}

}  // namespace fleet::fluid::data
