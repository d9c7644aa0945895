// Text of training data, parsed by one thread into batches of records: against `wc -l`, which reads
// the file and does nothing else, and against pyarrow's CSV reader on one thread. Files are in the
// page cache, and rates are of processor time, because other processes share these cores.

#include <array>
#include <charconv>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"
#include "benchmarks/harness/harness.h"
#include "benchmarks/harness/temporary_folder.h"
#include "benchmarks/peers/python.h"
#include "fluid/data/formats/parsers/criteo.h"
#include "fluid/data/formats/parsers/multi_slot.h"
#include "fluid/data/formats/records.h"

namespace fleet::benchmarks {
namespace {

namespace data = fluid::data;

constexpr int kRounds = 7;
constexpr int kArrowRounds = 3;
constexpr size_t kFileBytes = size_t{200} << 20;
constexpr double kSeconds = 0.3;
constexpr int kDense = data::kCriteoDense;
constexpr int kSlots = data::kCriteoCategories;

// Drawn numbers, one after the other.
class Draws {
 public:
  uint64_t next() { return mix64(state_++); }
  double uniform() { return 0x1p-53 * static_cast<double>(next() >> 11); }
  // Small mostly, of up to `digits` digits.
  uint64_t skewed(int digits) {
    uint64_t bound = 1;
    for (auto i = static_cast<int>(uniform() * digits); i >= 0; --i) bound *= 10;
    return next() % bound;
  }

 private:
  uint64_t state_ = 1;
};

void append_number(std::string& line, uint64_t number, int base = 10) {
  std::array<char, 24> digits{};
  const char* end = std::to_chars(digits.data(), digits.data() + digits.size(), number, base).ptr;
  line.append(digits.data(), static_cast<size_t>(end - digits.data()));
}

// Cells are as often empty, and numbers about as long, as in Criteo's logs.
void criteo_line(Draws& draws, std::string& line) {
  line += draws.uniform() < 0.25 ? '1' : '0';
  for (int i = 0; i < kDense; ++i) {
    line += '\t';
    if (draws.uniform() < 0.2) continue;
    if (i == 1 && draws.uniform() < 0.1) line += '-';
    append_number(line, draws.skewed(i == 4 ? 6 : 3));
  }
  for (int i = 0; i < kSlots; ++i) {
    line += '\t';
    if (draws.uniform() < 0.08) continue;
    std::string digits = hex_digits(draws.next() >> 32);
    line += digits.substr(8);
  }
  line += '\n';
}

// 13 floats, 26 slots of one id (so that it is a table, too), a label.
void multi_slot_line(Draws& draws, std::string& line) {
  append_number(line, kDense);
  for (int i = 0; i < kDense; ++i) {
    line += " 0.";
    const std::string digits = std::to_string(1000000 + draws.next() % 1000000);
    line += digits.substr(1);
  }
  for (int i = 0; i < kSlots; ++i) {
    line += " 1 ";
    append_number(line, draws.skewed(10));
  }
  line += draws.uniform() < 0.25 ? " 1 1\n" : " 1 0\n";
}

class TextFile {
 public:
  explicit TextFile(const std::function<void(Draws&, std::string&)>& append_line)
      : path_(folder_.file("text")) {
    Draws draws;
    std::ofstream file(path_, std::ios::binary);
    std::string block;
    while (bytes_ < kFileBytes) {
      block.clear();
      for (int i = 0; i < 1000; ++i) append_line(draws, block);
      lines_ += 1000;
      bytes_ += block.size();
      file << block;
    }
    if (!file.flush()) {
      throw_error(ErrorCode::kInput, {.what = "a file of text cannot be written",
                                      .where = path_,
                                      .fix = "make room in the folder of temporary files"});
    }
  }
  const std::string& path() const { return path_; }
  double bytes() const { return static_cast<double>(bytes_); }
  int64_t lines() const { return lines_; }

 private:
  TemporaryFolder folder_;
  std::string path_;
  size_t bytes_ = 0;
  int64_t lines_ = 0;
};

// GB a second of reading and parsing the whole file.
double parse_rate(const data::RecordParser& parser, const TextFile& file) {
  data::RecordBatch batch(parser.slots());
  data::TextBuffer block;
  data::BadLines bad;
  const auto parse = [&] {
    int64_t records = 0;
    data::BlockReader reader(file.path(), data::whole_lines, {});
    while (reader.next(block)) {
      batch.clear();
      parser.parse(block.text(), "", batch, bad);
      records += batch.records();
    }
    if (records == file.lines()) return;
    throw_error(ErrorCode::kInternal, {.what = "records of the file are missing"});
  };
  return 1e-9 * file.bytes() * rate_of(kSeconds, parse).processor;
}

double children_s() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double wc_rate(const TextFile& file) {
  constexpr int kRuns = 4;
  const double before = children_s();
  for (int i = 0; i < kRuns; ++i) run_to_success({"/usr/bin/env", "wc", "-l", file.path()});
  return 1e-9 * kRuns * file.bytes() / (children_s() - before);
}

Row against_wc(const Rounds& rounds, const data::RecordParser& parser, const TextFile& file) {
  Row row = {.unit = "GB/s",
             .peer = "wc -l",
             .kind = BenchPeer::kLimit,
             .target = 0.1,
             .note = "one thread, processor time, file in the page cache"};
  row.take(rounds.pairs(
      kRounds, [&] { return parse_rate(parser, file); }, [&] { return wc_rate(file); }));
  return row;
}

Row against_arrow(const Rounds& rounds, const data::RecordParser& parser, const TextFile& file,
                  const std::string& kind) {
  Row row = {.unit = "GB/s",
             .peer = "pyarrow's CSV reader",
             .target = 1.0,
             .note = "one thread, processor time, file in the page cache"};
  row.skipped = missing({.module = "pyarrow.csv", .name = "pyarrow", .install = "pyarrow"});
  if (!row.skipped.empty()) return row;
  row.take(rounds.pairs(
      kArrowRounds, [&] { return parse_rate(parser, file); },
      [&] {
        return 1e-9 * run_python("arrow_csv.py", {kind, file.path()}).front();
      }));
  return row;
}

data::MultiSlotParser multi_slot_parser() {
  std::vector<data::MultiSlotField> fields = {
      {data::SlotSpec::dense("dense_input", data::SlotType::kFloat, {kDense})}};
  for (int i = 1; i <= kSlots; ++i) fields.push_back({data::SlotSpec::sparse(str_cat("C", i))});
  fields.push_back({data::SlotSpec::dense("label", data::SlotType::kId, {1})});
  return data::MultiSlotParser(std::move(fields));
}

Row parse_criteo(const Rounds& rounds) {
  return against_wc(rounds, data::CriteoParser(), TextFile(criteo_line));
}
Row parse_multislot(const Rounds& rounds) {
  return against_wc(rounds, multi_slot_parser(), TextFile(multi_slot_line));
}
Row parse_criteo_arrow(const Rounds& rounds) {
  return against_arrow(rounds, data::CriteoParser(), TextFile(criteo_line), "criteo");
}
Row parse_multislot_arrow(const Rounds& rounds) {
  return against_arrow(rounds, multi_slot_parser(), TextFile(multi_slot_line), "multislot");
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  using namespace fleet::benchmarks;
  return bench_main(argc, argv, "Parsing of text files, one thread.",
                    {{"parse_criteo", parse_criteo},
                     {"parse_multislot", parse_multislot},
                     {"parse_criteo_arrow", parse_criteo_arrow},
                     {"parse_multislot_arrow", parse_multislot_arrow}});
}
