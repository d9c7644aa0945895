// How an asynchronous job trains: a plain value that strategies fill and that every process of the
// job has the same copy of. The rules and where they come from are told at each field.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "fluid/program/server_mode.h"

namespace fleet::strategies {

using fluid::ServerMode;

// What a server does about a gradient's age (Zheng et al., ICML 2017). With w_bak the value that
// the sender last received, the gradient becomes
//   g + L (.) g (.) g (.) (w - w_bak)
enum class DelayCompensation : uint8_t {
  kNone,
  kPaddle,    // L = 1: what enable_dc_asgd meant in Paddle Fluid
  kConstant,  // L = lambda
  // L = lambda / sqrt(MS + epsilon), with MS <- m MS + (1 - m) g (.) g kept per slice, as the paper
  // has it.
  kAdaptive,
  // As adaptive, but a component changes by at most its own size:
  //   g + g (.) clip(lambda g (.) (w - w_bak) / sqrt(MS + epsilon), -1, 1)
  // so it may vanish or double, and never turns round. Stable where kAdaptive diverges.
  kClipped,
};

struct DelayCompensationOptions {
  DelayCompensation form = DelayCompensation::kNone;
  double lambda = 1.0;
  double mean_square_decay = 0.95;  // m
  double epsilon = 1e-7;

  // The form with its published constants: paddle 1; constant 0.04; adaptive 2, m 0.95; clipped
  // 4, m 0.95.
  static DelayCompensationOptions preset(DelayCompensation form);
  bool operator==(const DelayCompensationOptions&) const = default;
};

struct AsyncOptions {
  // Of kSync nothing else counts: runtimes are told so that training is synchronous; users'
  // options name another mode.
  ServerMode mode = ServerMode::kAsync;

  // Trainer threads in each worker process (CPU_NUM). With GEO and EASGD each thread is a worker
  // of its own, so that N is workers times threads.
  uint32_t trainer_threads = 1;

  // Async. Up to this many queued gradients of a parameter are merged into one push: added up for
  // optimizers that are linear in the gradient (sgd), else averaged.
  uint32_t max_merge_var_num = 1;
  bool merge_by_sum = true;  // communicator_is_sgd_optimizer
  // Gradients of a parameter that may wait; a trainer that has one more waits until one has left.
  uint32_t send_queue_size = 1;
  // Parameters are asked for again, behind the next gradients, once so many of a parameter have
  // left.
  uint32_t min_send_grad_num_before_recv = 1;
  // Async and GEO.
  // True: parameters come in the background and a step starts with the newest that are there; with
  // GEO the servers' values are taken at the end of the step during which they come.
  // False: a step ends when values that hold its own gradients (differences) are there.
  bool independent_recv = true;

  // Async: bounded staleness (SSP; Ho et al., NIPS 2013). A worker that has done c steps goes on
  // while c - min over workers <= s, with values that hold every update up to step c - s. Without:
  // no bound. 0 is synchronous training: the strategy takes the programs and the runtime of
  // SyncStrategy, so that its bits are those of sync; make_exchange refuses it.
  // Implies that values are received in step; one trainer thread, no merging.
  std::optional<uint32_t> staleness_bound;

  DelayCompensationOptions delay_compensation;  // async and half-async

  uint32_t geo_update_frequency = 100;  // k, in local steps
  uint32_t easgd_tau = 10;              // in local steps
  // 0: 0.9 / N, as in the paper's experiments (beta = 0.9).
  double easgd_alpha = 0.0;

  // Upper bound of threads that a worker sends with; one sends today.
  uint32_t thread_pool_size = 5;

  bool operator==(const AsyncOptions&) const = default;
};

std::string_view to_string(DelayCompensation form);  // "none", "paddle", "constant", …
std::optional<DelayCompensation> parse_delay_compensation(std::string_view text);

// Throws UsageError for a value out of range and for two fields that contradict each other, naming
// both.
void validate(const AsyncOptions& options);

// What every process of the job must agree on, by name, for ParameterServerConfig::facts.
std::map<std::string, std::string> async_facts(const AsyncOptions& options);

}  // namespace fleet::strategies
