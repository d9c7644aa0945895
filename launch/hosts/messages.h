// What the launchers of a job over several hosts say to each other: one decides (Director), and
// each host's carries it out (HostRuns). A message is a line of JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "launch/job.h"
#include "launch/restarts/attempt_parts.h"

namespace fleet::launch {

// To the launcher of a host.
struct Order {
  enum class Kind {
    kBegin,  // an attempt
    kSave,   // Supervisor::save
    kEnd,    // Supervisor::end
    kOver,   // the job is; the launcher leaves
    kPing,   // is answered
  };
  Kind kind = Kind::kPing;
  AttemptId attempt;   // kBegin
  std::string reason;  // kEnd
  int exit_code = 0;   // kOver
};

// From the launcher of a host.
struct Report {
  enum class Kind {
    kReady,    // it waits for orders, for the first time
    kLine,     // RunListener
    kDone,     // a worker has ended well
    kFailure,  // RunListener
    kSignal,   // RunListener
    kEnded,    // what it was told to begin is over
    kPong,
  };
  Kind kind = Kind::kPong;
  int workers = 0;  // kReady: how many this host has
  // kLine
  Role role = Role::kWorker;
  int index = 0;
  std::string line;
  // kFailure; `ago` is the time since the first process failed.
  std::string reason;
  std::string why_final;
  bool sure = false;
  Duration ago{};
  int signal = 0;      // kSignal; kEnded: the one that ended workers before they could save
  bool saved = false;  // kEnded
};

// Without the end of the line.
std::string to_line(const Order& order);
std::string to_line(const Report& report);
// Nothing for what is no such line.
std::optional<Order> parse_order(std::string_view line);
std::optional<Report> parse_report(std::string_view line);

}  // namespace fleet::launch
