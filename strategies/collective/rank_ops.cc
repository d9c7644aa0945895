#include "strategies/collective/rank_ops.h"

#include <vector>

#include "base/error.h"
#include "base/shard_tree.h"
#include "base/strings.h"
#include "fluid/ops/distributed/comm.h"

namespace fleet::strategies {
namespace {

using fluid::CommCall;
using fluid::DType;
using fluid::Shape;
using fluid::Tensor;
using transport::CollectiveCommunicator;

constexpr const char* kMax = "c_allreduce_max";
constexpr const char* kMin = "c_allreduce_min";
constexpr const char* kProd = "c_allreduce_prod";
constexpr const char* kGather = "c_allgather";
constexpr const char* kScatter = "c_reducescatter";

[[noreturn]] void throw_type(const CommCall& call, DType type, const char* expected) {
  throw_error(ErrorCode::kDTypeMismatch,
              {.what = "a tensor of this type cannot be reduced over ranks",
               .where = str_cat("op ", call.op.type, ", variable ", join(call.op.input("X"), ",")),
               .expected = expected,
               .got = std::string(fluid::dtype_name(type)),
               .fix = "cast it before it is reduced"});
}

// Element i of the arrays [begin, end), one for each rank, by the tree over the ranks.
template <class T, class Combine>
T fold(std::span<const T* const> arrays, size_t i, int begin, int end, Combine combine) {
  if (end - begin == 1) return arrays[static_cast<size_t>(begin)][i];
  const int middle = begin + tree_split(end - begin);
  return combine(fold(arrays, i, begin, middle, combine), fold(arrays, i, middle, end, combine));
}

template <class T, class Combine>
void fold_all(std::span<const T* const> arrays, T* out, size_t count, Combine combine) {
  const auto ranks = static_cast<int>(arrays.size());
  for (size_t i = 0; i < count; ++i) out[i] = fold(arrays, i, 0, ranks, combine);
}

template <class T>
void combine_as(const std::string& type, const std::byte* all, int ranks, Tensor& output) {
  const auto count = static_cast<size_t>(output.numel());
  std::vector<const T*> arrays;
  arrays.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    arrays.push_back(reinterpret_cast<const T*>(all) + static_cast<size_t>(rank) * count);
  }
  const std::span<const T* const> parts = arrays;
  T* out = output.data<T>();
  if (type == kMax) {
    fold_all(parts, out, count, [](T a, T b) { return a != a || a > b ? a : b; });
  } else if (type == kMin) {
    fold_all(parts, out, count, [](T a, T b) { return a != a || a < b ? a : b; });
  } else {
    fold_all(parts, out, count, [](T a, T b) { return static_cast<T>(a * b); });
  }
}

void combine(const CommCall& call, const std::byte* all, int ranks, Tensor& output) {
  const std::string& type = call.op.type;
  switch (output.dtype()) {
    case DType::kFloat32:
      return combine_as<float>(type, all, ranks, output);
    case DType::kFloat64:
      return combine_as<double>(type, all, ranks, output);
    case DType::kInt32:
      return combine_as<int32_t>(type, all, ranks, output);
    case DType::kInt64:
      return combine_as<int64_t>(type, all, ranks, output);
    default:
      throw_type(call, output.dtype(), "float32, float64, int32 or int64");
  }
}

void all_reduce(const CommCall& call, CollectiveCommunicator& communicator,
                const GradientReducerOptions& options) {
  const Tensor& input = comm_input(call);
  Tensor& output = comm_output(call, input);
  Buffer all(input.bytes() * static_cast<size_t>(communicator.size()));
  auto token = communicator.all_gather(
      {static_cast<const std::byte*>(input.raw()), input.bytes()}, {all.data(), all.size()},
      {.phase = "all-reduce of values", .step = static_cast<int64_t>(call.step)});
  wait_for(token, options);
  combine(call, all.data(), communicator.size(), output);
}

void check_ranks(const CommCall& call, int ranks) {
  const auto attrs = fluid::parse_attributes<fluid::CRowsAttrs>(call.op.type, call.op.attrs);
  if (attrs.nranks == ranks) return;
  throw_error(ErrorCode::kHandshakeRefused,
              {.what = "the program was made for another number of ranks",
               .where = str_cat("op ", call.op.type, ", nranks"),
               .expected = str_cat(ranks, ", the job's"),
               .got = str_cat(attrs.nranks),
               .fix = "make the program for the ranks that run it"});
}

Shape with_rows(const Tensor& input, int64_t rows) {
  Shape shape = input.shape();
  shape.set(0, rows);
  return shape;
}

// Another variable than X, because it has another shape.
Tensor& own_output(const CommCall& call, const Tensor& input, const Shape& shape) {
  if (call.outputs.empty() || call.outputs[0] == nullptr || call.outputs[0] == call.inputs[0]) {
    fail_comm_value(call, "Out");
  }
  fluid::Value& value = *call.outputs[0];
  if (!std::holds_alternative<Tensor>(value)) value = Tensor();
  auto& output = std::get<Tensor>(value);
  if (!output.initialized() || output.shape() != shape || output.dtype() != input.dtype() ||
      !(output.place() == input.place())) {
    output.reset(input.dtype(), shape, input.place());
  }
  return output;
}

const Tensor& rows_of(const CommCall& call) {
  const Tensor& input = comm_input(call);
  if (input.shape().rank() == 0) fail_comm_value(call, "X");
  return input;
}

void gather(const CommCall& call, CollectiveCommunicator& communicator,
            const GradientReducerOptions& options) {
  const Tensor& input = rows_of(call);
  Tensor& output =
      own_output(call, input, with_rows(input, input.shape()[0] * communicator.size()));
  auto token = communicator.all_gather(
      {static_cast<const std::byte*>(input.raw()), input.bytes()},
      {static_cast<std::byte*>(output.raw()), output.bytes()},
      {.phase = "all-gather of rows", .step = static_cast<int64_t>(call.step)});
  wait_for(token, options);
}

void scatter(const CommCall& call, CollectiveCommunicator& communicator,
             const GradientReducerOptions& options) {
  const Tensor& input = rows_of(call);
  const int ranks = communicator.size();
  if (input.shape()[0] % ranks != 0) {
    throw_error(ErrorCode::kShapeMismatch, {.what = "the rows do not divide into the ranks",
                                            .where = str_cat("op ", call.op.type, ", slot X"),
                                            .expected = str_cat("a multiple of ", ranks, " rows"),
                                            .got = input.shape().to_string(),
                                            .fix = "change the number of rows"});
  }
  const auto type = comm_element_type(input, call);
  Tensor& output = own_output(call, input, with_rows(input, input.shape()[0] / ranks));
  const transport::ShardLayout one_each(ranks, ranks);
  const std::vector<size_t> counts(static_cast<size_t>(ranks), static_cast<size_t>(output.numel()));
  const void* part = input.raw();
  auto token = communicator.reduce_scatter(
      one_each, type, {&part, 1}, output.raw(), counts,
      {.phase = "reduce-scatter of rows", .step = static_cast<int64_t>(call.step)});
  wait_for(token, options);
}

}  // namespace

bool is_rank_op(std::string_view type) {
  return type == kMax || type == kMin || type == kProd || type == kGather || type == kScatter;
}

void run_rank_op(const CommCall& call, CollectiveCommunicator& communicator,
                 const GradientReducerOptions& options) {
  const std::string& type = call.op.type;
  if (type != kGather && type != kScatter) return all_reduce(call, communicator, options);
  check_ranks(call, communicator.size());
  if (type == kGather) return gather(call, communicator, options);
  scatter(call, communicator, options);
}

void fail_comm_value(const CommCall& call, std::string_view slot) {
  throw_error(ErrorCode::kInvalidProgram, {.what = "a communication op needs dense tensors",
                                           .where = str_cat("op ", call.op.type, ", slot ", slot),
                                           .expected = "one tensor",
                                           .got = "no value, or one that is not a dense tensor",
                                           .fix = "run the startup program first"});
}

Tensor& comm_input(const CommCall& call, size_t at) {
  auto* tensor = call.inputs.size() <= at || call.inputs[at] == nullptr
                     ? nullptr
                     : std::get_if<Tensor>(call.inputs[at]);
  if (tensor == nullptr || !tensor->initialized()) fail_comm_value(call, "X");
  return *tensor;
}

Tensor& comm_output(const CommCall& call, const Tensor& input, size_t at) {
  if (call.outputs.size() <= at || call.outputs[at] == nullptr) fail_comm_value(call, "Out");
  fluid::Value& value = *call.outputs[at];
  if (&value == call.inputs[at]) return std::get<Tensor>(value);
  if (!std::holds_alternative<Tensor>(value)) value = Tensor();
  auto& output = std::get<Tensor>(value);
  if (!output.initialized() || output.shape() != input.shape() || output.dtype() != input.dtype()) {
    output.reset(input.dtype(), input.shape(), input.place());
  }
  return output;
}

std::optional<transport::ElementType> element_type(DType dtype) {
  if (dtype == DType::kFloat32) return transport::ElementType::kFloat32;
  if (dtype == DType::kFloat64) return transport::ElementType::kFloat64;
  if (dtype == DType::kInt64) return transport::ElementType::kInt64;
  return std::nullopt;
}

transport::ElementType comm_element_type(const Tensor& tensor, const CommCall& call) {
  if (const auto type = element_type(tensor.dtype())) return *type;
  throw_type(call, tensor.dtype(), "float32, float64 or int64");
}

}  // namespace fleet::strategies
