// How the processes of a job find each other when nobody told them: by rank, with small texts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace fleet::role_maker {

class GroupExchange {
 public:
  virtual ~GroupExchange() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // One text from each rank, by rank. Every rank calls it, with a deadline of the implementation.
  virtual Result<std::vector<std::string>> all_gather(const std::string& mine) = 0;
};

// Over MPI; initialises it. It waits up to a minute for the slowest rank.
std::unique_ptr<GroupExchange> mpi_exchange();

}  // namespace fleet::role_maker
