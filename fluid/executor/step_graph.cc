#include <exception>

#include "base/log.h"
#include "base/strings.h"
#include "fluid/executor/step_graph_impl.h"
#include "fluid/kernels/device_kernels.h"

namespace fleet::fluid {
namespace {

std::string obstacle_of(const Plan& plan) {
  if (plan.communicates()) return "the program exchanges values with other processes";
  for (const PlanOp& op : plan.ops()) {
    const std::string name = str_cat("op '", op.op->type, "'");
    if (op.block != nullptr) return name + " runs a block";
    if (op.place.is_cpu() || op.copies) return name + " runs on the CPU";
    if (op.schema->draws_numbers && !redraws_when_repeated(op.op->type)) {
      return name + " draws other random numbers in each step";
    }
    if (op.schema->run_by != RunBy::kKernel) return name + " is not a kernel's";
  }
  for (const PlanVar& var : plan.vars()) {
    if (var.feed >= 0 && var.desc != nullptr && var.desc->lod_level > 0) {
      return str_cat("'", var.name, "' is fed sequences");
    }
    if (var.desc != nullptr && var.desc->kind == VarKind::kSelectedRows) {
      return str_cat("'", var.name,
                     "' is selected rows, whose numbers the host gives to each step");
    }
  }
  return {};
}

}  // namespace

StepGraph::StepGraph(Workspace& workspace)
    : workspace_(workspace), obstacle_(obstacle_of(workspace.plan())) {}

void StepGraph::spots(std::vector<Spot>& spots) const {
  spots.clear();
  for (int i = 0; i < static_cast<int>(workspace_.plan().vars().size()); ++i) {
    const auto* tensor = std::get_if<Tensor>(&workspace_.value(i));
    Spot& spot = spots.emplace_back();
    if (tensor != nullptr && tensor->initialized()) spot = {tensor->raw(), tensor->shape()};
  }
}

void StepGraph::record(const std::function<void()>& run_ops) {
  const Place& place = workspace_.plan().key().place;
  void* const stream = workspace_.stream();
  if (!begin_recording(place, stream)) {
    obstacle_ = "this device repeats no recorded work";
    return;
  }
  try {
    run_ops();
  } catch (const std::exception& error) {
    // What also fails op by op is told there.
    end_recording(place, stream);
    obstacle_ = error.what();
    return;
  }
  graph_ = end_recording(place, stream);
  if (graph_ == nullptr) obstacle_ = "the device could not record the step";
  // An op that took other memory meanwhile would not find it in a later step.
  spots(now_);
  if (now_ != known_) graph_.reset();
}

// A program without feeds, as a startup program, is not run again and again.
void StepGraph::tell(const std::string& why) {
  if (!told_ && !workspace_.plan().key().feeds.empty()) {
    Logger().warning("executor", "cuda_graph has no effect on this program", {{"why", why}});
  }
  told_ = true;
}

bool StepGraph::run(const Workspace::Step& step, const std::function<void()>& run_ops) {
  const bool looked_at = step.profile != nullptr || step.check_nan_inf || step.watch != nullptr;
  if (!obstacle_.empty() || looked_at) {
    tell(obstacle_.empty() ? "its ops are profiled, checked for NaN or watched by a job one by one"
                           : obstacle_);
    return false;
  }
  spots(now_);
  if (now_ != known_) {
    std::swap(known_, now_);
    settled_ = 0;
    graph_.reset();
    return false;
  }
  if (graph_ == nullptr && ++settled_ > 1) record(run_ops);
  if (graph_ == nullptr) return false;
  run_recorded(workspace_.plan().key().place, graph_.get(), workspace_.stream(), step.number);
  return true;
}

}  // namespace fleet::fluid
