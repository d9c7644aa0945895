// Communicators above the double of NCCL, for ranks that are threads.
#pragma once

#include <algorithm>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/caught.h"
#include "base/strings.h"
#include "tests/transport/nccl/fake_nccl.h"
#include "transport/nccl/nccl_communicator.h"

namespace fleet::transport::testing {

constexpr CollectiveLabel kLabel{.phase = "test", .step = 7};

inline TimePoint soon(Duration limit = std::chrono::seconds(60)) {
  return steady_clock().now() + limit;
}

inline std::shared_ptr<FakeWorld> world_of(int ranks) {
  return std::make_shared<FakeWorld>(ranks);
}

// An id that all ranks know.
inline NcclId id_of(const std::string& name) {
  NcclId id{};
  std::copy(name.begin(), name.end(), id.begin());
  return id;
}

struct NcclJob {
  NcclOptions options = {};
  int rings = 1;
  std::vector<int> groups = {};
};

inline std::vector<NcclRing> rings_of(const NcclJob& job, const NcclRanks& ranks,
                                      const std::string& use = "") {
  std::vector<NcclRing> rings;
  rings.reserve(static_cast<size_t>(job.rings));
  const int group = ranks.groups.empty() ? 0 : ranks.place().group;
  for (int i = 0; i < job.rings; ++i) {
    rings.push_back({.queue = std::make_unique<FakeQueue>(),
                     .id = id_of(str_cat("whole", i, use)),
                     .inner = id_of(str_cat("inner", i, ".", group, use)),
                     .outer = id_of(str_cat("outer", i, use))});
  }
  return rings;
}

inline Result<std::unique_ptr<CollectiveCommunicator>> connect(
    const std::shared_ptr<FakeWorld>& world, int rank, const NcclJob& job = {},
    TimePoint deadline = soon()) {
  const NcclRanks ranks{.rank = rank, .size = world->size(), .groups = job.groups};
  return make_nccl_communicator(std::make_shared<FakeNccl>(world, rank),
                                std::make_unique<FakeQueue>(), rings_of(job, ranks), ranks,
                                deadline, job.options);
}

// Runs `body(communicator)` at every rank, in threads.
template <class Body>
void run_ranks(const std::shared_ptr<FakeWorld>& world, const Body& body, const NcclJob& job = {}) {
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<size_t>(world->size()));
  for (int rank = 0; rank < world->size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto comm = connect(world, rank, job).value();
        body(*comm);
      } catch (...) {
        ADD_FAILURE() << caught_status("rank").to_string();
      }
    });
  }
}

}  // namespace fleet::transport::testing
