// Base classes for strategies that put themselves between programs and another strategy: everything
// goes on to the inner one but what a derived class overrides.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fluid/tables/growing_table.h"
#include "strategies/runtime/strategy.h"

namespace fleet::strategies {

class ForwardingRuntime : public StrategyRuntime {
 public:
  // Not null.
  explicit ForwardingRuntime(std::shared_ptr<StrategyRuntime> inner) : inner_(std::move(inner)) {}

  // StrategyRuntime
  void init_worker() override { inner_->init_worker(); }
  void stop_worker() override { inner_->stop_worker(); }
  void abort_worker(const Status& why, uint64_t step) override { inner_->abort_worker(why, step); }
  void enter_thread(uint32_t thread, fluid::Scope& scope, const fluid::Scope& parent) override {
    inner_->enter_thread(thread, scope, parent);
  }
  void leave_thread(fluid::Scope& scope, fluid::Scope& parent) override {
    inner_->leave_thread(scope, parent);
  }
  bool has_trainer_threads() const override { return inner_->has_trainer_threads(); }
  bool steps_together() const override { return inner_->steps_together(); }
  void barrier_worker() override { inner_->barrier_worker(); }
  std::vector<double> all_reduce_worker(std::span<const double> values) override {
    return inner_->all_reduce_worker(values);
  }
  std::vector<double> all_reduce_training(std::span<const double> values) override {
    return inner_->all_reduce_training(values);
  }
  bool in_step() const override { return inner_->in_step(); }
  void ask_to_save() override { inner_->ask_to_save(); }
  uint64_t saves_asked() const override { return inner_->saves_asked(); }
  void set_on_save(std::function<void()> on_save) override {
    inner_->set_on_save(std::move(on_save));
  }
  void saved(uint64_t saves) override { inner_->saved(saves); }
  void meet_to_save() override { inner_->meet_to_save(); }
  std::vector<std::string> server_variables() override { return inner_->server_variables(); }
  std::string write_server_parts(const std::string& folder, int first, int parts) override {
    return inner_->write_server_parts(folder, first, parts);
  }
  std::string check_server_parts(const std::string& folder, uint32_t checksum) override {
    return inner_->check_server_parts(folder, checksum);
  }
  void read_server_parts(const std::string& folder, uint32_t checksum) override {
    inner_->read_server_parts(folder, checksum);
  }
  std::vector<std::string> own_variables() override { return inner_->own_variables(); }
  std::vector<double> own_counts() override { return inner_->own_counts(); }
  void set_own_counts(std::span<const double> counts) override { inner_->set_own_counts(counts); }
  void set_steps_before(uint64_t steps) override { inner_->set_steps_before(steps); }

  // fluid::CommRuntime
  const char* refusal() const override { return inner_->refusal(); }
  fluid::StepShards shards() const override { return inner_->shards(); }
  bool sums_on(const fluid::Place& place) override { return inner_->sums_on(place); }
  void wait_for_leads() override { inner_->wait_for_leads(); }
  void begin_step(const fluid::Program& program, uint64_t step) override {
    inner_->begin_step(program, step);
  }
  void end_step(const fluid::Program& program, uint64_t step) override {
    inner_->end_step(program, step);
  }
  void fed(int64_t rows) override { inner_->fed(rows); }
  void will_feed(const fluid::Program& program, NextFeed feed) override {
    inner_->will_feed(program, feed);
  }
  std::unique_ptr<fluid::CommToken> run(const fluid::CommCall& call) override {
    return inner_->run(call);
  }
  void sum_shards(const fluid::CommCall& call, std::span<const double* const> parts, double* out,
                  size_t count) override {
    inner_->sum_shards(call, parts, out, count);
  }
  // The own one, where it was set.
  fluid::FiniteWatch* finite_watch() override {
    fluid::FiniteWatch* own = StrategyRuntime::finite_watch();
    return own != nullptr ? own : inner_->finite_watch();
  }
  const fluid::Program* checkpoint_program() const override { return inner_->checkpoint_program(); }
  bool gather_persistables(fluid::Scope& scope) override {
    return inner_->gather_persistables(scope);
  }
  bool gather(const ModelValues& values, fluid::Scope& trained, fluid::Scope& scope) override {
    return inner_->gather(values, trained, scope);
  }
  bool keeps_tables() const override { return inner_->keeps_tables(); }
  TableFiles save_table(const std::string& table, const std::filesystem::path& folder,
                        const std::string& name) override {
    return inner_->save_table(table, folder, name);
  }
  void drop_tables(std::span<const std::string> tables) noexcept override {
    inner_->drop_tables(tables);
  }
  void load_tables(const FilesOfTables& files) override { inner_->load_tables(files); }
  uint64_t end_pass(const std::string& table, const fluid::tables::PassRule& rule,
                    fluid::Scope& scope) override {
    return inner_->end_pass(table, rule, scope);
  }
  std::vector<std::filesystem::path> save_table_delta(const std::string& table,
                                                      const std::filesystem::path& file,
                                                      fluid::Scope& scope) override {
    return inner_->save_table_delta(table, file, scope);
  }
  fluid::tables::TableStatistics table_statistics(const std::string& table,
                                                  const fluid::Scope& scope) override {
    return inner_->table_statistics(table, scope);
  }
  void spread_persistables(fluid::Scope& scope) override { inner_->spread_persistables(scope); }
  void begin_saving(fluid::Scope& scope) override { inner_->begin_saving(scope); }
  void read_values(std::span<const std::string> names, fluid::Scope& scope) override {
    inner_->read_values(names, scope);
  }
  void end_saving() override { inner_->end_saving(); }
  void give_values(std::span<const std::string> names, fluid::Scope& scope) override {
    inner_->give_values(names, scope);
  }
  void start_from(fluid::Scope& scope) override { inner_->start_from(scope); }

 protected:
  StrategyRuntime& inner() const { return *inner_; }

 private:
  std::shared_ptr<StrategyRuntime> inner_;
};

// A derived class names itself and overrides rewrite(), which begins with inner().rewrite(input).
class ForwardingStrategy : public Strategy {
 public:
  // Not null.
  explicit ForwardingStrategy(std::shared_ptr<const Strategy> inner) : inner_(std::move(inner)) {}

  StrategyResult rewrite(const StrategyInput& input) const override {
    return inner_->rewrite(input);
  }
  std::string to_string() const override { return inner_->to_string(); }
  std::string describe(const RuntimeConfig& config) const override {
    return inner_->describe(config);
  }
  std::vector<std::string> recompute_checkpoints() const override {
    return inner_->recompute_checkpoints();
  }
  std::shared_ptr<const transpiler::DistributeTranspilerConfig> transpiler_config() const override {
    return inner_->transpiler_config();
  }

 protected:
  const Strategy& inner() const { return *inner_; }

 private:
  std::shared_ptr<const Strategy> inner_;
};

}  // namespace fleet::strategies
