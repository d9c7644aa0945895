#include "fluid/kernels/op_places.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "fluid/ops/op_schema.h"

namespace fleet::fluid {
namespace {

bool is_of_kind(VarKind kind, const Block& block, const std::string& name) {
  const VarDesc* desc = name.empty() ? nullptr : block.find_var_recursive(name);
  return desc != nullptr && desc->kind == kind && desc->typed;
}

bool is_rows(const Block& block, const std::string& name) {
  return is_of_kind(VarKind::kSelectedRows, block, name);
}

// What a variable is that no block declares is not known.
bool is_dense(const Block& block, const std::string& name) {
  return name.empty() || block.find_var_recursive(name) == nullptr ||
         is_of_kind(VarKind::kLodTensor, block, name);
}

template <class Holds>
bool any_variable(const Operator& op, const Holds& holds) {
  for (const SlotMap* slots : {&op.inputs, &op.outputs}) {
    for (const auto& [slot, names] : *slots) {
      if (std::any_of(names.begin(), names.end(), holds)) return true;
    }
  }
  return false;
}

bool has_rows(const Block& block, const Operator& op) {
  return any_variable(op, [&](const std::string& name) { return is_rows(block, name); });
}

bool all_dense_or_rows(const Block& block, const Operator& op) {
  return !any_variable(
      op, [&](const std::string& name) { return !is_dense(block, name) && !is_rows(block, name); });
}

// What is known of an op's inputs before it runs.
std::vector<ValueSpec> declared_specs(const Block& block, const Operator& op) {
  std::vector<ValueSpec> specs;
  for (const auto& [slot, names] : op.inputs) {
    for (const std::string& name : names) {
      ValueSpec spec;
      if (const VarDesc* desc = block.find_var_recursive(name)) {
        spec = {.kind = ValueKind::kTensor, .dtype = desc->dtype, .shape = desc->shape};
      }
      specs.push_back(spec);
    }
  }
  return specs;
}

bool is_true(const Operator& op, std::string_view name) {
  const Attribute* attr = op.attr(name);
  const auto* set = attr == nullptr ? nullptr : std::get_if<bool>(attr);
  return set != nullptr && *set;
}

bool asks_for_host(const Operator& op) {
  const Attribute* attr = op.attr("op_device");
  const auto* device = attr == nullptr ? nullptr : std::get_if<std::string>(attr);
  return is_true(op, "force_cpu") || (device != nullptr && *device == "cpu");
}

bool has_attribute_tensors(const OpSchema& schema, const Operator& op) {
  return std::any_of(schema.inputs.begin(), schema.inputs.end(), [&op](const SlotSpec& slot) {
    return slot.for_attribute && !op.input(slot.name).empty();
  });
}

}  // namespace

std::string_view to_string(HostReason reason) {
  switch (reason) {
    case HostReason::kNone:
      return "on the device";
    case HostReason::kHostPlace:
      return "the program runs on the CPU";
    case HostReason::kRuntime:
      return "the job's runtime carries it out";
    case HostReason::kServers:
      return "its values are the servers'";
    case HostReason::kServerTable:
      return "its table may be on servers";
    case HostReason::kSparseTable:
      return "its table is updated on the host";
    case HostReason::kBlock:
      return "runs a block, whose ops have places of their own";
    case HostReason::kShards:
      return "shards of a step meet there";
    case HostReason::kLearningRate:
      return "the learning rate";
    case HostReason::kTensorAttribute:
      return "tensors give its attributes";
    case HostReason::kAsked:
      return "it says so itself";
    case HostReason::kGradientOfBlock:
      return "in a block whose gradient is computed";
    case HostReason::kNotDense:
      return "selected rows or an array";
    case HostReason::kHostRows:
      return "selected rows that are made on the host";
    case HostReason::kNoKernel:
      return "no kernel on the device";
    case HostReason::kNoKernelOfType:
      return "no kernel on the device for its types";
  }
  return "";
}

const Block* block_of(const Block& block, const Operator& op) {
  if (schema_of(block.program(), op).run_by != RunBy::kExecutor) return nullptr;
  const Attribute* attr = op.attr("sub_block");
  const auto* inner = attr == nullptr ? nullptr : std::get_if<BlockRef>(attr);
  const bool known =
      inner != nullptr && inner->index > 0 && inner->index < block.program().block_count();
  return known ? &block.program().block(inner->index) : nullptr;
}

OpPlaces::OpPlaces(const Block& block, const KernelTable& kernels, const Place& place,
                   Options options)
    : kernels_(kernels), place_(place), options_(options) {
  if (place.is_cpu()) return;
  find_host_blocks(block);
  const auto of_host_blocks = written_;
  walk(block);
  find_host_tables(block);
  if (host_tables_.empty()) return;
  written_ = of_host_blocks;
  read_.clear();
  walk(block);
}

// Updates by rows that run on the host keep their table there, and lookups with it.
void OpPlaces::find_host_tables(const Block& block) {
  for (const auto& op : block.ops()) {
    if (const Block* inner = block_of(block, *op)) find_host_tables(*inner);
    if (!is_true(*op, "is_sparse")) continue;
    const std::string& slot = schema_of(block.program(), *op).table_slot;
    if (slot.empty()) continue;
    for (const std::string& table : op->input(slot)) {
      const auto found = written_.find(table);
      if (found != written_.end() && found->second.is_cpu()) host_tables_.insert(table);
    }
  }
}

// Blocks whose gradient the program computes: a backward op runs a block, too.
void OpPlaces::find_host_blocks(const Block& block) {
  const bool differentiated =
      std::any_of(block.ops().begin(), block.ops().end(), [&block](const auto& op) {
        return has_role(op->role, OpRole::kBackward) && block_of(block, *op) != nullptr;
      });
  for (const auto& op : block.ops()) {
    const Block* inner = block_of(block, *op);
    if (inner == nullptr) continue;
    find_host_blocks(*inner);
    if (differentiated) keep_on_host(block, *op);
  }
}

// The op's block, and what it shares with its surroundings.
void OpPlaces::keep_on_host(const Block& block, const Operator& op) {
  for (const std::string& name : op.input_names()) written_.emplace(name, CPUPlace());
  for (const std::string& name : op.output_names()) written_.emplace(name, CPUPlace());
  const Block* inner = block_of(block, op);
  if (inner == nullptr) return;
  host_blocks_.insert(inner->index());
  for (const auto& each : inner->ops()) keep_on_host(*inner, *each);
}

void OpPlaces::walk(const Block& block) {
  for (const auto& op : block.ops()) {
    if (const Block* inner = block_of(block, *op)) walk(*inner);
    if (schema_of(block.program(), *op).only_orders) continue;
    const Place place = of(block, *op);
    if (options_.strict && place.is_cpu()) require_kernel(block, *op);
    for (const auto& [slot, names] : op->inputs) {
      const Place reads = of_input(block, *op, slot);
      for (const std::string& name : names) {
        const auto [found, added] = read_.emplace(name, reads);
        if (!added && !reads.is_cpu()) found->second = reads;
      }
    }
    for (const std::string& name : op->output_names()) written_.emplace(name, place);
  }
}

HostReason OpPlaces::why_always_host(const Block& block, const Operator& op) const {
  const OpSchema& schema = schema_of(block.program(), op);
  switch (schema.run_by) {
    case RunBy::kRuntime:
      return schema.takes_devices && options_.device_sums ? HostReason::kNone
                                                          : HostReason::kRuntime;
    case RunBy::kExecutor:
      return HostReason::kBlock;
    case RunBy::kShards:
      return HostReason::kShards;
    case RunBy::kKernel:
      break;
  }
  const bool looks_up = !schema.table_slot.empty();
  const bool of_rows = looks_up || is_true(op, "is_sparse");
  if (of_rows && !options_.tables_here) return HostReason::kServerTable;
  if (looks_up && looks_up_on_host(block, op)) return HostReason::kSparseTable;
  if (schema.leaves_values_to_servers) return HostReason::kServers;
  if (has_role(op.role, OpRole::kLrSched)) return HostReason::kLearningRate;
  if (has_attribute_tensors(schema, op)) return HostReason::kTensorAttribute;
  return asks_for_host(op) ? HostReason::kAsked : HostReason::kNone;
}

bool OpPlaces::looks_up_on_host(const Block& block, const Operator& op) const {
  const auto& tables = op.input(schema_of(block.program(), op).table_slot);
  return std::any_of(tables.begin(), tables.end(),
                     [this](const std::string& name) { return host_tables_.contains(name); });
}

// Or nothing that the job's runtime could do in place of a kernel.
HostReason OpPlaces::why_no_kernel(const Block& block, const Operator& op) const {
  if (!all_dense_or_rows(block, op)) return HostReason::kNotDense;
  const bool rows = has_rows(block, op);
  if (schema_of(block.program(), op).run_by == RunBy::kRuntime) {
    return rows ? HostReason::kNotDense : HostReason::kNone;
  }
  const auto kernels = kernels_of(block, op);
  if (kernels.empty()) {
    return kernels_.knows(op.type, place_.kind) ? HostReason::kNoKernelOfType
                                                : HostReason::kNoKernel;
  }
  const bool takes_rows = std::any_of(kernels.begin(), kernels.end(),
                                      [](const Kernel& kernel) { return kernel.takes_rows; });
  if (rows && !takes_rows) return HostReason::kNotDense;
  return reads_rows_of_host(block, op) ? HostReason::kHostRows : HostReason::kNone;
}

std::span<const Kernel> OpPlaces::kernels_of(const Block& block, const Operator& op) const {
  return kernels_.find(op.type, place_.kind, kernel_dtype(block, op, declared_specs(block, op)));
}

bool OpPlaces::reads_rows_of_host(const Block& block, const Operator& op) const {
  const auto names = op.input_names();
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return is_rows(block, name) && home(name).is_cpu();
  });
}

void OpPlaces::require_kernel(const Block& block, const Operator& op) const {
  if (why_always_host(block, op) != HostReason::kNone ||
      why_no_kernel(block, op) == HostReason::kNone) {
    return;
  }
  throw_error(ErrorCode::kNotSupported,
              {.what = "no kernel computes this op on the device, and strict_place is set",
               .where = op.to_string(),
               .expected = "an op that has a kernel on " + place_.to_string() +
                           " for the types of its variables",
               .got = op.type,
               .fix = "leave strict_place unset: the op then runs on the CPU, and what it reads "
                      "and writes is copied"});
}

HostReason OpPlaces::why_host(const Block& block, const Operator& op) const {
  if (place_.is_cpu()) return HostReason::kHostPlace;
  if (host_blocks_.contains(block.index())) return HostReason::kGradientOfBlock;
  const HostReason always = why_always_host(block, op);
  return always == HostReason::kNone ? why_no_kernel(block, op) : always;
}

Place OpPlaces::of(const Block& block, const Operator& op) const {
  return why_host(block, op) == HostReason::kNone ? place_ : CPUPlace();
}

Place OpPlaces::of_input(const Block& block, const Operator& op, std::string_view slot) const {
  const Place place = of(block, op);
  if (place.is_cpu() || !has_rows(block, op)) return place;
  const auto kernels = kernels_of(block, op);
  const bool on_host = std::any_of(kernels.begin(), kernels.end(), [slot](const Kernel& kernel) {
    const auto& slots = kernel.host_slots;
    return std::find(slots.begin(), slots.end(), slot) != slots.end();
  });
  return on_host ? CPUPlace() : place;
}

Place OpPlaces::home(std::string_view variable) const {
  if (const auto found = written_.find(variable); found != written_.end()) return found->second;
  const auto found = read_.find(variable);
  return found == read_.end() ? CPUPlace() : found->second;
}

}  // namespace fleet::fluid
