// What a launcher knows of a running job, from the lines that its processes write, and how it
// shows it: one line while the job runs, a table at its end, or JSON. docs/operations.md lists the
// keys of the lines.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "launch/job.h"
#include "launch/restarts/attempt_history.h"

namespace fleet::launch {

class ProgressBoard {
 public:
  // `history` may be null and outlives the board: the attempts of the job, of which the last one
  // is the board's. Times are counted from the first.
  ProgressBoard(int workers, int servers, TimePoint start, const AttemptHistory* history = nullptr);

  // "progress key=value …" of one process, or "stall who=worker/1 phase=… step=… for_s=…
  // waiting=worker/0,…" of the one that knows whom the job waits for; it counts for as long as it
  // is repeated. Returns whether the line was one; keys and values that make no sense are ignored.
  bool update(Role role, int index, std::string_view line, TimePoint now);
  void worker_ended() { ++ended_; }
  // Of this attempt.
  const StepsSeen& steps_seen() const { return steps_seen_; }

  // "12.0 s  2 workers, 1 server  step 120/1001  loss 0.5  840 steps/s  26880 samples/s
  // staleness 1.0  slowest worker 1 (step 96)  busiest server 0 (34 %)  ETA 1.1 s". What nobody
  // said is left out. Steps and samples are those of all workers together.
  std::string line(TimePoint now) const;
  // For each worker its steps and where its time went, for each server its bytes, updates and how
  // busy it was, and each restart. Empty when nobody said anything.
  std::string summary(TimePoint now) const;
  // "2 restarts (3.4 s lost, 12 steps repeated)"; empty before the first.
  std::string restarts_text(TimePoint now) const;
  // For each process that told of a value that is not finite, the first one first: "worker 1: the
  // loss 'mean_0.tmp_0' is nan at step 12".
  std::vector<std::string> nonfinite() const;
  // The same as one line of JSON; `final` marks the last.
  std::string json(TimePoint now, bool final) const;

 private:
  // A value that grows, and how fast it has grown of late.
  struct Growing {
    std::optional<double> value;
    std::optional<double> per_second;
    double window_value = 0;
    TimePoint window_start{};
    bool begun = false;

    void update(double now_value, TimePoint now);
  };
  struct Process {
    std::map<std::string, double, std::less<>> numbers;  // as last said
    // What it told of a value that is not finite, by key without "nonfinite"; the first counts.
    std::map<std::string, std::string> nonfinite;
    Growing steps;
    Growing samples;
    Growing cpu_seconds;
    TimePoint first{};
    TimePoint last{};
    bool spoke = false;

    std::optional<double> number(std::string_view key) const;
    std::optional<double> steps_per_second() const;
    // Seconds that it waited for others, of all that it told about; none when it told nothing.
    std::optional<double> wait_share() const;
    std::optional<double> share(std::string_view key) const;
    std::optional<double> busy_so_far() const;
  };
  // Whom the job waits for.
  struct Stall {
    std::string who;  // "worker 1"
    std::string phase;
    double step = 0;
    double for_s = 0;
    std::vector<std::string> waiting;
    TimePoint said{};
  };
  struct Totals {
    std::optional<double> steps_per_second;
    std::optional<double> samples_per_second;
    std::optional<double> staleness;
    std::optional<double> seconds_left;
    std::optional<int> slowest;
    std::optional<int> busiest;
  };

  std::vector<Restart> restarts(TimePoint now) const;
  std::string growing_tables() const;
  std::string restart_table(TimePoint now) const;
  void add_restarts(nlohmann::ordered_json& root, TimePoint now) const;
  static std::string nonfinite_text(const Process& process);
  static nlohmann::ordered_json to_json(int index, const Process& process, bool final);
  Totals totals() const;
  std::optional<double> seconds_left() const;
  std::optional<double> mean_staleness() const;
  std::optional<int> slowest() const;
  std::optional<int> busiest() const;
  std::string slowest_text(int worker) const;
  bool update_stall(const std::vector<std::string>& words, TimePoint now);
  const Stall* stall(TimePoint now) const;
  std::string stall_text(TimePoint now) const;

  int worker_num_;
  int server_num_;
  int ended_ = 0;
  const AttemptHistory* history_;
  TimePoint start_;
  StepsSeen steps_seen_;
  std::map<int, Process> workers_;
  std::map<int, Process> servers_;
  std::vector<std::pair<Role, int>> nonfinite_;  // in the order in which they told
  std::optional<Stall> stall_;
};

}  // namespace fleet::launch
