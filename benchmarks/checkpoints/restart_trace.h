// What a worker of a job that is started again writes of itself while it runs: lines
// "ATTEMPT WHAT NUMBER SECONDS" of one file, over all attempts. WHAT is
//   start   NUMBER is its process; SECONDS is when its program began
//   from    the step that it goes on from, when it is loaded
//   step    steps that are over
// Seconds are of the steady clock, which all processes of a machine share.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fleet::benchmarks {

class RestartTrace {
 public:
  struct Attempt {
    int process = 0;
    double start_s = 0;
    int64_t from = 0;
    double from_s = 0;
    std::vector<std::pair<int64_t, double>> steps;  // and when each was over

    int64_t highest() const { return steps.empty() ? 0 : steps.back().first; }
  };

  explicit RestartTrace(std::string file) : file_(std::move(file)) {}

  // Reads what has been written since; nothing where there is no file yet. Throws for a line that
  // is none of these.
  void read();
  // By number. One that left no line is empty.
  const std::vector<Attempt>& attempts() const { return attempts_; }

 private:
  void take(const std::string& line);

  std::string file_;
  int64_t offset_ = 0;
  std::vector<Attempt> attempts_;
};

}  // namespace fleet::benchmarks
