#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/shard_tree.h"
#include "fluid/executor/shards/shard_feeds_impl.h"
#include "fluid/executor/shards/shard_results_impl.h"
#include "fluid/executor/shards/shard_threads_impl.h"
#include "fluid/kernels/shard_rows.h"

namespace fleet::fluid {
namespace {

// Elements [begin, end) of the tree sum of the shards' tensors in the tensors' own type, for a mean
// times 1 / their number. `out` may be one of them.
template <class T>
void join_as(const std::vector<Tensor>& shards, Tensor& out, int64_t begin, int64_t end,
             bool mean) {
  std::vector<const T*> arrays;
  arrays.reserve(shards.size());
  for (const Tensor& shard : shards) arrays.push_back(shard.data<T>() + begin);
  T* result = out.data<T>() + begin;
  const auto n = static_cast<size_t>(end - begin);
  tree_sum<T>(arrays, result, n);
  if (!mean) return;
  const T factor = T{1} / static_cast<T>(shards.size());
  for (size_t i = 0; i < n; ++i) result[i] *= factor;
}

void check_shards(const std::vector<Tensor>& shards, const std::string& name) {
  for (const Tensor& shard : shards) {
    if (shard.shape() == shards.front().shape() && shard.dtype() == shards.front().dtype())
      continue;
    throw_error(ErrorCode::kShapeMismatch, {.what = "the shards of a step made different shapes",
                                            .where = "variable '" + name + "'",
                                            .expected = shards.front().shape().to_string(),
                                            .got = shard.shape().to_string(),
                                            .fix = "use one logical shard for this program"});
  }
  const DType dtype = shards.front().dtype();
  if (dtype == DType::kFloat32 || dtype == DType::kFloat64) return;
  throw_error(ErrorCode::kDTypeMismatch, {.what = "only float32 and float64 are averaged",
                                          .where = "variable '" + name + "'",
                                          .expected = "float32 or float64",
                                          .got = std::string(dtype_name(dtype)),
                                          .fix = "cast it in the program"});
}

void join_elements(const std::vector<Tensor>& shards, Tensor& out, int64_t begin, int64_t end,
                   bool mean) {
  if (out.dtype() == DType::kFloat32) return join_as<float>(shards, out, begin, end, mean);
  join_as<double>(shards, out, begin, end, mean);
}

Tensor joined(const std::vector<Tensor>& shards, const std::string& name, bool mean) {
  check_shards(shards, name);
  Tensor out(shards.front().dtype(), shards.front().shape());
  join_elements(shards, out, 0, out.numel(), mean);
  return out;
}

Tensor tree_mean(const std::vector<Tensor>& shards, const std::string& name) {
  return joined(shards, name, true);
}

bool all_alike(const std::vector<Tensor>& shards) {
  const Tensor& first = shards.front();
  return first.place().is_cpu() &&
         std::all_of(shards.begin(), shards.end(), [&first](const Tensor& shard) {
           return shard.initialized() && shard.bytes() == first.bytes() &&
                  std::memcmp(shard.raw(), first.raw(), first.bytes()) == 0;
         });
}

const Tensor& dense(const Value& value, const std::string& name) {
  const auto* tensor = std::get_if<Tensor>(&value);
  if (tensor != nullptr && tensor->initialized()) return *tensor;
  throw_error(ErrorCode::kInvalidProgram, {.what = "the variable holds no dense tensor",
                                           .where = "variable '" + name + "'",
                                           .expected = "a dense tensor",
                                           .got = "another kind of value, or no value yet",
                                           .fix = "run the startup program first"});
}

}  // namespace

ShardResults::ShardResults(Workspace& home)
    : home_(home),
      gradients_(plan().per_shard().size()),
      sparse_gradients_(plan().per_shard().size()),
      statistics_begin_(plan().statistics().size()),
      statistics_(plan().statistics().size()),
      fetched_(plan().fetches().size()) {}

void ShardResults::begin(int parts) {
  for (auto& tensors : fetched_) tensors.clear();
  if (parts == 1) return;
  const auto count = static_cast<size_t>(parts);
  for (auto& kept : gradients_) kept.resize(count);
  for (auto& kept : sparse_gradients_) kept.resize(count);
  for (size_t i = 0; i < fetched_.size(); ++i) {
    const PlanFetch::Kind kind = plan().fetches()[i].kind;
    const bool per_shard = kind == PlanFetch::Kind::kMean || kind == PlanFetch::Kind::kRows;
    if (per_shard) fetched_[i].resize(count);
  }
  for (size_t i = 0; i < statistics_.size(); ++i) {
    statistics_[i].resize(count);
    const auto* now = std::get_if<Tensor>(&home_.value(plan().statistics()[i]));
    if (now == nullptr || !now->initialized()) continue;
    statistics_begin_[i].reset(now->dtype(), now->shape());
    statistics_begin_[i].copy_from(*now);
  }
}

void ShardResults::start(Workspace& lane) const {
  for (size_t i = 0; i < statistics_.size(); ++i) {
    const Tensor& begin = statistics_begin_[i];
    if (!begin.initialized()) continue;
    Value& value = lane.value(plan().statistics()[i]);
    if (!std::holds_alternative<Tensor>(value)) value = Tensor();
    auto& now = *std::get_if<Tensor>(&value);
    const Place& home = plan().vars()[static_cast<size_t>(plan().statistics()[i])].place;
    if (!now.initialized()) now.reset(begin.dtype(), begin.shape(), home);
    now.copy_from(begin);
  }
}

void ShardResults::keep_gradients(const Workspace& lane, int part, bool copies) {
  const auto at = static_cast<size_t>(part);
  const auto& sums = plan().per_shard();
  for (size_t i = 0; i < sums.size(); ++i) {
    const Value& made = lane.value(sums[i]);
    if (const auto* rows = std::get_if<SelectedRows>(&made)) {
      sparse_gradients_[i][at] = {
          .rows = rows->rows, .height = rows->height, .value = rows->value.copy_to(CPUPlace())};
      continue;
    }
    const Tensor& tensor = dense(made, name_of(sums[i]));
    Tensor& slot = gradients_[i][at];
    if (!copies && tensor.place().is_cpu()) {
      slot = tensor;
      continue;
    }
    slot.reset(tensor.dtype(), tensor.shape());
    slot.copy_from(tensor);
  }
}

void ShardResults::keep_statistics(const Workspace& lane, int part) {
  for (size_t i = 0; i < statistics_.size(); ++i) {
    const auto* now = std::get_if<Tensor>(&lane.value(plan().statistics()[i]));
    if (now == nullptr || !now->initialized()) continue;
    Tensor& made = statistics_[i][static_cast<size_t>(part)];
    made.reset(now->dtype(), now->shape());
    made.copy_from(*now);
  }
}

void ShardResults::keep_fetches(const Workspace& lane, int part) {
  for (size_t i = 0; i < fetched_.size(); ++i) {
    if (fetched_[i].empty()) continue;
    const int var = plan().fetches()[i].var;
    fetched_[i][static_cast<size_t>(part)] =
        dense(lane.value(var), name_of(var)).copy_to(CPUPlace());
  }
}

// Of gradients on a device: added up on the host.
void ShardResults::join_device_gradients(bool sums_only) {
  const auto& sums = plan().per_shard();
  for (size_t i = 0; i < sums.size(); ++i) {
    auto* out = std::get_if<Tensor>(&home_.value(sums[i]));
    if (out == nullptr || out->place().is_cpu()) continue;
    out->copy_from(joined(gradients_[i], name_of(sums[i]), !sums_only));
  }
}

void ShardResults::join_gradients(const Join& join) {
  const auto& sums = plan().per_shard();
  for (size_t i = 0; i < sums.size(); ++i) {
    Value& sum = home_.value(sums[i]);
    if (std::holds_alternative<SelectedRows>(sum)) {
      sum = join.sums ? sum_of_rows(sparse_gradients_[i]) : mean_of_rows(sparse_gradients_[i]);
      move_value(sum, plan().vars()[static_cast<size_t>(sums[i])].place);
    } else {
      check_shards(gradients_[i], name_of(sums[i]));
    }
  }
  if (!plan().key().place.is_cpu()) join_device_gradients(join.sums);
  const auto join_lane = [&](int lane) {
    for (size_t i = 0; i < sums.size(); ++i) {
      auto* out = std::get_if<Tensor>(&home_.value(sums[i]));
      if (out == nullptr || !out->place().is_cpu()) continue;
      const int64_t n = out->numel();
      join_elements(gradients_[i], *out, n * lane / join.lanes, n * (lane + 1) / join.lanes,
                    !join.sums);
    }
  };
  if (join.threads == nullptr) return join_lane(0);
  join.threads->run(join_lane);
}

void ShardResults::join_statistics() {
  for (size_t i = 0; i < statistics_.size(); ++i) {
    if (!statistics_begin_[i].initialized()) continue;
    const int var = plan().statistics()[i];
    Tensor& now = *std::get_if<Tensor>(&home_.value(var));
    // Those that all shards have alike, as from sync_batch_norm, need no mean, which would round.
    const bool alike = all_alike(statistics_[i]);
    now.copy_from(alike ? statistics_[i].front() : tree_mean(statistics_[i], name_of(var)));
  }
}

std::vector<Tensor> ShardResults::fetches(std::span<const Tensor> feeds, bool stay) const {
  std::vector<Tensor> results;
  for (size_t i = 0; i < fetched_.size(); ++i) {
    const PlanFetch& fetch = plan().fetches()[i];
    const PlanVar& var = plan().vars()[static_cast<size_t>(fetch.var)];
    if (fetch.kind == PlanFetch::Kind::kFeed) {
      results.push_back(feeds[static_cast<size_t>(var.feed)].copy_to(CPUPlace()));
    } else if (fetched_[i].empty()) {
      const Tensor& made = dense(home_.value(fetch.var), var.name);
      results.push_back(stay ? made.clone() : made.copy_to(CPUPlace()));
    } else if (fetch.kind == PlanFetch::Kind::kMean) {
      results.push_back(tree_mean(fetched_[i], var.name));
    } else {
      results.push_back(join_rows(fetched_[i]));
    }
  }
  return results;
}

}  // namespace fleet::fluid
