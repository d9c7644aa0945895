// Files of made-up clicks in the format of Criteo's logs, and how well they can be told.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/make_criteo/click_model.h"

namespace fleet::tools {

struct ClickFiles {
  std::filesystem::path folder;  // made where there is none
  uint64_t records = 100000;     // to train on, in all files together
  uint64_t test_records = 20000;
  int files = 4;
  int test_files = 1;
  bool gzip = false;
  int threads = 1;  // that write files
};

// One of the two parts of a set.
struct ClickPart {
  std::vector<std::string> files;  // names in the folder
  uint64_t records = 0;
  uint64_t clicks = 0;
  // Of the true probabilities, held against the clicks that were drawn: what nobody can be better
  // than, but by chance.
  double best_auc = 0;
};

struct ClickReport {
  ClickPart train;
  ClickPart test;
};

// Writes part-000 … and test-000 … (with ".gz" behind it): a line a record, of a label, 13 numbers
// and 26 categories as 8 hexadecimal digits, between tabs; cells may be empty. Takes 8 bytes for
// each record of a part. Throws ResourceError where a file cannot be written, UsageError for counts
// that cannot be.
ClickReport write_click_files(const ClickModel& model, const ClickFiles& files);

// {"train": {"files": …, "records": …, "clicks": …, "best_auc": …}, "test": {…}, "options": {…}}
std::string report_json(const ClickReport& report, const ClickOptions& options);

// A record as a line, with its end.
void append_line(const ClickRecord& record, std::string& text);

}  // namespace fleet::tools
