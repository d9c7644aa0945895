// Resident memory of this process, in kilobytes.
#pragma once

#include <fstream>
#include <string>

namespace fleet::benchmarks {

// A field of /proc/self/status, such as "VmHWM"; 0 where there is none.
inline long memory_now(const std::string& field) {
  std::ifstream status("/proc/self/status");
  long kilobytes = 0;
  for (std::string word; status >> word;) {
    if (word == field + ":") status >> kilobytes;
  }
  return kilobytes;
}

// The peak from its beginning on.
class PeakMemory {
 public:
  PeakMemory() {
    std::ofstream("/proc/self/clear_refs") << "5";
    before_ = memory_now("VmRSS");
  }
  // Above what there was at the beginning.
  long risen() const { return memory_now("VmHWM") - before_; }

 private:
  long before_ = 0;
};

}  // namespace fleet::benchmarks
