#include "strategies/collective/local_average.h"

#include <array>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::strategies {
namespace {

using fluid::DType;
using fluid::Tensor;
using transport::ElementType;

constexpr std::array<std::pair<DType, ElementType>, 2> kTypes = {
    std::pair{DType::kFloat32, ElementType::kFloat32},
    std::pair{DType::kFloat64, ElementType::kFloat64}};

// The values of a slot of the op; slots are in the order of their names.
std::span<fluid::Value* const> values_of(const fluid::CommCall& call, std::string_view slot) {
  size_t begin = 0;
  for (const auto& [name, variables] : call.op.inputs) {
    if (name == slot) return call.inputs.subspan(begin, variables.size());
    begin += variables.size();
  }
  return {};
}

Tensor& tensor_of(fluid::Value* value, const fluid::CommCall& call, size_t i) {
  auto* tensor = value == nullptr ? nullptr : std::get_if<Tensor>(value);
  if (tensor != nullptr && tensor->initialized()) return *tensor;
  throw_error(ErrorCode::kInvalidProgram,
              {.what = "a parameter that is to be averaged has no value",
               .where = str_cat("op ", call.op.type, ", variable ", call.op.input("X")[i]),
               .expected = "a dense tensor",
               .got = "none",
               .fix = "run the startup program first"});
}

double scalar_of(const fluid::CommCall& call, std::string_view slot) {
  const auto values = values_of(call, slot);
  const auto* tensor =
      values.empty() || values[0] == nullptr ? nullptr : std::get_if<Tensor>(values[0]);
  return tensor != nullptr && tensor->initialized() ? tensor->item<double>() : 0;
}

template <class T>
void divide(const std::byte* sums, int64_t by, size_t bytes, void* means) {
  const auto* from = reinterpret_cast<const T*>(sums);
  auto* to = static_cast<T*>(means);
  for (size_t i = 0; i < bytes / sizeof(T); ++i) to[i] = from[i] / static_cast<T>(by);
}

}  // namespace

LocalAverage::LocalAverage(const LocalSgdOptions& options, GradientReducerOptions waits)
    : schedule_(options), waits_(std::move(waits)) {}

std::vector<ReductionShape> LocalAverage::shapes(const fluid::Block& block,
                                                 const fluid::Operator& op) const {
  std::vector<ReductionShape> shapes;
  if (schedule_.adapts()) shapes.push_back({ElementType::kFloat64, 1});
  for (const auto& [dtype, type] : kTypes) {
    size_t count = 0;
    for (const std::string& name : op.input("X")) {
      const fluid::VarDesc& var = block.var(name);
      if (var.dtype == dtype) count += static_cast<size_t>(var.shape.numel());
    }
    if (count > 0) shapes.push_back({type, count});
  }
  return shapes;
}

bool LocalAverage::step(const fluid::CommCall& call) {
  return schedule_.step(schedule_.adapts() ? scalar_of(call, "Loss") : 0);
}

void LocalAverage::average(const fluid::CommCall& call,
                           transport::CollectiveCommunicator& communicator,
                           const transport::ShardLayout& one_each, int64_t workers) {
  const double loss = schedule_.adapts() ? mean_loss(communicator, one_each, workers) : 0;
  std::vector<Tensor*> parameters;
  const auto values = values_of(call, "X");
  for (size_t i = 0; i < values.size(); ++i) parameters.push_back(&tensor_of(values[i], call, i));
  average(std::move(parameters), communicator, one_each, workers);
  schedule_.averaged(loss, scalar_of(call, "LearningRate"));
}

void LocalAverage::average(std::vector<Tensor*> values,
                           transport::CollectiveCommunicator& communicator,
                           const transport::ShardLayout& one_each, int64_t workers) {
  for (const auto& each : kTypes) {
    const DType dtype = each.first;
    const ElementType type = each.second;
    size_t bytes = 0;
    for (const Tensor* value : values) bytes += value->dtype() == dtype ? value->bytes() : 0;
    if (bytes == 0) continue;
    if (packed_.size() < bytes) packed_ = Buffer(bytes);
    std::vector<Tensor> hosts;
    hosts.reserve(values.size());
    for (const Tensor* value : values) hosts.push_back(value->on_host());
    const auto for_each = [&](const auto& visit) {
      std::byte* at = packed_.data();
      for (Tensor& host : hosts) {
        if (host.dtype() != dtype) continue;
        visit(host.raw(), at, host.bytes());
        at += host.bytes();
      }
    };
    for_each([](const void* value, std::byte* packed, size_t size) {
      std::memcpy(packed, value, size);
    });
    const size_t count = bytes / size_of(type);
    const void* part = packed_.data();
    auto token =
        communicator.all_reduce(one_each, type, {&part, 1}, packed_.data(), count,
                                {.phase = "averaging parameters", .step = schedule_.steps()});
    wait_for(token, waits_);
    for_each([&](void* value, const std::byte* packed, size_t size) {
      if (dtype == DType::kFloat32) divide<float>(packed, workers, size, value);
      if (dtype == DType::kFloat64) divide<double>(packed, workers, size, value);
    });
    for (size_t i = 0; i < values.size(); ++i) values[i]->copy_from(hosts[i]);
  }
}

double LocalAverage::mean_loss(transport::CollectiveCommunicator& communicator,
                               const transport::ShardLayout& one_each, int64_t workers) {
  const double mine = schedule_.local_loss();
  const void* part = &mine;
  double sum = 0;
  auto token = communicator.all_reduce(one_each, ElementType::kFloat64, {&part, 1}, &sum, 1,
                                       {.phase = "averaging the loss", .step = schedule_.steps()});
  wait_for(token, waits_);
  return sum / static_cast<double>(workers);
}

}  // namespace fleet::strategies
