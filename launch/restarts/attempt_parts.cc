#include "launch/restarts/attempt_parts.h"

#include "base/process/random_hex.h"
#include "base/strings.h"

namespace fleet::launch {
namespace {

constexpr Duration kTimeToTell = std::chrono::seconds(2);

}  // namespace

AttemptId new_attempt(const std::string& launcher, const Environment& environment, int restarts) {
  const auto given = environment.get("FLEET_JOB_ID");
  AttemptId id{.restarts = restarts};
  if (!given) {
    id.job_id = launcher + "-" + random_hex(6);
  } else {
    id.job_id = restarts == 0 ? *given : str_cat(*given, "-r", restarts);
  }
  return id;
}

SupervisorOptions AttemptParts::with_notice(SupervisorOptions options) const {
  if (notice) {
    options.on_death = [notice = notice.get()](Role role, int index, const std::string& how) {
      notice->tell(role, index, how);
    };
  }
  return options;
}

void AttemptParts::finish() {
  if (notice) notice->finish(kTimeToTell);
}

}  // namespace fleet::launch
