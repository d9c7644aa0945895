// What one attempt of a job, or of its part on this host, runs with.
#pragma once

#include <memory>
#include <string>

#include "base/environment.h"
#include "base/net/port_reservation.h"
#include "launch/host.h"
#include "launch/hosts/death_notice.h"
#include "launch/job.h"
#include "launch/process/run_folder.h"
#include "launch/supervisor.h"

namespace fleet::launch {

// What tells an attempt from the others of its job.
struct AttemptId {
  int restarts = 0;         // before it
  std::string job_id;       // FLEET_JOB_ID; empty: the one that follows from the job's endpoints
  std::string secret;       // empty: the environment's, or a new one
  std::string log_heading;  // Job::log_heading
};

// The caller's FLEET_JOB_ID with -r1, -r2 …; without one a new id each time, so that processes of
// different attempts refuse each other.
AttemptId new_attempt(const std::string& launcher, const Environment& environment, int restarts);

// Nothing of it is used again, so that nothing that an attempt has left under way can count in the
// next one.
struct AttemptParts {
  RunFolder folder;
  PortReservation ports;
  Job job;
  std::unique_ptr<Host> host;
  std::unique_ptr<DeathNotice> notice;  // only of a job with servers over several hosts

  // These options, and the coordinator is told of deaths.
  SupervisorOptions with_notice(SupervisorOptions options) const;
  // The attempt is over: what the coordinator is still to be told gets a moment.
  void finish();
};

}  // namespace fleet::launch
