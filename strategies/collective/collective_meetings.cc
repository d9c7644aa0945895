// Workers that do not take steps: what they do while others take theirs, and how they meet.
#include <algorithm>
#include <cstring>

#include "base/strings.h"
#include "strategies/collective/collective_runtime.h"

namespace fleet::strategies {
namespace {

using transport::ElementType;

const fluid::Operator* find_op(const fluid::Program& program, std::string_view type) {
  for (const auto& op : program.global_block().ops()) {
    if (op->type == type) return op.get();
  }
  return nullptr;
}

std::optional<ElementType> element_type(fluid::DType dtype) {
  if (dtype == fluid::DType::kFloat32) return ElementType::kFloat32;
  if (dtype == fluid::DType::kFloat64) return ElementType::kFloat64;
  if (dtype == fluid::DType::kInt64) return ElementType::kInt64;
  return std::nullopt;
}

// The gradients in the order in which a step reduces them; those of rows are only counted.
std::vector<ReductionShape> gradients_of(const fluid::Program& program, size_t& of_rows) {
  std::vector<ReductionShape> gradients;
  of_rows = 0;
  for (int32_t b = 0; b < program.block_count(); ++b) {
    const fluid::Block& block = program.block(b);
    for (const auto& op : block.ops()) {
      if (op->type != "c_allreduce_sum") continue;
      for (const std::string& name : op->input("X")) {
        const fluid::VarDesc& var = block.var(name);
        if (var.kind == fluid::VarKind::kSelectedRows) {
          ++of_rows;
          continue;
        }
        const auto type = element_type(var.dtype);
        if (type && var.shape.numel() >= 0) {
          gradients.push_back({*type, static_cast<size_t>(var.shape.numel())});
        }
      }
    }
  }
  return gradients;
}

std::vector<fluid::Tensor*> tensors_in(const std::vector<std::string>& names,
                                       const fluid::Scope& scope) {
  std::vector<fluid::Tensor*> found;
  for (const std::string& name : names) {
    fluid::Value* value = scope.find(name);
    auto* tensor = value == nullptr ? nullptr : std::get_if<fluid::Tensor>(value);
    if (tensor != nullptr && tensor->initialized()) found.push_back(tensor);
  }
  return found;
}

uint64_t total_bytes(std::span<fluid::Tensor* const> tensors) {
  uint64_t bytes = 0;
  for (const fluid::Tensor* tensor : tensors) bytes += tensor->bytes();
  return bytes;
}

}  // namespace

bool CollectiveRuntime::trains(const fluid::Program& program) {
  const auto found = trains_.find(program.id());
  if (found != trains_.end()) return found->second;
  const bool answer = find_op(program, "c_allreduce_sum") != nullptr;
  trains_.emplace(program.id(), answer);
  return answer;
}

// Mean over those who contributed: the program divided by all shards of the step.
double CollectiveRuntime::contribution_factor() {
  if (!stepping_) return 1;
  const int64_t shards = gathering_->finish().shards;
  return shards == layout_.shards()
             ? 1.0
             : static_cast<double>(layout_.shards()) / static_cast<double>(shards);
}

void CollectiveRuntime::expect(const fluid::Program& program) {
  if (!average_) {
    expected_ = GradientReducer::shapes_of(gradients_of(program, row_gradients_),
                                           options_.reducer.bucket_bytes);
  } else if (const fluid::Operator* op = find_op(program, "c_local_sgd")) {
    expected_ = average_->shapes(program.global_block(), *op);
  }
}

// The reductions of the own last step, which the others' steps have too.
void CollectiveRuntime::give_empty_step() {
  const auto last = average_ ? expected_ : reducer_->shapes();
  empty_->give(last.empty() ? expected_ : last, steps_);
  if (!average_) rows_->give_nothing(row_gradients_, steps_);
}

Gathered CollectiveRuntime::meet(Meeting kind, uint64_t size) {
  connect();
  while (true) {
    gathering_->begin({.kind = Intent::Kind::kMeet, .meeting = kind, .size = size}, steps_);
    const Gathered& gathered = gathering_->finish();
    if (gathered.stepping == 0) return gathered;
    give_empty_step();
  }
}

void CollectiveRuntime::leave() {
  if (!communicator_ || communicator_->size() == 1) return;
  while (true) {
    gathering_->begin({.kind = Intent::Kind::kLeave}, steps_);
    const Gathered& gathered = gathering_->finish();
    if (gathered.stepping > 0) {
      give_empty_step();
    } else if (gathered.meeting > 0) {
      shadow(gathered);
    } else {
      return;
    }
  }
}

// A worker that leaves takes part in what the others meet for, with nothing.
void CollectiveRuntime::shadow(const Gathered& meeting) {
  switch (meeting.kind) {
    case Meeting::kBarrier:
      return;
    case Meeting::kReduce: {
      const ReductionShape part{ElementType::kFloat64, meeting.size};
      EmptyContribution(*communicator_, one_each_, options_.reducer).give({&part, 1}, steps_);
      return;
    }
    case Meeting::kNewest:
      share_newest({}, meeting.size);
      return;
    case Meeting::kAverage: {
      std::span<const ReductionShape> parts = expected_;
      if (average_ && average_->schedule().adapts()) parts = parts.subspan(1);
      empty_->give(parts, steps_);
      return;
    }
  }
}

void CollectiveRuntime::barrier_worker() {
  (void)meet(Meeting::kBarrier, 0);
}

std::vector<double> CollectiveRuntime::all_reduce_worker(std::span<const double> values) {
  (void)meet(Meeting::kReduce, values.size());
  std::vector<double> sum(values.size());
  const void* part = values.data();
  wait(communicator().all_reduce(one_each_, ElementType::kFloat64, {&part, 1}, sum.data(),
                                 sum.size(), {.phase = "all_reduce_worker"}));
  return sum;
}

void CollectiveRuntime::align(const std::vector<std::string>& persistables,
                              const std::vector<std::string>& parameters, fluid::Scope& scope) {
  connect();
  if (communicator_->size() == 1) return;
  const auto values = tensors_in(average_ ? parameters : persistables, scope);
  const uint64_t bytes = total_bytes(values);
  const Gathered gathered = meet(average_ ? Meeting::kAverage : Meeting::kNewest, bytes);
  if (average_) {
    average_->average(values, *communicator_, one_each_, gathered.meeting);
  } else {
    share_newest(values, bytes);
  }
}

// Every worker says how many steps it has taken, one without values none; the first of those with
// the most gives its values to all.
void CollectiveRuntime::share_newest(std::span<fluid::Tensor* const> values, uint64_t bytes) {
  const int64_t mine = values.empty() ? -1 : static_cast<int64_t>(steps_);
  std::vector<int64_t> all(static_cast<size_t>(communicator_->size()));
  wait(communicator_->all_gather(std::as_bytes(std::span(&mine, 1)),
                                 std::as_writable_bytes(std::span(all)), {.phase = "align"}));
  const auto newest = std::max_element(all.begin(), all.end());
  const bool equal =
      std::all_of(all.begin(), all.end(), [&](int64_t n) { return n == *newest || n < 0; });
  if (equal) return;
  std::vector<std::byte> packed(bytes);
  std::byte* at = packed.data();
  for (const fluid::Tensor* value : values) {
    std::memcpy(at, value->raw(), value->bytes());
    at += value->bytes();
  }
  wait(
      communicator_->broadcast(packed, static_cast<int>(newest - all.begin()), {.phase = "align"}));
  at = packed.data();
  for (fluid::Tensor* value : values) {
    std::memcpy(value->raw(), at, value->bytes());
    at += value->bytes();
  }
}

// One local step; now and then the average over the workers that still take steps.
void CollectiveRuntime::local_sgd(const fluid::CommCall& call) {
  ++steps_;
  if (!average_->step(call) || communicator_->size() == 1) return;
  gathering_->begin({.kind = Intent::Kind::kStep, .shards = 1}, steps_);
  const Gathered& gathered = gathering_->finish();
  average_->average(call, *communicator_, one_each_, gathered.stepping);
}

}  // namespace fleet::strategies
