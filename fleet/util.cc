#include "fleet/util.h"

#include <cstring>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/kernels/loss/metrics.h"

namespace fleet::util {
namespace {

std::vector<double> counts_of(const fluid::Scope& scope, const std::string& name) {
  const fluid::Tensor counts = scope.tensor(name).on_host();
  if (counts.dtype() != fluid::DType::kInt64) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "this variable does not count examples",
                 .where = str_cat("get_global_auc, '", name, "'"),
                 .expected = "int64",
                 .got = std::string(fluid::dtype_name(counts.dtype())),
                 .fix = "give the names of states[2] and states[3] of layers::auc"});
  }
  const auto values = counts.values<int64_t>();
  return {values.begin(), values.end()};
}

}  // namespace

std::vector<std::string> get_file_shard(std::span<const std::string> files, const Fleet& fleet) {
  return fleet.split_files(files);
}

void global_shuffle(fluid::data::DatasetBase& dataset, uint64_t seed, const std::string& folder,
                    Fleet& fleet) {
  dataset.global_shuffle(seed, fleet.worker_index(), fleet.worker_num(),
                         {.folder = folder, .meet = [&fleet] { fleet.barrier_worker(); }});
}

double get_global_auc(const fluid::Scope& scope, const std::string& stat_pos,
                      const std::string& stat_neg, Fleet& fleet) {
  std::vector<double> counts = counts_of(scope, stat_pos);
  const size_t buckets = counts.size();
  const std::vector<double> negatives = counts_of(scope, stat_neg);
  if (negatives.size() != buckets) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "these variables are not the states of one auc",
                 .where = "get_global_auc",
                 .expected = str_cat(buckets, " numbers in '", stat_neg, "'"),
                 .got = str_cat(negatives.size()),
                 .fix = "give the names of states[2] and states[3] of layers::auc"});
  }
  counts.insert(counts.end(), negatives.begin(), negatives.end());
  const std::vector<double> sums = fleet.all_reduce_worker(counts);
  const std::vector<int64_t> all(sums.begin(), sums.end());
  const std::span whole(all);
  return fluid::roc_area(whole.first(buckets), whole.subspan(buckets));
}

void set_zero(const std::string& var_name, const fluid::Scope& scope) {
  fluid::Tensor& tensor = scope.tensor(var_name);
  tensor.copy_from(fluid::Tensor::zeros(tensor.dtype(), tensor.shape()));
}

}  // namespace fleet::util
