#include "fluid/executor/plan/placed_program.h"

#include <set>
#include <string>

#include "fluid/executor/plan/plan_impl.h"
#include "fluid/program/live_blocks.h"

namespace fleet::fluid {
namespace {

using Names = std::set<std::string, std::less<>>;

Names written_by(const Program& program, const std::set<int32_t>& blocks) {
  Names written;
  for (const int32_t index : blocks) {
    for (const auto& op : program.block(index).ops()) {
      for (const std::string& name : op->output_names()) written.insert(name);
    }
  }
  return written;
}

// Data, and what is read and never written; but for what runtimes alone are told of.
std::vector<std::string> fed_variables(const Program& program) {
  const std::set<int32_t> blocks = live_blocks(program);
  const Names written = written_by(program, blocks);
  Names fed;
  for (const int32_t index : blocks) {
    for (const auto& op : program.block(index).ops()) {
      const bool of_runtime = schema_of(program, *op).run_by == RunBy::kRuntime;
      for (const std::string& name : op->input_names()) {
        const VarDesc* desc = program.global_block().find_var(name);
        if (desc == nullptr || desc->persistable) continue;
        if (desc->is_data || (!of_runtime && !written.contains(name))) fed.insert(name);
      }
    }
  }
  return {fed.begin(), fed.end()};
}

class Placing {
 public:
  explicit Placing(const OpPlaces& places) : places_(places) {}

  void add(const Plan& plan, bool in_shards) {
    for (size_t k = 0; k < plan.ops().size(); ++k) {
      const auto at = static_cast<int>(k);
      const bool once_a_shard =
          in_shards || (plan.sharded() && at >= plan.head() && at < plan.tail());
      add(plan, plan.ops()[k], once_a_shard);
    }
  }

  PlacedProgram take() { return std::move(placed_); }

 private:
  void add(const Plan& plan, const PlanOp& op, bool once_a_shard) {
    PlacedOp placed{.block = &plan.block(), .once_a_shard = once_a_shard};
    if (op.copies) {
      const PlanVar& to = plan.vars()[static_cast<size_t>(op.outputs.front())];
      placed.copied = to.desc;
      placed.to_device = !to.place.is_cpu();
    } else {
      placed.op = op.op;
      placed.why_host = places_.why_host(plan.block(), *op.op);
    }
    placed_.ops.push_back(placed);
    if (op.block != nullptr) add(*op.block, once_a_shard);
  }

  const OpPlaces& places_;
  PlacedProgram placed_;
};

}  // namespace

PlacedProgram placed_program(const Program& program, const KernelTable& kernels, const Place& place,
                             OpPlaces::Options options) {
  const auto plan = Plan::compile({.program = &program,
                                   .block = 0,
                                   .feeds = fed_variables(program),
                                   .fetches = {},
                                   .place = place,
                                   .strict_place = options.strict,
                                   .device_sums = options.device_sums,
                                   .tables_here = options.tables_here},
                                  kernels, true);
  const OpPlaces places(program.global_block(), kernels, place, options);
  Placing placing(places);
  placing.add(*plan, false);
  PlacedProgram placed = placing.take();
  for (const PlanVar& var : plan->vars()) {
    if (var.feed >= 0 && !var.place.is_cpu()) placed.fed.push_back(var.desc);
  }
  return placed;
}

}  // namespace fleet::fluid
