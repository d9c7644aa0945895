// The exchange of asynchronous and half-asynchronous workers (async_options.h).
//
// Trainer threads share nothing that is written: gradients are copied into queues, and values come
// as whole new tensors, which a step begins with and which stay as they are while anybody reads
// them. So there are no races to be benign, and a thread never sees half an update.
#pragma once

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>

#include "strategies/parameter_server/worker/background_client.h"
#include "strategies/parameter_server/worker/rows/hot_rows.h"

namespace fleet::strategies {

class BackgroundExchange final : public BackgroundClient {
 public:
  BackgroundExchange(const ParameterServerConfig& config, const AsyncOptions& options,
                     WorkerLoops loops, Logger logger);

  void enter_thread(uint32_t thread, fluid::Scope& scope, const fluid::Scope& parent) override;
  void leave_thread(fluid::Scope& scope, fluid::Scope& parent) override;

  // Rows that were looked up not long ago (hot_rows.h); not for tests.
  std::vector<std::shared_ptr<KeptRows>> kept_rows(fluid::Scope& scope,
                                                   const RemoteGrowingTables& tables) override;
  void forget_kept_rows() override;
  void restarted(fluid::Scope&) override { forget_kept_rows(); }
  void prepare(const fluid::Block& block, BoundBlock& bound) override;
  void end_step() override;
  Token send(const fluid::CommCall& call, const BoundOp& bound) override;
  void send_barrier() override;
  Token receive(const fluid::CommCall& call, const BoundOp& bound) override;

  void fetch(transport::Phase phase, std::span<const RemoteMemory> values) override;

 private:
  struct Notes;
  struct Thread {
    uint32_t number = 0;
    SharedValues values;  // of the step that is ending
  };

  Thread& thread_of(const fluid::Scope& scope);
  void meet();
  void exchange_of_all(std::unique_lock<std::mutex>& lock);
  SharedValues values_of_step();

  const uint32_t hot_row_steps_;  // 0: none are kept

  std::mutex hot_mutex_;                                 // guards what follows
  std::map<std::string, std::shared_ptr<HotRows>> hot_;  // by growing table

  std::mutex threads_mutex_;  // guards what follows; a Thread belongs to its thread
  std::map<const fluid::Scope*, Thread> threads_;

  std::mutex meeting_mutex_;  // guards what follows
  std::condition_variable met_;
  uint32_t training_ = 0;  // threads that entered and have not left
  uint32_t arrived_ = 0;
  uint64_t meetings_ = 0;
  std::exception_ptr meeting_failure_;
  bool failed_ = false;
};

}  // namespace fleet::strategies
