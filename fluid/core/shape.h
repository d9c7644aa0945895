// Dimensions of a tensor or variable.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

namespace fleet::fluid {

// Up to kMaxRank dimensions, stored inline. In a program a dimension of -1 is not known before
// the step (the batch); tensors have known dimensions only.
class Shape {
 public:
  static constexpr int kMaxRank = 9;
  static constexpr int64_t kUnknown = -1;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(std::span<const int64_t> dims);
  explicit Shape(const std::vector<int64_t>& dims) : Shape(std::span<const int64_t>(dims)) {}

  int rank() const { return rank_; }
  // A negative index counts from the end.
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i < 0 ? i + rank_ : i)]; }
  void set(int i, int64_t dim) { dims_[static_cast<size_t>(i < 0 ? i + rank_ : i)] = dim; }
  void push_back(int64_t dim);

  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  std::vector<int64_t> to_vector() const { return {dims().begin(), dims().end()}; }
  auto begin() const { return dims().begin(); }
  auto end() const { return dims().end(); }

  bool known() const;
  // Product of all dimensions, 1 for rank 0; -1 when one is unknown.
  int64_t numel() const { return numel(0, rank_); }
  // Product of the dimensions [first, last).
  int64_t numel(int first, int last) const;

  // Equal, or unknown on one side, dimension by dimension.
  bool compatible(const Shape& other) const;
  bool operator==(const Shape& other) const;
  std::string to_string() const;  // "[-1, 32]"

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape);

}  // namespace fleet::fluid
