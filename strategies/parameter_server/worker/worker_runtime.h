// The runtime behind a trainer program: binds its ops to what the servers keep, looks rows up, and
// moves whole variables for checkpoints; gradients and values are its exchange's.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "strategies/parameter_server/worker/exchange.h"
#include "strategies/runtime/strategy_runtime.h"

namespace fleet::strategies {

// Used by one thread, the one that trains; in modes with trainer threads by all of them, each with
// an executor and a scope of its own (fluid/executor/training/trainer_threads.h).
class WorkerRuntime final : public StrategyRuntime {
 public:
  // `options` tell the mode. `origin` is the program before it was transpiled:
  // its persistable variables make up a checkpoint. `server_names` are the endpoints as programs
  // name them (epmap), by server index; empty: those of `config`. Throws UsageError when the
  // options are not valid.
  WorkerRuntime(const ParameterServerConfig& config, const AsyncOptions& options,
                transport::TransportChoice transport, fluid::Program origin,
                std::vector<std::string> server_names = {}, Logger logger = {});
  // The same over an exchange that somebody else has made, as that worker.
  WorkerRuntime(uint32_t index, std::unique_ptr<Exchange> exchange, fluid::Program origin,
                std::vector<std::string> server_names);

  // Puts whole variables as the servers have them now into the scope, slices joined. Returns the
  // names that no server keeps.
  std::vector<std::string> pull(const std::vector<std::string>& names, fluid::Scope& scope);
  // Gives a variable (all its slices) its initial value; before any worker's first step. Nothing
  // happens when no server keeps it; returns whether one does.
  bool assign(const std::string& name, const fluid::Tensor& value);
  // Steps that are over, of all threads.
  uint64_t step() const { return exchange_->steps(); }
  // Lookups whose rows had been asked for in the step before.
  uint64_t lookups_ahead() const { return lookups_ahead_; }

  // StrategyRuntime
  // Begins to connect; the first op does it if nobody did. Servers may come later, until the rpc
  // deadline.
  void init_worker() override { exchange_->start(); }
  void stop_worker() override;
  void abort_worker(const Status& why, uint64_t step) override { exchange_->abort(why, step); }
  void enter_thread(uint32_t thread, fluid::Scope& scope, const fluid::Scope& parent) override;
  void leave_thread(fluid::Scope& scope, fluid::Scope& parent) override {
    exchange_->leave_thread(scope, parent);
  }
  bool has_trainer_threads() const override { return exchange_->has_trainer_threads(); }
  void barrier_worker() override {
    exchange_->barrier(transport::Group::kWorkers, "barrier_worker");
  }
  std::vector<double> all_reduce_worker(std::span<const double> values) override {
    return exchange_->all_reduce(transport::Group::kWorkers, kAllReduceWorker,
                                 {values.begin(), values.end()});
  }
  std::vector<double> all_reduce_training(std::span<const double> values) override {
    return exchange_->all_reduce(transport::Group::kTraining, kAllReduceTraining,
                                 {values.begin(), values.end()});
  }
  void leave_behind(std::span<const double> values) override {
    exchange_->leave_behind(kAllReduceTraining, {values.begin(), values.end()});
  }
  bool in_step() const override { return exchange_->in_step(); }
  void ask_to_save() override { exchange_->ask_to_save(); }
  uint64_t saves_asked() const override { return exchange_->saves_asked(); }
  void set_on_save(std::function<void()> on_save) override {
    exchange_->set_on_save(std::move(on_save));
  }
  void saved(uint64_t saves) override { exchange_->saved(saves); }
  void meet_to_save() override { exchange_->meet_to_save(); }
  std::vector<std::string> server_variables() override;
  std::string write_server_parts(const std::string& folder, int first, int parts) override;
  std::string check_server_parts(const std::string& folder, uint32_t checksum) override;
  void read_server_parts(const std::string& folder, uint32_t checksum) override;
  std::vector<std::string> own_variables() override;
  std::vector<double> own_counts() override { return exchange_->own_counts(); }
  void set_own_counts(std::span<const double> counts) override {
    exchange_->set_own_counts(counts);
  }
  void set_steps_before(uint64_t steps) override;

  // fluid::CommRuntime
  fluid::StepShards shards() const override { return exchange_->shards(); }
  void will_feed(const fluid::Program& program, NextFeed feed) override;
  void begin_step(const fluid::Program&, uint64_t) override { exchange_->begin_step(); }
  void end_step(const fluid::Program&, uint64_t) override {
    exchange_->end_step();
    runs_.fetch_add(1, std::memory_order_relaxed);
  }
  std::unique_ptr<fluid::CommToken> run(const fluid::CommCall& call) override;
  const fluid::Program* checkpoint_program() const override { return &origin_; }
  bool gather_persistables(fluid::Scope& scope) override;
  bool gather(const ModelValues& values, fluid::Scope& trained, fluid::Scope& scope) override;
  void spread_persistables(fluid::Scope& scope) override;
  bool keeps_tables() const override { return true; }
  TableFiles save_table(const std::string& table, const std::filesystem::path& folder,
                        const std::string& name) override;
  void drop_tables(std::span<const std::string> tables) noexcept override;
  void load_tables(const FilesOfTables& files) override;
  uint64_t end_pass(const std::string& table, const fluid::tables::PassRule& rule,
                    fluid::Scope& scope) override;
  std::vector<std::filesystem::path> save_table_delta(const std::string& table,
                                                      const std::filesystem::path& file,
                                                      fluid::Scope& scope) override;
  fluid::tables::TableStatistics table_statistics(const std::string& table,
                                                  const fluid::Scope& scope) override;
  void begin_saving(fluid::Scope& scope) override { exchange_->begin_saving(scope); }
  void read_values(std::span<const std::string> names, fluid::Scope& scope) override {
    pull({names.begin(), names.end()}, scope);
  }
  void end_saving() override { exchange_->end_saving(); }
  void give_values(std::span<const std::string> names, fluid::Scope& scope) override;
  void start_from(fluid::Scope& scope) override;

 private:
  static constexpr const char* kAllReduceTraining = "all_reduce_training";

  // Rows of a table that are as they are in one version; strictly ascending.
  struct FetchedRows {
    uint64_t version = 0;
    std::weak_ptr<const void> memory;  // that they are in
    std::vector<int64_t> rows;
  };

  // A lookup of growing tables that was asked for in the step before, and its ids.
  struct AheadLookup {
    std::vector<fluid::Tensor> ids;
    std::unique_ptr<GrowingLookup> lookup;
    uint64_t step = 0;  // whose values its rows are
    Exchange::Request request;
  };
  struct NextLookup {
    std::vector<fluid::Tensor> ids;      // of the step behind the one that runs; empty: unknown
    std::unique_ptr<AheadLookup> asked;  // of the one that runs, then of the one behind it
  };
  using LookupOp = std::pair<uint64_t, const fluid::Operator*>;  // of a program, by id

  std::string load_server_parts(const PartSource& source);
  void check_growing_table(const std::string& table);
  // Between two steps, when all workers have come, the first one gives orders, and none goes on
  // before servers have carried them out. Returns what `give` does, in every worker. UsageError in
  // each when one refuses. `call`: by which all have come, for those who read that somebody waits.
  uint64_t order_together(const std::string& call, std::span<const std::string> tables,
                          fluid::Scope& scope, const std::function<uint64_t()>& give);
  uint64_t order_rows(const TableOrder& order, std::span<const std::string> files);
  void order_each(std::span<const std::string> tables, TableOrder::Action action);
  // When `prepare` throws, servers drop what it had them prepare for any of these tables.
  void for_all_or_none(std::span<const std::string> tables, const std::function<void()>& prepare);
  // For each server or for none: orders that `prepare` gives are carried out behind kCommit.
  void in_two_steps(std::span<const std::string> tables, const std::function<void()>& prepare);
  static void throw_refused(std::span<const std::string> tables, bool ordered, bool refused);
  static void check_seen(const std::string& file);
  // A file for each server: its path with ".0-of-2" before the extension.
  std::vector<std::string> files_of_servers(const std::filesystem::path& file);
  // The answers of all servers, by server; UsageError when one did not do it.
  std::vector<TableAnswer> order_tables(transport::Phase phase, TableOrder order,
                                        std::span<const std::string> files = {});
  const BoundOp& bind(const fluid::CommCall& call);
  void look_up(const fluid::CommCall& call, const BoundOp& bound);
  void look_up_growing(const fluid::CommCall& call, const BoundOp& bound);
  // What was asked ahead, when it is of these ids and no other step came in between.
  std::unique_ptr<AheadLookup> take_asked(const fluid::CommCall& call,
                                          std::span<const fluid::Tensor* const> ids);
  // By table of the op, rows that are here; empty where none are.
  std::vector<std::shared_ptr<KeptRows>> kept_rows(const fluid::CommCall& call,
                                                   const RemoteGrowingTables& tables);
  void ask_ahead(const fluid::CommCall& call);
  void drop_lookups_ahead();
  const BoundOp* bound_op(const LookupOp& op);  // null: it has not run yet
  void finish(const AheadLookup& lookup);
  void finish_making();
  void receive_rows(const fluid::CommCall& call, const BoundOp& bound);
  void fetch_rows(const fluid::CommCall& call, RowLookup& lookup);
  std::vector<std::string> checkpoint_names() const;

  const uint32_t index_;
  const fluid::Program origin_;
  std::vector<std::string> server_names_;
  // Of a thread that trains alone. Requests under way write into them.
  std::map<LookupOp, NextLookup> next_;
  std::vector<std::unique_ptr<AheadLookup>> making_;  // rows that were read ahead
  uint64_t lookups_ahead_ = 0;
  uint64_t orders_ = 0;
  std::atomic<uint64_t> runs_{0};  // of programs, by all threads: the age of kept rows
  const std::unique_ptr<Exchange> exchange_;
  std::mutex mutex_;                                    // guards bound_
  std::map<uint64_t, BoundBlock> bound_;                // by program id
  std::map<const fluid::Value*, FetchedRows> fetched_;  // by the table's value
};

}  // namespace fleet::strategies
