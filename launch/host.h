// How the processes of a job are started and ended: as the launcher's own children (DirectHost) or
// through mpirun and an agent for each rank (MpiHost). A host reports; the Supervisor decides.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/net/port_reservation.h"
#include "launch/job.h"
#include "launch/process/child.h"
#include "launch/process/event_loop.h"
#include "launch/process/line_reader.h"

namespace fleet::launch {

// How a process ended.
struct Ending {
  ExitStatus status;
  bool asked = false;  // it was told to end, by us or by mpirun
  // In place of the status where that says too little: "was stopped (SIGSTOP) …".
  std::string reason;

  bool ok() const { return reason.empty() && status.ok(); }
  std::string to_string() const { return reason.empty() ? status.to_string() : reason; }
};

// `index` is the member's position in Job::members; the process that carries the job (mpirun) has
// the index after the last member. Called on the loop's thread, never inside a call of the host
// other than start().
class HostListener {
 public:
  virtual ~HostListener() = default;
  virtual void on_started(size_t index, pid_t pid) = 0;
  virtual void on_ended(size_t index, const Ending& ending) = 0;
  virtual void on_stopped(size_t index, bool stopped) = 0;  // SIGSTOP and the like, and SIGCONT
  // The process lives and cannot do its work; `reason` completes "worker 1 …".
  virtual void on_stuck(size_t index, const std::string& reason) = 0;
  // Something that is not the launcher tells the members to end.
  virtual void on_asked(size_t index) = 0;
  virtual void on_progress(size_t index, std::string_view line) = 0;
};

struct HostOptions {
  // Somebody asked for progress. Else a process to which the launcher cannot give a descriptor for
  // it does without.
  bool progress = false;
  Duration heartbeat_timeout = std::chrono::seconds(10);
};

class Host {
 public:
  virtual ~Host() = default;
  // Starts everything. Throws when something cannot be started; the caller then ends the rest.
  virtual void start(HostListener& listener) = 0;
  // The launcher's child `pid` ended, stopped or continued, as waitid() says it.
  virtual void on_child(const siginfo_t& info) = 0;
  // SIGTERM to every process group; a process that is stopped gets SIGKILL.
  virtual void end() = 0;
  // The same to workers alone.
  virtual void end_workers() = 0;
  // SIGKILL to every process group.
  virtual void kill() = 0;
  // Hands over the progress lines that are there, when all processes have ended.
  virtual void finish_progress() {}
  // Name and log of the process with the index after the last member; empty when there is none.
  virtual std::string carrier() const { return ""; }
  virtual std::string carrier_log() const { return ""; }
};

// The job, the loop and the ports outlive the host.
std::unique_ptr<Host> make_direct_host(const Job& job, EventLoop& loop, PortReservation& ports,
                                       const HostOptions& options);
std::unique_ptr<Host> make_mpi_host(const Job& job, EventLoop& loop, PortReservation& ports,
                                    const HostOptions& options);

// The ending that a siginfo of waitid() describes.
ExitStatus exit_status_of(const siginfo_t& info);

}  // namespace fleet::launch
