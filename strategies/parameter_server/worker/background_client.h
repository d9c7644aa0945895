// What exchanges with trainer threads have in common: trainer threads on one side, the loop of an
// asynchronous worker's requests on the other. The loop has a thread of its own, which merges,
// sends and receives while trainers compute; trainers whose steps are short do that themselves, at
// the ends of their steps and while they wait (strategies/parameter_server/worker/shared_loop.h).
// Under virtual time there is one thread, and it drives the loop while trainers wait.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "strategies/parameter_server/client/async_client.h"
#include "strategies/parameter_server/client/worker_node.h"
#include "strategies/parameter_server/worker/exchange.h"
#include "strategies/parameter_server/worker/worker_loops.h"

namespace fleet::strategies {

// Any thread may call everything, but construct, define, stop and destroy from one.
class BackgroundClient : public Exchange {
 public:
  // `options` as they are worked by, not as they were given.
  BackgroundClient(ParameterServerConfig config, AsyncOptions options, WorkerLoops loops,
                   Logger logger);
  // Ends the job, with this worker to blame, unless it has stopped.
  ~BackgroundClient() override;
  BackgroundClient(const BackgroundClient&) = delete;
  BackgroundClient& operator=(const BackgroundClient&) = delete;

  void start() override;
  // The client's parameter indexes may be read afterwards.
  const ServerClient& ready() override;
  // What is queued arrives; then the worker leaves.
  void stop() override;
  bool stopped() const override { return stopped_; }
  void abort(const Status& why, uint64_t step) override {
    node_->abort(why, transport::Phase::kComputing, step);
  }
  void barrier(transport::Group group, const std::string& name) override;
  std::vector<double> all_reduce(transport::Group group, const std::string& name,
                                 std::vector<double> values) override;
  uint64_t steps() const override { return steps_.load(std::memory_order_relaxed); }
  // UsageError for more threads than the job was told of.
  void enter_thread(uint32_t thread, fluid::Scope& scope, const fluid::Scope& parent) override;
  bool has_trainer_threads() const override { return true; }
  void begin_step() override;
  void end_step() override {}
  // On the loop's thread.
  void request(transport::Phase phase, std::string_view what, const Ask& ask) override;
  void fetch(transport::Phase phase, std::span<const RemoteMemory> values) override;
  void assign(std::span<const RemoteMemory> values) override;
  void drain() override { synchronize(); }
  void ask_to_save() override { node_->member().ask_to_save(); }
  uint64_t saves_asked() const override { return node_->member().saves_asked(); }
  void set_on_save(std::function<void()> on_save) override { on_save_ = std::move(on_save); }
  void saved(uint64_t saves) override { saves_made_ = saves; }
  void meet_to_save() override;
  void leave_behind(const std::string& name, std::vector<double> values) override {
    node_->member().leave_behind(name, std::move(values));
  }
  void begin_saving(fluid::Scope&) override {
    drain();
    barrier(transport::Group::kTraining, "begin_saving");
  }
  void end_saving() override { barrier(transport::Group::kTraining, "end_saving"); }

  // What is sent and received; returns a number for each. What has the same place as one that was
  // added before gets that one's number.
  std::vector<uint32_t> add_gradients(const std::vector<RemoteTensor>& gradients);
  std::vector<uint32_t> add_values(const std::vector<RemoteTensor>& values);

  // Memory for a gradient that is queued next; waits while its queue is full.
  Buffer memory_for(uint32_t gradient, uint64_t bytes);
  // Queues what was written into that memory. `order` says which comes first of those that are
  // merged, when they are queued for the same exchange.
  void queue(uint32_t gradient, Buffer memory, uint32_t order = 0);
  // Queues a copy; waits while the queue is full.
  void queue_rows(uint32_t gradient, const fluid::SelectedRows& rows, uint32_t order = 0);
  // Lets what is queued leave.
  void flush();
  // Everything queued leaves, and values that hold it come back.
  SharedValues synchronize() { return finish(begin_synchronize()); }
  // The same in two parts, with time for other work between them.
  using Ticket = std::shared_ptr<const bool>;
  Ticket begin_synchronize();
  bool is_over(const Ticket& ticket) const;  // finish() would not wait
  SharedValues finish(const Ticket& ticket);
  // Values as they are now.
  SharedValues fetch_values();
  // The newest that have come; null while none have.
  SharedValues latest() const;

  // A step was made; the number is for heartbeats and messages.
  void count_step() { steps_.fetch_add(1, std::memory_order_relaxed); }

 protected:
  const AsyncOptions& options() const { return options_; }
  // Called when the job has failed, on the loop's thread; may not call this object. Set before
  // anything else.
  void set_on_failure(std::function<void()> on_failure) { on_failure_ = std::move(on_failure); }
  // Throws when the job has failed.
  void check();
  // Puts the servers' values of an op's variables into its outputs.
  void receive_initial(const fluid::CommCall& call, const BoundOp& bound);

 private:
  struct Queued {
    uint32_t gradient = 0;
    uint32_t order = 0;
    QueuedGradient content;
  };
  using Lock = std::unique_lock<std::mutex>;

  AsyncClient::Events events();
  // On the loop's thread.
  void guarded(const std::function<void()>& work);
  void take_queued();
  void note_ready();
  void note_failure(const Status& why);
  void complete(const std::shared_ptr<bool>& done, const Status& status);

  using Meet = std::function<Status(std::optional<uint64_t> saves)>;
  void meet(transport::Phase phase, const std::string& name, const Meet& call);
  // Ends the threads of both loops.
  void end_threads();
  void set_phase(transport::Phase phase);
  // Runs a call to the coordinator that blocks.
  void ask_coordinator(transport::Phase phase, std::string_view what,
                       const std::function<Status()>& call);
  void pump(Lock& lock);
  void run_or_post(const std::function<void()>& work);
  Ticket begin(const std::function<void(transport::DoneHandler)>& work);
  void wait_for(const Ticket& ticket, transport::Phase phase, std::string_view what);
  void run(transport::Phase phase, std::string_view what,
           const std::function<void(transport::DoneHandler)>& work) {
    wait_for(begin(work), phase, what);
  }
  template <class Done>
  void wait(Lock& lock, transport::Phase phase, std::string_view what, const Done& done);
  [[noreturn]] void fail(transport::Phase phase, std::string_view what, Duration elapsed);
  void wait_for_room(Lock& lock, uint32_t gradient);
  void put(uint32_t gradient, uint32_t order, QueuedGradient content, uint64_t bytes);
  Buffer take_buffer(uint32_t gradient, uint64_t bytes);

  const ParameterServerConfig config_;
  const AsyncOptions options_;
  const WorkerLoops loops_;
  RequestLoop& data_;
  std::unique_ptr<WorkerNode<AsyncClient>> node_;  // on the data loop
  std::atomic<uint64_t> steps_{0};

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  Status failure_;
  bool ready_ = false;
  bool pump_posted_ = false;
  uint32_t sleeping_ = 0;  // threads that wait while another one drives the loop
  std::vector<Queued> inbox_;
  size_t inbox_bytes_ = 0;
  std::vector<uint32_t> queued_;              // by gradient: here and in the client's queue
  std::vector<std::vector<Buffer>> buffers_;  // by gradient; those that nobody else holds are free
  SharedValues latest_;

  std::function<void()> on_failure_;
  std::function<void()> on_save_;
  uint64_t saves_made_ = 0;  // requests that this worker has seen to
  bool started_ = false;
  bool stopped_ = false;
};

}  // namespace fleet::strategies
