#include "fluid/core/shape.h"

#include <algorithm>
#include <ostream>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::fluid {

Shape::Shape(std::initializer_list<int64_t> dims)
    : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const int64_t> dims) {
  for (const int64_t dim : dims) push_back(dim);
}

void Shape::push_back(int64_t dim) {
  if (rank_ == kMaxRank) {
    throw_error(ErrorCode::kShapeMismatch, {.what = "too many dimensions",
                                            .where = to_string(),
                                            .expected = str_cat("at most ", kMaxRank),
                                            .got = str_cat(rank_ + 1),
                                            .fix = "merge dimensions with reshape"});
  }
  dims_[static_cast<size_t>(rank_++)] = dim;
}

bool Shape::known() const {
  return std::none_of(begin(), end(), [](int64_t dim) { return dim < 0; });
}

int64_t Shape::numel(int first, int last) const {
  int64_t product = 1;
  for (int i = first; i < last; ++i) {
    const int64_t dim = dims_[static_cast<size_t>(i)];
    if (dim < 0) return kUnknown;
    product *= dim;
  }
  return product;
}

bool Shape::compatible(const Shape& other) const {
  return rank_ == other.rank_ &&
         std::equal(begin(), end(), other.begin(),
                    [](int64_t a, int64_t b) { return a == b || a < 0 || b < 0; });
}

bool Shape::operator==(const Shape& other) const {
  return rank_ == other.rank_ && std::equal(begin(), end(), other.begin());
}

std::string Shape::to_string() const {
  std::string text = "[";
  for (const int64_t dim : dims()) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(dim);
  }
  return text + "]";
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.to_string();
}

}  // namespace fleet::fluid
