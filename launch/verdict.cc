#include "launch/verdict.h"

#include <algorithm>
#include <csignal>

#include "base/strings.h"
#include "launch/console.h"

namespace fleet::launch {
namespace {

constexpr size_t kLinesShown = 10;

// An uncaught exception (SIGABRT) and a closed pipe are what a victim dies of.
bool is_hard(const Ending& ending) {
  if (!ending.reason.empty()) return true;
  constexpr int kSoft[] = {0, SIGABRT, SIGPIPE, SIGTERM, SIGINT, SIGHUP};
  return std::find(std::begin(kSoft), std::end(kSoft), ending.status.signal) == std::end(kSoft);
}

std::optional<size_t> find_record(const std::vector<ProcessRecord>& records, const Blame& blame) {
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i].role == blame.role && records[i].index == blame.index) return i;
  }
  return std::nullopt;
}

// The first accusation of `accused`, or of anybody.
std::optional<Cause> find_accusation(const std::vector<ProcessRecord>& records,
                                     std::optional<size_t> accused) {
  for (size_t i = 0; i < records.size(); ++i) {
    if (!records[i].role) continue;
    const auto blame = find_blame(records[i].log_file, records[i].log_begin);
    const auto who = blame ? find_record(records, *blame) : std::nullopt;
    if (!who || (accused && *who != *accused)) continue;
    return Cause{.record = *who, .what = "", .blame = blame, .witness = i};
  }
  return std::nullopt;
}

Cause with_witness(const std::vector<ProcessRecord>& records, size_t record) {
  Cause cause{.record = record,
              .what = records[record].ending.to_string(),
              .blame = std::nullopt,
              .witness = std::nullopt};
  if (const auto found = find_accusation(records, record)) {
    cause.blame = found->blame;
    cause.witness = found->witness;
  }
  return cause;
}

}  // namespace

Cause choose_cause(const std::vector<ProcessRecord>& records, const std::vector<size_t>& failed) {
  for (const size_t i : failed) {
    if (is_hard(records[i].ending)) return with_witness(records, i);
  }
  for (size_t i = 0; i < records.size(); ++i) {
    if (!records[i].running || !records[i].stopped) continue;
    Cause cause = with_witness(records, i);
    cause.what = "was stopped (SIGSTOP or the like)";
    return cause;
  }
  if (auto accused = find_accusation(records, std::nullopt)) {
    const ProcessRecord& record = records[accused->record];
    const bool failed_itself =
        std::find(failed.begin(), failed.end(), accused->record) != failed.end();
    accused->what = failed_itself    ? record.ending.to_string()
                    : record.running ? "is the cause, as another process says"
                                     : "ended too early, as another process says";
    return *accused;
  }
  const auto member = std::find_if(failed.begin(), failed.end(),
                                   [&](size_t i) { return records[i].role.has_value(); });
  Cause cause = with_witness(records, member == failed.end() ? failed.front() : *member);
  cause.sure = false;
  return cause;
}

std::string explain(const Cause& cause, const std::vector<ProcessRecord>& records, TimePoint now) {
  const ProcessRecord& record = records[cause.record];
  std::string text = record.title;
  if (record.pid > 0) text += str_cat(" (pid ", record.pid, ")");
  text += " " + cause.what;
  const TimePoint end = record.running ? now : record.ended;
  if (record.pid > 0) text += " after " + seconds_text(end - record.started);
  if (cause.blame) {
    text += str_cat("\n  ", records[*cause.witness].title, " says: ", cause.blame->line);
  }
  const std::vector<std::string> lines = last_lines(record.log_file, kLinesShown, record.log_begin);
  if (lines.empty()) {
    return str_cat(text, "\n  ", record.log_file,
                   record.log_begin > 0 ? " has nothing of this attempt" : " is empty");
  }
  text += "\n  last lines of " + record.log_file + ":";
  for (const std::string& line : lines) text += "\n    | " + line;
  return text;
}

}  // namespace fleet::launch
