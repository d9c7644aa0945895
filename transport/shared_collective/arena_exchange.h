// How ranks of one machine and one user give each other their arenas: over Unix sockets, whose
// other end's user the kernel tells, with a word that only ranks of the job know.
//
// Each rank listens before it tells the others where. To join, it first connects to all of them and
// hands its arena over, which never waits: who connects is queued, and what it says fits into the
// socket. Then it takes what the others have handed over. So the order in which ranks come does not
// matter, and none waits for one that waits for it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/process/file_descriptor.h"
#include "base/status.h"
#include "transport/shared_collective/arena.h"

namespace fleet::transport {

// The same word for all processes of a machine, of its containers too; empty where it is not known.
std::string this_machine();

// Used by one thread.
class ArenaExchange {
 public:
  // Begins to listen. An error where Unix sockets are forbidden.
  Status listen(int ranks);

  // What the other ranks must be told, in confidence: machine, user, address, the word.
  std::string invitation() const;

  // The arenas of all ranks, by rank, given the invitations of all; `own` is this rank's. An error
  // when one of them is on another machine, of another user, or does not come.
  Result<std::vector<std::shared_ptr<const Arena>>> join(
      int rank, const std::shared_ptr<const Arena>& own,
      const std::vector<std::string>& invitations, TimePoint deadline);

 private:
  Status give(int rank, int to, const std::string& invitation, int file) const;
  Status take(std::vector<std::shared_ptr<const Arena>>& arenas, const ArenaLayout& layout,
              TimePoint deadline);

  std::string name_;
  std::string word_;
  FileDescriptor listener_;
};

}  // namespace fleet::transport
