#include "tools/make_criteo/click_files.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <zlib.h>

#include "base/error.h"
#include "base/strings.h"
#include "tools/make_criteo/area_under_curve.h"

namespace fleet::tools {
namespace {

constexpr uint64_t kFirstTest = uint64_t{1} << 61;  // number of the first test record
constexpr size_t kBlock = size_t{1} << 20;
constexpr uint64_t kMostRecords = uint64_t{1} << 32;

template <class Number>
void require(bool holds, const char* field, std::string expected, Number got) {
  if (holds) return;
  throw_error(ErrorCode::kInvalidArgument, {.what = "such files cannot be made",
                                            .where = str_cat("--", field),
                                            .expected = std::move(expected),
                                            .got = str_cat(got),
                                            .fix = "see --help"});
}

[[noreturn]] void throw_unwritable(const std::filesystem::path& path,
                                   const std::string& why = std::strerror(errno)) {
  throw_error(ErrorCode::kInput, {.what = "the file cannot be written",
                                  .where = "file " + path.string(),
                                  .expected = "a folder that can be written, with room",
                                  .got = why,
                                  .fix = "check the folder and the space left"});
}

// Plain or packed text.
class TextFile {
 public:
  TextFile(std::filesystem::path path, bool gzip)
      : path_(std::move(path)), file_(gzopen(path_.c_str(), gzip ? "wb6" : "wbT"), gzclose) {
    if (!file_) throw_unwritable(path_);
  }
  void append(const std::string& text) {
    const auto size = static_cast<unsigned>(text.size());
    if (size > 0 && gzwrite(file_.get(), text.data(), size) != static_cast<int>(size)) {
      throw_unwritable(path_);
    }
  }
  void close() {
    if (gzclose(file_.release()) != Z_OK) throw_unwritable(path_);
  }

 private:
  std::filesystem::path path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
};

// Probabilities of the records that were clicked, and of the others.
struct Scores {
  std::vector<double> clicked;
  std::vector<double> others;
};

struct Part {
  const char* name;
  uint64_t first;  // number of its first record
  uint64_t records;
  int files;
};

std::string file_name(const Part& part, int file, bool gzip) {
  std::string number = std::to_string(file);
  number.insert(0, number.size() < 3 ? 3 - number.size() : 0, '0');
  return str_cat(part.name, "-", number, gzip ? ".gz" : "");
}

void write_file(const ClickModel& model, const ClickFiles& files, const Part& part, int file,
                Scores& scores) {
  const auto count = static_cast<uint64_t>(part.files);
  const auto at = static_cast<uint64_t>(file);
  const uint64_t begin = part.records / count * at + std::min(at, part.records % count);
  const uint64_t end = begin + part.records / count + (at < part.records % count ? 1 : 0);
  TextFile out(files.folder / file_name(part, file, files.gzip), files.gzip);
  std::string text;
  for (uint64_t i = begin; i < end; ++i) {
    const ClickRecord record = model.record(part.first + i);
    (record.click ? scores.clicked : scores.others).push_back(record.probability);
    append_line(record, text);
    if (text.size() < kBlock) continue;
    out.append(text);
    text.clear();
  }
  out.append(text);
  out.close();
}

void append_all(std::vector<double>& to, const std::vector<double>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

ClickPart write_part(const ClickModel& model, const ClickFiles& files, const Part& part) {
  std::atomic<int> next = 0;
  std::mutex mutex;  // guards what follows
  Scores all;
  std::exception_ptr failure;
  const auto work = [&] {
    Scores own;
    try {
      for (int file = next++; file < part.files; file = next++) {
        write_file(model, files, part, file, own);
      }
    } catch (...) {
      next = part.files;
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    append_all(all.clicked, own.clicked);
    append_all(all.others, own.others);
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < std::min(files.threads, part.files); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);

  ClickPart written{.files = {}, .records = part.records, .clicks = all.clicked.size()};
  for (int file = 0; file < part.files; ++file) {
    written.files.push_back(file_name(part, file, files.gzip));
  }
  written.best_auc = area_under_curve(all.clicked, all.others);
  return written;
}

// Where no files are but those that are written: others would be read with them.
void make_folder(const ClickFiles& files, const std::vector<Part>& parts) {
  std::error_code error;
  std::filesystem::create_directories(files.folder, error);
  if (error) throw_unwritable(files.folder, error.message());
  std::set<std::string> own;
  for (const Part& part : parts) {
    for (int i = 0; i < part.files; ++i) own.insert(file_name(part, i, files.gzip));
  }
  const std::filesystem::directory_iterator there(files.folder, error);
  if (error) throw_unwritable(files.folder, error.message());
  for (const auto& entry : there) {
    const std::string name = entry.path().filename().string();
    if (own.contains(name) || !(name.starts_with("part-") || name.starts_with("test-"))) continue;
    throw_error(ErrorCode::kInput, {.what = "the folder has files of clicks that stay",
                                    .where = "folder " + files.folder.string(),
                                    .expected = "an empty folder, or files of the same names",
                                    .got = name,
                                    .fix = "take them away, or give another folder"});
  }
}

nlohmann::json json_of(const ClickPart& part) {
  return {{"files", part.files},
          {"records", part.records},
          {"clicks", part.clicks},
          {"best_auc", part.best_auc}};
}

template <class T>
void append_number(T value, int base, std::string& text) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, base).ptr;
  text.append(digits.data(), end);
}

}  // namespace

void append_line(const ClickRecord& record, std::string& text) {
  text.push_back(record.click ? '1' : '0');
  for (const auto& number : record.numbers) {
    text.push_back('\t');
    if (number) append_number(*number, 10, text);
  }
  for (const auto& category : record.categories) {
    text.push_back('\t');
    if (!category) continue;
    const size_t begin = text.size();
    append_number(*category, 16, text);
    text.insert(begin, 8 - (text.size() - begin), '0');
  }
  text.push_back('\n');
}

ClickReport write_click_files(const ClickModel& model, const ClickFiles& files) {
  require(files.records <= kMostRecords, "records", str_cat("at most ", kMostRecords),
          files.records);
  require(files.test_records <= kMostRecords, "test_records", str_cat("at most ", kMostRecords),
          files.test_records);
  const std::pair<const char*, int> counts[] = {
      {"files", files.files}, {"test_files", files.test_files}, {"threads", files.threads}};
  for (const auto& [field, count] : counts) {
    require(count >= 1 && count <= 100000, field, "1 to 100000", count);
  }
  const Part train = {"part", 0, files.records, files.files};
  const Part test = {"test", kFirstTest, files.test_records, files.test_files};
  make_folder(files, {train, test});
  return {.train = write_part(model, files, train), .test = write_part(model, files, test)};
}

std::string report_json(const ClickReport& report, const ClickOptions& options) {
  const nlohmann::json json = {{"train", json_of(report.train)},
                               {"test", json_of(report.test)},
                               {"options",
                                {{"seed", options.seed},
                                 {"ids", options.ids},
                                 {"zipf", options.zipf},
                                 {"strength", options.strength},
                                 {"click_rate", options.click_rate},
                                 {"missing", options.missing}}}};
  return json.dump(1) + "\n";
}

}  // namespace fleet::tools
