#include "launch/hosts/job_secret.h"

#include "base/strings.h"

namespace fleet::launch {
namespace {

// A value that is no flag, which the processes of the job refuse, counts as not set.
bool flag(const Environment& environment, const char* name, bool otherwise) {
  const auto text = environment.get(name);
  return text ? parse_flag(*text).value_or(otherwise) : otherwise;
}

}  // namespace

Result<transport::Secret> job_secret(const Environment& environment) {
  using transport::FrameProtection;
  transport::SecretSources sources;
  sources.insecure = flag(environment, "FLEET_INSECURE", false);
  sources.file = environment.get("FLEET_JOB_SECRET_FILE");
  sources.value = environment.get("FLEET_JOB_SECRET");
  sources.protection =
      flag(environment, "FLEET_FRAME_ENCRYPTION", false) ? FrameProtection::kEncryption
      : flag(environment, "FLEET_FRAME_INTEGRITY", true) ? FrameProtection::kIntegrity
                                                         : FrameProtection::kNone;
  return transport::choose_secret(sources);
}

}  // namespace fleet::launch
