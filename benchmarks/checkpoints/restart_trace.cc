#include "benchmarks/checkpoints/restart_trace.h"

#include <fstream>
#include <sstream>

#include "base/error.h"

namespace fleet::benchmarks {

void RestartTrace::read() {
  std::ifstream file(file_);
  file.seekg(offset_);
  std::string line;
  // A last line without an end is still being written.
  while (std::getline(file, line) && !file.eof()) {
    offset_ += static_cast<int64_t>(line.size()) + 1;
    take(line);
  }
}

void RestartTrace::take(const std::string& line) {
  std::istringstream fields(line);
  size_t number = 0;
  std::string what;
  int64_t count = 0;
  double seconds = 0;
  fields >> number >> what >> count >> seconds;
  if (number >= attempts_.size()) attempts_.resize(number + 1);
  Attempt& attempt = attempts_[number];
  if (fields && what == "step") {
    attempt.steps.emplace_back(count, seconds);
  } else if (fields && what == "start") {
    attempt.process = static_cast<int>(count);
    attempt.start_s = seconds;
  } else if (fields && what == "from") {
    attempt.from = count;
    attempt.from_s = seconds;
  } else {
    throw_error(ErrorCode::kCorruptFile, {.what = "a line of a worker's trace is not readable",
                                          .where = file_,
                                          .expected = "ATTEMPT start|from|step NUMBER SECONDS",
                                          .got = line});
  }
}

}  // namespace fleet::benchmarks
