#include "launch/progress_board.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/display.h"
#include "base/strings.h"
#include "launch/console.h"

namespace fleet::launch {
namespace {

constexpr double kWindowSeconds = 1.0;
constexpr size_t kMostKeys = 64;
constexpr std::string_view kNonfinite = "nonfinite";
// A stall is told every second.
constexpr Duration kStallCounts = std::chrono::seconds(3);
constexpr size_t kMostNames = 4;
constexpr std::array<std::string_view, 5> kPhases = {"compute_s", "send_s", "receive_s", "reduce_s",
                                                     "barrier_s"};

double seconds_of(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

std::string percent(double share) {
  return fixed(100 * share, 0) + " %";
}

std::string rate(double value) {
  return fixed(value, value < 10 ? 1 : 0);
}

std::string or_dash(const std::optional<double>& value, std::string (*show)(double)) {
  return value ? show(*value) : "-";
}

std::string whole(double value) {
  return fixed(value, 0);
}

// What a process says goes to a terminal.
std::string shown(std::string text) {
  text.resize(std::min<size_t>(text.size(), 200));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

void put(nlohmann::ordered_json& object, const char* key, const std::optional<double>& value) {
  if (value && std::isfinite(*value)) object[key] = *value;
}

// "worker/1" as people read it; empty when it is no member.
std::string member_text(std::string_view name) {
  const size_t slash = name.find('/');
  if (slash == std::string_view::npos) return "";
  const auto index = parse_int(name.substr(slash + 1));
  const std::string_view role = name.substr(0, slash);
  return index && (role == "worker" || role == "server") ? str_cat(role, " ", *index) : "";
}

}  // namespace

void ProgressBoard::Growing::update(double now_value, TimePoint now) {
  value = now_value;
  if (!begun || now_value < window_value) {
    begun = true;
    window_value = now_value;
    window_start = now;
    return;
  }
  const double elapsed = seconds_of(now - window_start);
  if (elapsed < kWindowSeconds && (per_second || elapsed < kWindowSeconds / 5)) return;
  per_second = (now_value - window_value) / elapsed;
  if (elapsed < kWindowSeconds) return;
  window_value = now_value;
  window_start = now;
}

std::optional<double> ProgressBoard::Process::number(std::string_view key) const {
  const auto found = numbers.find(key);
  return found == numbers.end() ? std::nullopt : std::optional<double>(found->second);
}

std::optional<double> ProgressBoard::Process::steps_per_second() const {
  const auto said = number("steps_per_s");
  return said ? said : steps.per_second;
}

std::optional<double> ProgressBoard::Process::share(std::string_view key) const {
  double total = 0;
  for (const std::string_view phase : kPhases) total += number(phase).value_or(0);
  const auto wanted = number(key);
  return wanted && total > 0 ? std::optional<double>(*wanted / total) : std::nullopt;
}

std::optional<double> ProgressBoard::Process::wait_share() const {
  const auto computing = share("compute_s");
  return computing ? std::optional<double>(1 - *computing) : std::nullopt;
}

std::optional<double> ProgressBoard::Process::busy_so_far() const {
  const auto cpu = number("cpu_s");
  const auto up = number("up_s");
  return cpu && up && *up > 0 ? std::optional<double>(*cpu / *up) : std::nullopt;
}

ProgressBoard::ProgressBoard(int workers, int servers, TimePoint start,
                             const AttemptHistory* history)
    : worker_num_(workers),
      server_num_(servers),
      history_(history),
      start_(history != nullptr ? history->start() : start) {}

bool ProgressBoard::update(Role role, int index, std::string_view line, TimePoint now) {
  const std::vector<std::string> words = split(trim(line), ' ');
  if (words.empty()) return false;
  if (words.front() == "stall") return update_stall(words, now);
  if (words.front() != "progress") return false;
  Process& process = role == Role::kWorker ? workers_[index] : servers_[index];
  if (!process.spoke) process.first = now;
  process.spoke = true;
  process.last = now;
  std::map<std::string, std::string> told;
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == std::string::npos || equals == 0) continue;
    const std::string key = words[i].substr(0, equals);
    if (key.starts_with(kNonfinite)) {
      told.emplace(key.substr(kNonfinite.size()), shown(words[i].substr(equals + 1)));
      continue;
    }
    const auto value = parse_double(std::string_view(words[i]).substr(equals + 1));
    if (!value || (process.numbers.size() >= kMostKeys && process.numbers.count(key) == 0))
      continue;
    process.numbers[key] = *value;
    if (key == "step") {
      process.steps.update(*value, now);
      if (role == Role::kWorker) steps_seen_.see(*value, now);
    }
    if (key == "samples") process.samples.update(*value, now);
    if (key == "cpu_s") process.cpu_seconds.update(*value, now);
  }
  if (!told.empty() && process.nonfinite.empty()) {
    process.nonfinite = std::move(told);
    nonfinite_.emplace_back(role, index);
  }
  return true;
}

bool ProgressBoard::update_stall(const std::vector<std::string>& words, TimePoint now) {
  Stall stall;
  stall.said = now;
  for (const std::string& word : words) {
    const size_t equals = std::min(word.find('='), word.size());
    const std::string key = word.substr(0, equals);
    const std::string value = equals < word.size() ? word.substr(equals + 1) : "";
    if (key == "who") stall.who = member_text(value);
    if (key == "phase") stall.phase = value;
    if (key == "step") stall.step = parse_double(value).value_or(0);
    if (key == "for_s") stall.for_s = parse_double(value).value_or(0);
    if (key != "waiting") continue;
    for (const std::string& name : split(value, ',')) {
      if (const std::string text = member_text(name); !text.empty()) stall.waiting.push_back(text);
    }
  }
  if (stall.who.empty()) return false;
  stall_ = std::move(stall);
  return true;
}

const ProgressBoard::Stall* ProgressBoard::stall(TimePoint now) const {
  return stall_ && now - stall_->said < kStallCounts ? &*stall_ : nullptr;
}

// "worker 0 waits for worker 1 (computing at step 12 for 14 s, since 31.2 s)".
std::string ProgressBoard::stall_text(TimePoint now) const {
  const Stall* found = stall(now);
  if (found == nullptr) return "";
  const size_t waiting = found->waiting.size();
  std::string text = waiting > kMostNames ? counted(static_cast<int>(waiting), "worker")
                                          : join(found->waiting, ", ");
  text = waiting == 0 ? found->who + " does not advance"
                      : str_cat(text, waiting == 1 ? " waits for " : " wait for ", found->who);
  return str_cat(text, " (", found->phase, " at step ", whole(found->step), " for ",
                 whole(found->for_s), " s, since ",
                 fixed(seconds_of(found->said - start_) - found->for_s, 1), " s)");
}

std::optional<double> ProgressBoard::seconds_left() const {
  std::optional<double> left;
  for (const auto& [index, worker] : workers_) {
    const auto steps = worker.number("steps");
    const auto rate_now = worker.steps_per_second();
    if (!steps || !worker.steps.value || !rate_now || *rate_now <= 0) continue;
    const double mine = std::max(0.0, *steps - *worker.steps.value) / *rate_now;
    left = std::max(left.value_or(0), mine);
  }
  return left;
}

std::optional<double> ProgressBoard::mean_staleness() const {
  double sum = 0;
  int count = 0;
  for (const auto* group : {&servers_, &workers_}) {
    for (const auto& [index, process] : *group) {
      const auto value = process.number("staleness");
      if (!value) continue;
      sum += *value;
      ++count;
    }
    if (count > 0) return sum / count;  // servers measure it; workers only where there are none
  }
  return std::nullopt;
}

// Who is behind; where all are at the same step, who waits least for the others.
std::optional<int> ProgressBoard::slowest() const {
  if (workers_.size() < 2) return std::nullopt;
  std::optional<int> behind;
  std::optional<int> busy;
  double lowest = 0;
  double highest = 0;
  double least = 0;
  for (const auto& [index, worker] : workers_) {
    if (worker.steps.value) {
      const double step = *worker.steps.value;
      if (!behind || step < lowest) {
        behind = index;
        lowest = step;
      }
      highest = std::max(highest, step);
    }
    if (const auto waits = worker.wait_share(); waits && (!busy || *waits < least)) {
      busy = index;
      least = *waits;
    }
  }
  // Lines come at different moments, so that one step apart means nothing.
  return behind && highest - lowest > 1 ? behind : busy;
}

std::string ProgressBoard::slowest_text(int worker) const {
  const Process& process = workers_.at(worker);
  double highest = 0;
  for (const auto& [index, other] : workers_) {
    highest = std::max(highest, other.steps.value.value_or(0));
  }
  const double step = process.steps.value.value_or(highest);
  if (highest - step > 1) return str_cat("step ", whole(step));
  return str_cat("waits ", percent(process.wait_share().value_or(0)));
}

std::optional<int> ProgressBoard::busiest() const {
  std::optional<int> found;
  double most = 0;
  for (const auto& [index, server] : servers_) {
    const auto busy = server.cpu_seconds.per_second;
    if (!busy || (found && *busy <= most)) continue;
    found = index;
    most = *busy;
  }
  return found;
}

ProgressBoard::Totals ProgressBoard::totals() const {
  Totals totals;
  const auto add = [](std::optional<double>& sum, const std::optional<double>& value) {
    if (value) sum = sum.value_or(0) + *value;
  };
  for (const auto& [index, worker] : workers_) {
    add(totals.steps_per_second, worker.steps_per_second());
    add(totals.samples_per_second, worker.samples.per_second);
  }
  totals.staleness = mean_staleness();
  totals.seconds_left = seconds_left();
  totals.slowest = slowest();
  totals.busiest = busiest();
  return totals;
}

std::string ProgressBoard::line(TimePoint now) const {
  std::string text = seconds_text(now - start_) + "  " + counted(worker_num_, "worker");
  if (server_num_ > 0) text += ", " + counted(server_num_, "server");
  if (workers_.empty()) text += "  running";
  if (const std::string stalled = stall_text(now); !stalled.empty()) text += "  " + stalled;
  const Totals all = totals();
  if (!workers_.empty()) {
    const Process& first = workers_.begin()->second;
    const auto steps = first.number("steps");
    if (first.steps.value) {
      text += str_cat("  step ", whole(*first.steps.value), steps ? "/" + whole(*steps) : "");
    }
    if (const auto loss = first.number("loss")) text += str_cat("  loss ", *loss);
  }
  if (all.steps_per_second) text += "  " + rate(*all.steps_per_second) + " steps/s";
  if (all.samples_per_second) text += "  " + rate(*all.samples_per_second) + " samples/s";
  if (all.staleness) text += "  staleness " + fixed(*all.staleness, 1);
  if (all.slowest) {
    text += str_cat("  slowest worker ", *all.slowest, " (", slowest_text(*all.slowest), ")");
  }
  if (all.busiest) {
    text += str_cat("  busiest server ", *all.busiest, " (",
                    percent(*servers_.at(*all.busiest).cpu_seconds.per_second), ")");
  }
  if (all.seconds_left && ended_ == 0) text += str_cat("  ETA ", rate(*all.seconds_left), " s");
  if (ended_ > 0) text += str_cat("  ", ended_, " done");
  if (const std::string again = restarts_text(now); !again.empty()) text += "  " + again;
  if (const auto found = nonfinite(); !found.empty()) text += "  NOT FINITE: " + found.front();
  return text;
}

std::string ProgressBoard::nonfinite_text(const Process& process) {
  const auto said = [&](const char* key) {
    const auto found = process.nonfinite.find(key);
    return found == process.nonfinite.end() ? std::string("?") : found->second;
  };
  std::string text = str_cat(said("") == "loss" ? "the loss" : said(""), " '", said("_variable"),
                             "' is ", said("_value"), " at step ", said("_step"));
  if (process.nonfinite.count("_sender") > 0) {
    text += " after a gradient of worker " + said("_sender");
  }
  return text;
}

std::vector<std::string> ProgressBoard::nonfinite() const {
  std::vector<std::string> lines;
  for (const auto& [role, index] : nonfinite_) {
    const bool worker = role == Role::kWorker;
    lines.push_back(str_cat(worker ? "worker " : "server ", index, ": ",
                            nonfinite_text((worker ? workers_ : servers_).at(index))));
  }
  return lines;
}

std::vector<Restart> ProgressBoard::restarts(TimePoint now) const {
  return history_ != nullptr ? history_->list(steps_seen_, now) : std::vector<Restart>();
}

std::string ProgressBoard::restarts_text(TimePoint now) const {
  const std::vector<Restart> all = restarts(now);
  if (all.empty()) return "";
  const Restart sum = sum_of(all);
  std::string text = str_cat(counted(static_cast<int>(all.size()), "restart"), " (",
                             seconds_text(sum.lost), " lost");
  if (sum.steps_repeated) text += str_cat(", ", whole(*sum.steps_repeated), " steps repeated");
  return text + ")";
}

std::string ProgressBoard::restart_table(TimePoint now) const {
  std::vector<std::vector<std::string>> rows = {
      {"restart", "failed after", "lost", "steps repeated"}};
  std::string reasons;
  for (const Restart& restart : restarts(now)) {
    rows.push_back({str_cat(rows.size()), seconds_text(restart.failed - start_),
                    seconds_text(restart.lost), or_dash(restart.steps_repeated, whole)});
    reasons += str_cat("  restart ", rows.size() - 1, ": ", restart.reason, "\n");
  }
  return reasons.empty() ? "" : table_text(rows) + reasons;
}

void ProgressBoard::add_restarts(nlohmann::ordered_json& root, TimePoint now) const {
  if (history_ == nullptr) return;
  const std::vector<Restart> all = restarts(now);
  const Restart sum = sum_of(all);
  root["restarts"] = all.size();
  root["restart_lost_s"] = seconds_of(sum.lost);
  put(root, "steps_repeated", sum.steps_repeated);
  root["restarted"] = nlohmann::ordered_json::array();
  for (const Restart& restart : all) {
    nlohmann::ordered_json entry;
    entry["t"] = seconds_of(restart.failed - start_);
    entry["reason"] = restart.reason;
    entry["lost_s"] = seconds_of(restart.lost);
    put(entry, "steps_repeated", restart.steps_repeated);
    root["restarted"].push_back(std::move(entry));
  }
}

std::string ProgressBoard::summary(TimePoint now) const {
  std::string text;
  if (!workers_.empty()) {
    std::vector<std::vector<std::string>> rows = {{"worker", "steps", "samples", "loss",
                                                   "computing", "sending", "receiving", "reducing",
                                                   "barriers"}};
    for (const auto& [index, worker] : workers_) {
      const auto loss = worker.number("loss");
      std::vector<std::string> row = {str_cat(index), or_dash(worker.steps.value, whole),
                                      or_dash(worker.samples.value, whole),
                                      loss ? str_cat(*loss) : "-"};
      for (const std::string_view phase : kPhases)
        row.push_back(or_dash(worker.share(phase), percent));
      rows.push_back(std::move(row));
    }
    text += table_text(rows);
  }
  if (!servers_.empty()) {
    std::vector<std::vector<std::string>> rows = {
        {"server", "received", "sent", "updates", "busy", "staleness"}};
    for (const auto& [index, server] : servers_) {
      const auto staleness = server.number("staleness");
      rows.push_back({str_cat(index), or_dash(server.number("bytes_in"), bytes_text),
                      or_dash(server.number("bytes_out"), bytes_text),
                      or_dash(server.number("updates"), whole),
                      or_dash(server.busy_so_far(), percent),
                      staleness ? fixed(*staleness, 2) : "-"});
    }
    text += table_text(rows) + growing_tables();
  }
  text += restart_table(now);
  for (const std::string& found : nonfinite()) text += "not finite: " + found + "\n";
  return text;
}

// What servers that have growing tables keep in them.
std::string ProgressBoard::growing_tables() const {
  std::vector<std::vector<std::string>> rows = {
      {"server", "table rows", "memory", "ids found", "admitted", "refused", "evicted"}};
  for (const auto& [index, server] : servers_) {
    if (!server.number("table_rows")) continue;
    const double hits = server.number("table_hits").value_or(0);
    const double ids = hits + server.number("table_misses").value_or(0);
    rows.push_back({str_cat(index), or_dash(server.number("table_rows"), whole),
                    or_dash(server.number("table_bytes"), bytes_text),
                    ids > 0 ? percent(hits / ids) : "-",
                    or_dash(server.number("table_admitted"), whole),
                    or_dash(server.number("table_refused"), whole),
                    or_dash(server.number("table_evicted"), whole)});
  }
  return rows.size() > 1 ? table_text(rows) : "";
}

// Of a job that is over, the busy share is that of its whole life.
nlohmann::ordered_json ProgressBoard::to_json(int index, const Process& process, bool final) {
  nlohmann::ordered_json entry;
  entry["index"] = index;
  for (const auto& [key, value] : process.numbers) put(entry, key.c_str(), value);
  if (!process.nonfinite.empty()) entry["nonfinite"] = nonfinite_text(process);
  put(entry, "steps_per_s", process.steps_per_second());
  put(entry, "samples_per_s", process.samples.per_second);
  put(entry, "busy", final ? process.busy_so_far() : process.cpu_seconds.per_second);
  put(entry, "wait_share", process.wait_share());
  for (const std::string_view phase : kPhases) {
    const std::string name(phase.substr(0, phase.size() - 2));  // without "_s"
    put(entry, (name + "_share").c_str(), process.share(phase));
  }
  return entry;
}

std::string ProgressBoard::json(TimePoint now, bool final) const {
  nlohmann::ordered_json root;
  const Totals all = totals();
  root["t"] = seconds_of(now - start_);
  if (final) root["final"] = true;
  root["worker_num"] = worker_num_;
  root["server_num"] = server_num_;
  root["workers_done"] = ended_;
  put(root, "steps_per_s", all.steps_per_second);
  put(root, "samples_per_s", all.samples_per_second);
  put(root, "staleness", all.staleness);
  if (!workers_.empty()) put(root, "loss", workers_.begin()->second.number("loss"));
  if (!final) put(root, "eta_s", all.seconds_left);
  if (all.slowest) root["slowest_worker"] = *all.slowest;
  if (all.busiest) root["busiest_server"] = *all.busiest;
  if (const Stall* found = stall(now)) {
    root["stall"] = {{"who", found->who},
                     {"phase", found->phase},
                     {"step", found->step},
                     {"for_s", found->for_s},
                     {"since_t", seconds_of(found->said - start_) - found->for_s},
                     {"waiting", found->waiting}};
  }
  add_restarts(root, now);
  const auto list = [final](const std::map<int, Process>& processes) {
    nlohmann::ordered_json array = nlohmann::ordered_json::array();
    for (const auto& [index, process] : processes) array.push_back(to_json(index, process, final));
    return array;
  };
  root["workers"] = list(workers_);
  root["servers"] = list(servers_);
  return root.dump();
}

}  // namespace fleet::launch
