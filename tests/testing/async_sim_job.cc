#include "tests/testing/async_sim_job.h"

#include "base/hash.h"
#include "base/strings.h"

namespace fleet::testing {

using fluid::ServerMode;
using strategies::DelayCompensation;

std::string AsyncSimJob::to_string() const {
  return str_cat(fluid::to_string(options.mode), " seed ", seed, ": ", workers, " workers, ",
                 servers, " servers, ", lanes, " lanes, ", steps, " steps, ",
                 options.trainer_threads, " threads, queue ", options.send_queue_size, ", merge ",
                 options.max_merge_var_num, options.independent_recv ? "" : ", in step",
                 options.staleness_bound ? str_cat(", bound ", *options.staleness_bound) : "",
                 ", cut ", faults.cut, ", duplicate ", faults.duplicate, ", refuse ", faults.refuse,
                 ", chunk ", faults.max_chunk);
}

AsyncSimJob draw_async_job(ServerMode mode, uint64_t seed) {
  uint64_t state = mix64(seed * 8 + static_cast<uint64_t>(mode) + 0xa57c);
  const auto draw = [&state](uint64_t below) {
    state = mix64(state);
    return state % below;
  };
  AsyncSimJob job;
  job.seed = seed;
  job.workers = 1 + static_cast<uint32_t>(draw(4));
  job.servers = 1 + static_cast<uint32_t>(draw(3));
  job.lanes = 1 + static_cast<uint32_t>(draw(3));
  job.steps = 3 + draw(6);
  if (draw(3) == 0) {
    for (uint32_t i = 0; i < job.workers; ++i) job.uneven_steps.push_back(draw(job.steps + 1));
  }
  strategies::AsyncOptions& options = job.options;
  options.mode = mode;
  options.send_queue_size = 1 + static_cast<uint32_t>(draw(4));
  options.max_merge_var_num = 1 + static_cast<uint32_t>(draw(4));
  options.min_send_grad_num_before_recv = 1 + static_cast<uint32_t>(draw(3));
  options.independent_recv = draw(2) == 0;
  if (mode == ServerMode::kAsync && draw(3) == 0) {
    options.staleness_bound = 1 + static_cast<uint32_t>(draw(3));
    options.independent_recv = false;
    options.max_merge_var_num = 1;
  }
  if (mode != ServerMode::kAsync) options.independent_recv = false;
  if (mode == ServerMode::kHalfAsync) {
    options.trainer_threads = 1 + static_cast<uint32_t>(draw(3));
    options.send_queue_size = options.max_merge_var_num = options.trainer_threads;
  }
  if (sends_differences(mode)) {
    options.geo_update_frequency = options.easgd_tau = 1 + static_cast<uint32_t>(draw(3));
    options.max_merge_var_num = 1;
    options.send_queue_size = 8;
  } else if (draw(3) == 0) {
    options.delay_compensation.form = DelayCompensation::kPaddle;
  }
  job.straggle = draw(3) == 0 ? 5 : 1;
  job.faults.delay_max = std::chrono::microseconds(20 + draw(500));
  job.faults.max_chunk = draw(2) == 0 ? 0 : 16 + draw(200);
  job.faults.cut = draw(3) == 0 ? 0.0 : static_cast<double>(draw(40)) / 1000.0;
  job.faults.duplicate = draw(3) == 0 ? 0.0 : static_cast<double>(draw(150)) / 1000.0;
  job.faults.refuse = draw(3) == 0 ? static_cast<double>(draw(300)) / 1000.0 : 0.0;
  return job;
}

}  // namespace fleet::testing
