#include "fluid/tables/lookup/instance_shows.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::fluid::tables {
namespace {

// Throws UsageError for a number of `slot` that is not finite.
void check_finite(const std::vector<float>& numbers, const char* slot, const std::string& where) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (std::isfinite(numbers[i])) continue;
    throw_error(ErrorCode::kInvalidArgument,
                {.what = str_cat("a number of ", slot, " is not finite"),
                 .where = str_cat(where, ", element ", i),
                 .expected = "finite numbers of shows and clicks",
                 .got = str_cat(numbers[i]),
                 .fix = "correct what is fed"});
  }
}

std::vector<float> numbers_of(const Tensor& tensor) {
  if (tensor.dtype() == DType::kFloat32) {
    const auto values = tensor.values<float>();
    return {values.begin(), values.end()};
  }
  std::vector<float> numbers;
  for (const int64_t value : tensor.values<int64_t>()) numbers.push_back(static_cast<float>(value));
  return numbers;
}

}  // namespace

InstanceShows::InstanceShows(const Tensor& show, const Tensor& click, std::string where)
    : has_sequences_(!show.lod().empty()),
      where_(std::move(where)),
      shows_(numbers_of(show)),
      clicks_(numbers_of(click)) {
  if (clicks_.size() != shows_.size()) {
    throw_error(ErrorCode::kShapeMismatch, {.what = "there are not as many clicks as shows",
                                            .where = where_,
                                            .expected = str_cat(shows_.size(), " of Click"),
                                            .got = str_cat(clicks_.size()),
                                            .fix = "feed both for the same instances"});
  }
  check_finite(shows_, "Show", where_);
  check_finite(clicks_, "Click", where_);
}

std::vector<int64_t> InstanceShows::instances_of(const Tensor& ids) const {
  std::vector<int64_t> instances(static_cast<size_t>(ids.numel()));
  const auto count = static_cast<int64_t>(shows_.size());
  const Shape& shape = ids.shape();
  const int64_t rows = shape.rank() == 0 ? 1 : shape[0];
  const int64_t each = shape.rank() == 0 ? 1 : shape.numel(1, shape.rank());
  const int64_t sequences =
      ids.lod().empty() ? rows : static_cast<int64_t>(ids.lod().back().size()) - 1;
  const bool by_row = ids.lod().empty() || has_sequences_ || count != sequences;
  if (count != (by_row ? rows : sequences)) {
    throw_error(
        ErrorCode::kShapeMismatch,
        {.what = "shows and clicks do not fit the ids",
         .where = where_,
         .expected = sequences == rows ? str_cat(rows)
                                       : str_cat(rows, ", or ", sequences, " for sequences"),
         .got = str_cat(count),
         .fix = "give one of each for every row of ids, or for every sequence"});
  }
  if (by_row) {
    for (size_t i = 0; i < instances.size(); ++i) {
      instances[i] = static_cast<int64_t>(i) / each;
    }
    return instances;
  }
  const auto& offsets = ids.lod().back();
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    std::fill(instances.begin() + offsets[s] * each, instances.begin() + offsets[s + 1] * each,
              static_cast<int64_t>(s));
  }
  return instances;
}

}  // namespace fleet::fluid::tables
