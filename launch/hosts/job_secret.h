// The secret by which a launcher proves itself to other processes of its job.
#pragma once

#include "base/environment.h"
#include "base/status.h"
#include "transport/session/secret.h"

namespace fleet::launch {

// What the job's processes find in this environment, as they read it themselves.
Result<transport::Secret> job_secret(const Environment& environment);

}  // namespace fleet::launch
