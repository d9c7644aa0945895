#include "fleet/checkpoints/own_state.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "fleet/checkpoints/values.h"
#include "fluid/io/persistables.h"

namespace fleet {
namespace {

using fluid::NamedTensors;
using fluid::Tensor;
using fluid::TensorArray;
using fluid::io::CheckpointReader;

constexpr const char* kCounts = "@counts";
constexpr const char* kReaders = "@readers";

std::string worker_prefix(int worker) {
  return str_cat("worker-", worker, "/");
}

std::string shard_name(size_t shard, const std::string& array) {
  return str_cat("shard-", shard, "/", array);
}

template <class T>
Tensor tensor_of(const std::vector<T>& numbers) {
  return Tensor::from(numbers, {static_cast<int64_t>(numbers.size())});
}

// Such as means that forward passes keep.
std::set<std::string> written_by_forward(const fluid::Program& program) {
  std::set<std::string> written;
  for (const auto& op : program.global_block().ops()) {
    const bool updates =
        has_role(op->role, fluid::OpRole::kOptimize) || has_role(op->role, fluid::OpRole::kLrSched);
    if (updates) continue;
    const auto outputs = op->output_names();
    written.insert(outputs.begin(), outputs.end());
  }
  std::set<std::string> names;
  for (const fluid::VarDesc* var : fluid::persistables(program)) {
    if (written.contains(var->name)) names.insert(var->name);
  }
  return names;
}

template <class T>
Tensor mean_of(const NamedTensors& values) {
  const Tensor& first = values.begin()->second;
  Tensor mean(first.dtype(), first.shape());
  for (int64_t i = 0; i < mean.numel(); ++i) {
    double sum = 0;
    for (const auto& [_, value] : values) sum += static_cast<double>(value.template data<T>()[i]);
    mean.data<T>()[i] = static_cast<T>(sum / static_cast<double>(values.size()));
  }
  return mean;
}

Tensor mean_of(const NamedTensors& values) {
  const bool is_double = values.begin()->second.dtype() == fluid::DType::kFloat64;
  return is_double ? mean_of<double>(values) : mean_of<float>(values);
}

// Reads it, if the checkpoint has it.
Status read_if_there(const CheckpointReader& checkpoint, const std::string& name,
                     const fluid::VarDesc& var, NamedTensors& values) {
  if (!checkpoint.tensors().contains(name)) return {};
  auto value = read_value(checkpoint, name, var);
  if (!value.ok()) return value.status();
  values.emplace(name, std::move(value).value());
  return {};
}

}  // namespace

std::string OwnState::own_name(const std::string& name) const {
  return str_cat(worker_prefix(cluster_.index), name);
}

std::vector<const fluid::VarDesc*> OwnState::arrays() const {
  std::vector<const fluid::VarDesc*> arrays;
  for (const fluid::VarDesc* var : origin_.global_block().vars()) {
    const bool kept = var->persistable && var->kind == fluid::VarKind::kLodTensorArray;
    if (kept) arrays.push_back(var);
  }
  return arrays;
}

std::set<std::string> OwnState::variables() const {
  std::set<std::string> names;
  if (cluster_.worker_num > 1) names = written_by_forward(origin_);
  const std::vector<std::string> of_mode = runtime_.own_variables();
  names.insert(of_mode.begin(), of_mode.end());
  return names;
}

void OwnState::save(const fluid::Scope& scope, const std::vector<int64_t>& positions,
                    NamedTensors& values) const {
  for (const std::string& name : variables()) {
    const Tensor* value = tensor_in(scope, name);
    if (value != nullptr) values.emplace(own_name(name), copy_of(*value));
  }
  const std::vector<double> counts = runtime_.own_counts();
  if (!counts.empty()) values.emplace(own_name(kCounts), tensor_of(counts));
  if (!positions.empty() && !runtime_.in_step()) {
    values.emplace(own_name(kReaders), tensor_of(positions));
  }
  for (const fluid::VarDesc* var : arrays()) {
    const fluid::Value* value = scope.find(var->name);
    const auto* array = value == nullptr ? nullptr : std::get_if<TensorArray>(value);
    for (size_t shard = 0; array != nullptr && shard < array->size(); ++shard) {
      const Tensor& element = (*array)[shard];
      if (element.initialized()) values.emplace(shard_name(shard, var->name), copy_of(element));
    }
  }
}

Status OwnState::read_numbers(const CheckpointReader& checkpoint, const char* name,
                              fluid::DType dtype, NamedTensors& values) const {
  const bool as_many = checkpoint.info().workers == cluster_.worker_num;
  const std::string there = worker_prefix(as_many ? cluster_.index : 0) + name;
  const auto found = checkpoint.tensors().find(there);
  if (found == checkpoint.tensors().end() || found->second.dtype != dtype) return {};
  auto numbers = checkpoint.read(there);
  if (!numbers.ok()) return numbers.status();
  values.emplace(own_name(name), std::move(numbers).value());
  return {};
}

Status OwnState::read_array(const CheckpointReader& checkpoint, const fluid::VarDesc& array,
                            NamedTensors& values) const {
  const fluid::StepShards shards = runtime_.shards();
  const bool as_many = checkpoint.info().logical_shards == shards.total;
  const auto begin = static_cast<size_t>(as_many ? shards.begin : 0);
  const auto end = static_cast<size_t>(as_many ? shards.end : checkpoint.info().logical_shards);
  NamedTensors found;
  for (size_t shard = begin; shard < end; ++shard) {
    Status status = read_if_there(checkpoint, shard_name(shard, array.name), array, found);
    if (!status.ok()) return status;
  }
  if (as_many || found.empty()) {
    values.merge(found);
    return {};
  }
  const Tensor mean = mean_of(found);
  for (int shard = shards.begin; shard < shards.end; ++shard) {
    values.emplace(shard_name(static_cast<size_t>(shard), array.name), mean.clone());
  }
  return {};
}

Status OwnState::read(const CheckpointReader& checkpoint, NamedTensors& values) const {
  Status status = read_numbers(checkpoint, kCounts, fluid::DType::kFloat64, values);
  if (!status.ok()) return status;
  if (checkpoint.info().workers == cluster_.worker_num) {
    status = read_numbers(checkpoint, kReaders, fluid::DType::kInt64, values);
    for (const std::string& name : variables()) {
      if (!status.ok()) return status;
      status = read_if_there(checkpoint, own_name(name), origin_.global_block().var(name), values);
    }
  }
  for (const fluid::VarDesc* array : arrays()) {
    if (!status.ok()) return status;
    status = read_array(checkpoint, *array, values);
  }
  return status;
}

void OwnState::take_counts(const NamedTensors& values) const {
  const auto counts = values.find(own_name(kCounts));
  if (counts != values.end()) runtime_.set_own_counts(counts->second.values<double>());
}

std::vector<int64_t> OwnState::positions(const NamedTensors& values) const {
  const auto positions = values.find(own_name(kReaders));
  if (positions == values.end()) return {};
  const auto numbers = positions->second.values<int64_t>();
  return {numbers.begin(), numbers.end()};
}

void OwnState::take_variables(const NamedTensors& values, fluid::Scope& scope) const {
  for (const std::string& name : variables()) {
    const auto value = values.find(own_name(name));
    if (value != values.end()) scope.var(name) = value->second;
  }
  for (const fluid::VarDesc* var : arrays()) {
    TensorArray array(static_cast<size_t>(runtime_.shards().end));
    bool found = scope.find(var->name) != nullptr;
    for (size_t shard = 0; shard < array.size(); ++shard) {
      const auto value = values.find(shard_name(shard, var->name));
      if (value == values.end()) continue;
      array[shard] = value->second;
      found = true;
    }
    if (found) scope.var(var->name) = array;
  }
}

}  // namespace fleet
