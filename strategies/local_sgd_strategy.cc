#include "strategies/local_sgd_strategy.h"

#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/no_attrs.h"
#include "strategies/config/options_text.h"
#include "strategies/jobs/collective_job.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::strategies {
namespace {

using fluid::OpRole;

// The variable that the loss op of the program writes; empty when there is none.
std::string loss_of(const fluid::Block& block) {
  for (const auto& op : block.ops()) {
    const bool loss =
        fluid::has_role(op->role, OpRole::kLoss) && !fluid::has_role(op->role, OpRole::kBackward);
    if (loss && !op->output_names().empty()) return op->output_names().front();
  }
  return "";
}

std::string learning_rate_of(const fluid::Block& block) {
  for (const auto& op : block.ops()) {
    const auto& names = op->input("LearningRate");
    if (fluid::has_role(op->role, OpRole::kOptimize) && !names.empty()) return names.front();
  }
  return "";
}

}  // namespace

void append_local_sgd(fluid::Program& program) {
  fluid::Block& block = program.global_block();
  fluid::Operator op;
  op.type = "c_local_sgd";
  for (const auto* parameter : block.parameters()) op.inputs["X"].push_back(parameter->name);
  op.outputs["Out"] = op.inputs["X"];
  if (const auto loss = loss_of(block); !loss.empty()) op.inputs["Loss"] = {loss};
  if (const auto rate = learning_rate_of(block); !rate.empty()) op.inputs["LearningRate"] = {rate};
  op.attrs = fluid::to_attributes(fluid::NoAttrs{});
  op.role = OpRole::kOptimize;
  block.append_op(std::move(op));
}

namespace {

class LocalSgd final : public Strategy {
 public:
  explicit LocalSgd(const LocalSgdOptions& options) : options_(options) { validate(options_); }

  std::string_view name() const override { return "local_sgd"; }

  StrategyResult rewrite(const StrategyInput& input) const override {
    require_collective(input, "LocalSgdStrategy");
    // All start from rank 0's parameters, as with all-reduce; the main program stays local.
    transpiler::DistributeTranspilerConfig config;
    config.mode = "collective";
    config.collective_mode = "grad_allreduce";
    auto programs = transpiler::transpile_for(input.main, input.startup, input.cluster, config,
                                              input.cluster.worker_num);
    fluid::Program main = input.main;
    main.distribution() = programs.main.distribution();
    append_local_sgd(main);
    CollectiveRuntimeOptions runtime{.logical_shards = input.cluster.worker_num,
                                     .local_sgd = options_};
    auto made = make_collective_runtime(input, *this, main, std::move(runtime));
    return {std::move(main), std::move(programs.startup), std::move(made)};
  }

  std::string to_string() const override {
    const LocalSgdOptions defaults;
    return OptionsText()
        .add("interval", options_.interval, defaults.interval)
        .add("start_step", options_.start_step, defaults.start_step)
        .add("rule", strategies::to_string(options_.rule), strategies::to_string(defaults.rule))
        .add("adapt_every", options_.adapt_every, defaults.adapt_every)
        .add("with_learning_rate", options_.with_learning_rate, defaults.with_learning_rate)
        .add("shrink", options_.shrink, defaults.shrink)
        .add("min_interval", options_.min_interval, defaults.min_interval)
        .add("max_interval", options_.max_interval, defaults.max_interval)
        .text();
  }

 private:
  LocalSgdOptions options_;
};

}  // namespace

std::shared_ptr<const Strategy> LocalSgdStrategy::make() const {
  return std::make_shared<LocalSgd>(options);
}

}  // namespace fleet::strategies
