// The process's one use of MPI: initialisation, small exchanges for role makers, and the end.
//
// MPI itself is state of the process: it can be initialised once, and its MPI_Finalize waits for
// all ranks. So there is one session, opened lazily by the first caller of get(). It is finalised
// by finalize(), or, when nobody called that, at a process exit with status 0. A process that
// leaves with another status, or after mark_lost(), skips MPI_Finalize: it must not wait for ranks
// that wait for it, and mpirun then ends the rest of the job.
//
// MPI is initialised for MPI_THREAD_SERIALIZED; whoever calls MPI holds lock(). No MPI header is
// needed to include this one.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace fleet::transport {

class MpiSession {
 public:
  // Initialises MPI when called first. Without mpirun (or srun with a PMI) the world has size 1.
  // Throws ResourceError when MPI was already finalised.
  static MpiSession& get();
  // True where a launcher of MPI started this process, by its variables; MPI is not asked.
  static bool has_launcher();
  // True once MPI is initialised, by the session or by the user's own code.
  static bool is_open();

  int rank() const { return rank_; }
  int size() const { return size_; }
  // That the ranks on this machine may use together.
  int cores() const { return cores_; }
  // True when ranks outnumber cores, so that a waiting rank must give way instead of spinning.
  bool oversubscribed() const { return local_ranks_ > cores_; }

  // Where ranks reach this process: loopback when all of them are on one machine.
  std::string address(const std::string& interfaces) const;

  // One text from each rank, by rank. All ranks call it; for small data. Fails with kDeadline when
  // some rank does not come in time.
  Result<std::vector<std::string>> all_gather(const std::string& mine, Duration timeout);
  // Root's text at every rank. All ranks call it; for small data.
  Result<std::string> broadcast(const std::string& text, int root, Duration timeout);

  // Serialises MPI calls of the process.
  std::unique_lock<std::mutex> lock() { return std::unique_lock<std::mutex>(mutex_); }

  // Keeps memory that MPI may still know of until the process ends.
  void keep(std::shared_ptr<const void> memory);

  // A rank is gone or an operation will never end: MPI_Finalize is skipped from now on.
  void mark_lost();
  bool lost() const;

  // Waits until every rank has come here, then ends MPI. Does nothing the second time, after
  // mark_lost(), or when the user's own code initialised MPI. After a timeout the session is lost.
  Status finalize(Duration timeout);

  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

 private:
  MpiSession();
  ~MpiSession();

  struct State;
  std::unique_ptr<State> state_;
  std::mutex mutex_;
  int rank_ = 0;
  int size_ = 1;
  int local_ranks_ = 1;
  int cores_ = 1;
};

}  // namespace fleet::transport
