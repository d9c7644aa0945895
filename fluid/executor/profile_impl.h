// Where the time of steps goes, op by op: a table for people, and a trace for chrome://tracing and
// Perfetto. FLAGS_profile=<folder> makes every executor keep one, shared with the executors that it
// shares its plans with, and write both files when the last of them is gone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "fluid/program/operator.h"

namespace fleet::fluid {

// Any thread may add.
class Profile {
 public:
  struct Call {
    std::string type;           // of the op, or "wait": until communication is done
    std::string makes;          // the first variable that it writes
    std::string place = "cpu";  // where it ran; of a copy between places "to cpu", "to cuda:0"
    TimePoint begin;
    TimePoint end;
    uint64_t step = 0;
    double bytes = 0;  // of tensors that it reads and writes
    double flops = 0;  // 0 for an op whose arithmetic is not counted
  };
  // All calls of one type at one place.
  struct Row {
    std::string type;
    std::string place;
    uint64_t count = 0;
    double seconds = 0;
    double share = 0;  // of all rows
    double bytes = 0;
    double flops = 0;
  };

  // With a folder, the files profile_<pid>_<n>.{txt,json} are written there at the end, if there
  // was a call; n is the first number that is free. An error is said on stderr.
  explicit Profile(std::filesystem::path folder = {}) : folder_(std::move(folder)) {}
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  void add(Call call);

  // The slowest type first. Time spent in an op that runs a block is told twice, for the op and for
  // the ops of its block.
  std::vector<Row> rows() const;
  // Rows as text: count, total and mean time, share, bytes, GFLOP/s; with the place where one is
  // not "cpu".
  std::string table() const;
  // Every call as an event, in Chrome's trace format; only the first kMostEvents are kept.
  std::string trace() const;

  static constexpr size_t kMostEvents = 200'000;

 private:
  struct Event {
    Call call;
    size_t thread = 0;
  };
  void write() const;

  std::filesystem::path folder_;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Row> rows_;  // by type and place
  std::vector<Event> events_;
  std::unordered_map<std::thread::id, size_t> threads_;
};

}  // namespace fleet::fluid
