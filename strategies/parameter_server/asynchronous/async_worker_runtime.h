// The runtime behind an asynchronous trainer program: what its send, send_barrier and recv ops mean
// in each mode (async_options.h).
//
// Several trainer threads may run the program at once, each with an executor and a scope of its own
// (trainer_threads.h). Threads share nothing that is written: gradients are copied into queues, and
// values come as whole new tensors, which a step begins with and which stay as they are while
// anybody reads them. So there are no races to be benign, and a thread never sees half an update.
#pragma once

#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/log.h"
#include "fluid/kernels/comm_runtime.h"
#include "strategies/parameter_server/asynchronous/async_link.h"
#include "strategies/parameter_server/asynchronous/local_training.h"
#include "strategies/parameter_server/asynchronous/trainer_threads.h"

namespace fleet::strategies {

class AsyncWorkerRuntime final : public fluid::CommRuntime, public ThreadedRuntime {
 public:
  // `origin` is the program before it was transpiled: its persistable variables make up a
  // checkpoint. `server_names` are the endpoints as programs name them (epmap), by server index;
  // empty: those of `config`. Throws UsageError when the options are not valid.
  AsyncWorkerRuntime(ParameterServerConfig config, AsyncOptions options,
                     transport::TransportChoice transport, fluid::Program origin,
                     std::vector<std::string> server_names = {}, Logger logger = {});
  ~AsyncWorkerRuntime() override;

  // As in worker_runtime.h.
  void init_worker() { link_.start(); }
  // What is queued arrives, GEO and EASGD exchange what the last steps changed. Executors that
  // trained must still be there: UsageError (kPrecondition), behind the leave, when steps are lost.
  void stop_worker();
  // Tells the others that this worker ends the job, in that step of its own.
  void abort(const Status& why, uint64_t step) { link_.abort(why, step); }
  void barrier_worker() { link_.barrier("barrier_worker"); }
  std::vector<double> all_reduce_worker(std::span<const double> values) {
    return link_.all_reduce(values);
  }
  std::vector<std::string> pull(const std::vector<std::string>& names, fluid::Scope& scope);
  bool assign(const std::string& name, const fluid::Tensor& value);
  // Steps that were made, over all threads.
  uint64_t step() const { return link_.steps(); }

  // ThreadedRuntime
  void enter_thread(uint32_t thread, fluid::Scope& scope, const fluid::Scope& parent) override;
  void leave_thread(fluid::Scope& scope) override;

  // fluid::CommRuntime; but for what it says, from any trainer thread.
  fluid::ShardRange shards() const override { return {}; }
  void begin_step(const fluid::Program& program, uint64_t step) override;
  void end_step(const fluid::Program& program, uint64_t step) override;
  std::unique_ptr<fluid::CommToken> run(const fluid::CommCall& call) override;
  const fluid::Program* checkpoint_program() const override { return &origin_; }
  bool gather_persistables(fluid::Scope& scope) override;
  bool gather(std::span<const std::string> names, fluid::Scope& scope) override;
  void spread_persistables(fluid::Scope& scope) override;

 private:
  enum class Kind {
    kNothing,
    kGradient,
    kMeet,
    kInitial,
    kValues,
    kStart,
    kLocalStep,
    kLookup,
    kRows,
    kPrefetch,
    kSaveTable
  };
  // What an op of a program means.
  struct BoundOp {
    Kind kind = Kind::kNothing;
    // Of its inputs or outputs; of the notice that training starts, what no recv op brings.
    std::vector<RemoteTensor> tensors;
    std::vector<uint32_t> numbers;  // of the tensors as gradients or values
    bool first_of_step = false;     // of the recv ops
    bool meets = false;             // threads meet here
    RemoteTable table;              // of lookups
    RemotePrefetch prefetch;
    std::vector<RemoteSnapshot> snapshots;
  };
  using BoundProgram = std::unordered_map<const fluid::Operator*, BoundOp>;
  struct Thread {
    uint32_t number = 0;
    SharedValues values;  // of the step that is ending
  };

  const BoundOp& bind(const fluid::CommCall& call);
  const BoundOp* bind_by_name(const fluid::CommCall& call);
  void bind_block(const fluid::Block& block, BoundProgram& program);
  BoundOp bind_send(const fluid::Operator& op);
  void bind_start(const fluid::Block& block, BoundProgram& program);
  bool trains_locally() const;
  void send(const fluid::CommCall& call, const BoundOp& bound);
  void look_up(const fluid::CommCall& call, const BoundOp& bound);
  void receive_rows(const fluid::CommCall& call, const BoundOp& bound);
  void meet();
  void exchange_of_all(std::unique_lock<std::mutex>& lock);
  void take_values(const fluid::CommCall& call, const BoundOp& bound);
  void receive_initial(const fluid::CommCall& call, const BoundOp& bound);
  void start(fluid::Scope& scope, const BoundOp& bound);
  Thread& thread_of(const fluid::Scope& scope);

  const ParameterServerConfig config_;
  const AsyncOptions options_;
  fluid::Program origin_;
  std::vector<std::string> server_names_;
  AsyncLink link_;
  LocalTraining local_;

  std::mutex mutex_;                        // guards what follows; a Thread belongs to its thread
  std::map<uint64_t, BoundProgram> bound_;  // by program id
  // Lookups of programs that were not transpiled, by program id and op.
  std::map<std::pair<uint64_t, const fluid::Operator*>, BoundOp> named_;
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
