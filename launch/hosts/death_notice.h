// What the launcher of one host tells the coordinator of a job over several: that a process of this
// host has ended. The coordinator is on another machine and would wait for the process to come
// back.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "launch/job.h"

namespace fleet::launch {

// Members are called by one thread; what they begin happens in a thread of its own, which begins
// with the first call of tell().
class DeathNotice {
 public:
  // A job with parameter servers, `workers` of it and all its `servers` (in order), as
  // its processes are told of them. The coordinator is in server 0. Throws nothing: without a
  // secret that can be used nobody can be told, nor could the processes meet.
  DeathNotice(const Job& job, int workers, std::vector<Endpoint> servers);
  ~DeathNotice();
  DeathNotice(const DeathNotice&) = delete;
  DeathNotice& operator=(const DeathNotice&) = delete;

  // `how` completes "worker 1 …": "was killed by SIGKILL". Does not block. Server 0 is its own
  // proof: whoever tries to reach it is refused.
  void tell(Role role, int index, const std::string& how);
  // Returns when everything has been answered or the coordinator is gone, after `limit` at the
  // latest.
  void finish(Duration limit);

 private:
  class Line;
  const Job& job_;
  int workers_;
  std::vector<Endpoint> servers_;
  std::unique_ptr<Line> line_;
};

}  // namespace fleet::launch
