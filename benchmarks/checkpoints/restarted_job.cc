#include "benchmarks/checkpoints/restarted_job.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLimit = std::chrono::seconds(100);
constexpr auto kLook = std::chrono::milliseconds(1);

double now_s() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

std::string text_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

RestartedJob::RestartedJob(const RestartableJob& job)
    : job_(job),
      traces_(job.traces.begin(), job.traces.end()),
      process_(job.command, job.environment, job.output) {}

size_t RestartedJob::attempts() const {
  size_t count = traces_.front().attempts().size();
  for (const RestartTrace& trace : traces_) count = std::min(count, trace.attempts().size());
  return count;
}

int64_t RestartedJob::highest_of(size_t attempts) const {
  int64_t highest = 0;
  for (const RestartTrace& trace : traces_) {
    for (size_t i = 0; i < std::min(attempts, trace.attempts().size()); ++i) {
      highest = std::max(highest, trace.attempts()[i].highest());
    }
  }
  return highest;
}

int64_t RestartedJob::newest_checkpoint() const {
  constexpr std::string_view kBefore = "step-";
  std::ifstream file(job_.latest);
  std::string name;
  file >> name;
  return name.starts_with(kBefore) ? parse_int(name.substr(kBefore.size())).value_or(0) : 0;
}

bool RestartedJob::is_behind_checkpoint() const {
  const size_t count = attempts();
  const int64_t checkpoint = newest_checkpoint();
  return count > 0 && checkpoint > used_ &&
         std::all_of(traces_.begin(), traces_.end(), [&](const RestartTrace& trace) {
           return trace.attempts()[count - 1].highest() > checkpoint;
         });
}

template <class Reached>
void RestartedJob::wait_for(const char* what, const Reached& reached) {
  const auto end = Clock::now() + kLimit;
  while (true) {
    const bool running = process_.running();
    for (RestartTrace& trace : traces_) trace.read();
    if (reached()) return;
    if (!running || Clock::now() > end) {
      throw_error(ErrorCode::kInternal, {.what = running ? "a job does not get on" : "a job ended",
                                         .where = join(job_.command, " "),
                                         .expected = what,
                                         .got = text_of(job_.output)});
    }
    std::this_thread::sleep_for(kLook);
  }
}

RestartTimes RestartedJob::kill_one() {
  wait_for("a checkpoint, and a step behind it", [this] { return is_behind_checkpoint(); });
  used_ = newest_checkpoint();
  const size_t before = attempts();
  const double killed = now_s();
  kill(traces_.back().attempts()[before - 1].process, SIGKILL);
  wait_for("a step that no attempt had done", [&] {
    const auto& first = traces_.front().attempts();
    return first.size() > before && first.back().highest() > highest_of(before);
  });
  const int64_t highest = highest_of(before);
  const Attempt& own = traces_.front().attempts().back();
  double started = 0;
  double loaded = 0;
  for (const RestartTrace& trace : traces_) {
    started = std::max(started, trace.attempts().back().start_s);
    loaded = std::max(loaded, trace.attempts().back().from_s);
  }
  const auto further = std::find_if(own.steps.begin(), own.steps.end(),
                                    [&](const auto& step) { return step.first > highest; });
  return {.start = started - killed,
          .load = loaded - started,
          .first = own.steps.front().second - loaded,
          .repeat = further->second - own.steps.front().second,
          .repeated = highest - own.from,
          .attempts = static_cast<int>(traces_.front().attempts().size() - before)};
}

}  // namespace fleet::benchmarks
