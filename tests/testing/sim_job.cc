#include "tests/testing/sim_job.h"

#include <iterator>

#include "base/hash.h"
#include "base/strings.h"

namespace fleet::testing {

std::string SimJob::to_string() const {
  return str_cat("seed ", seed, ": ", workers, " workers, ", servers, " servers, ", shard_count(),
                 " shards, ", lanes, " lanes, ", exchanges, " exchanges, ", rows ? "rows, " : "",
                 skips_rows ? "not always, " : "", "separate gets from ", separate_get_bytes,
                 " bytes, window of ", window_bytes, " bytes, ", steps, " steps, cut ", faults.cut,
                 ", duplicate ", faults.duplicate, ", refuse ", faults.refuse, ", chunk ",
                 faults.max_chunk);
}

SimJob draw_job(uint64_t seed) {
  struct Shape {
    uint32_t workers, servers, shards;
  };
  static constexpr Shape kShapes[] = {{2, 2, 2}, {4, 1, 4}, {1, 3, 1}, {1, 1, 4},
                                      {2, 1, 4}, {2, 2, 4}, {4, 2, 4}, {3, 2, 5}};
  uint64_t state = mix64(seed + 0x5eed);
  const auto draw = [&state](uint64_t below) {
    state = mix64(state);
    return state % below;
  };
  SimJob job;
  job.seed = seed;
  const Shape shape = kShapes[draw(std::size(kShapes))];
  job.workers = shape.workers;
  job.servers = shape.servers;
  job.shards = shape.shards;
  job.lanes = 1 + static_cast<uint32_t>(draw(3));
  job.steps = 2 + draw(4);
  job.last_server_empty = job.servers > 1 && draw(4) == 0;
  job.flush_bytes = draw(2) == 0 ? 64 * 1024 : 8;
  if (draw(4) == 0) {
    for (uint32_t i = 0; i < job.workers; ++i) job.uneven_steps.push_back(1 + draw(job.steps));
    job.uneven_steps[draw(job.workers)] = job.steps;
  }
  job.faults.delay_max = std::chrono::microseconds(20 + draw(500));
  job.faults.max_chunk = draw(2) == 0 ? 0 : 16 + draw(200);
  job.faults.cut = draw(3) == 0 ? 0.0 : static_cast<double>(draw(40)) / 1000.0;
  job.faults.duplicate = draw(3) == 0 ? 0.0 : static_cast<double>(draw(150)) / 1000.0;
  job.faults.refuse = draw(3) == 0 ? static_cast<double>(draw(300)) / 1000.0 : 0.0;
  if (draw(3) == 0) job.exchanges = 1 + static_cast<uint32_t>(draw(2));
  if (draw(2) == 0) {
    job.rows = true;
    job.slices = {3, 7, 11, 5, 2, 40};
  }
  if (draw(2) == 0) job.separate_get_bytes = 1 + draw(40);
  if (draw(2) == 0) job.window_bytes = 1 + draw(200);
  job.skips_rows = job.rows && draw(2) == 0;
  return job;
}

}  // namespace fleet::testing
