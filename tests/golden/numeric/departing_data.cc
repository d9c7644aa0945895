#include "tests/golden/numeric/departing_data.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "base/strings.h"

namespace fleet::fluid::golden {
namespace {

// The only tensor of an input slot; an empty one where it has none.
Tensor input(const Json& json, const Tensors& tensors, const char* slot) {
  const Json list = json["inputs"].value(slot, Json::array());
  return list.empty() ? Tensor() : tensors(list[0]["tensor"].get<std::string>());
}

// What came back for the only tensor of an output slot.
Tensor cotangent(const Json& json, const Tensors& tensors, const char* slot) {
  const Json list = json.value("cotangents", Json::object()).value(slot, Json::array());
  return list.empty() || !list[0].is_string() ? Tensor() : tensors(list[0].get<std::string>());
}

int64_t number(const Json& json, const char* attribute) {
  return json["attrs_effective"][attribute].get<int64_t>();
}

bool is_zero(const Tensor& tensor) {
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    if (element(tensor, i) != 0) return false;
  }
  return true;
}

template <class T>
bool has_unlike_signs(const Tensor& x, const Tensor& y, int64_t axis) {
  const auto first = static_cast<size_t>(axis < 0 ? x.shape().rank() - y.shape().rank() : axis);
  const int64_t rows = x.shape().numel(0, static_cast<int>(first));
  const int64_t inner = x.numel() / std::max<int64_t>(rows * y.numel(), 1);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const T a = x.values<T>()[static_cast<size_t>(i)];
    const T b = y.values<T>()[static_cast<size_t>(i / inner % y.numel())];
    if (b != 0 && a % b != 0 && (a < 0) != (b < 0)) return true;
  }
  return false;
}

}  // namespace

bool looks_up_padding(const Json& json, const Tensors& tensors) {
  const Tensor ids = input(json, tensors, "Ids");
  const Tensor back = cotangent(json, tensors, "Out");
  if (!back.initialized()) return false;
  const int64_t width = back.numel() / std::max<int64_t>(ids.numel(), 1);
  std::vector<double> sums(static_cast<size_t>(width));
  double largest = 0;
  for (int64_t i = 0; i < back.numel(); ++i) {
    const double value = element(back, i);
    largest = std::max(largest, std::abs(value));
    if (ids.values<int64_t>()[static_cast<size_t>(i / width)] == number(json, "padding_idx")) {
      sums[static_cast<size_t>(i % width)] += value;
    }
  }
  return std::any_of(sums.begin(), sums.end(),
                     [largest](double sum) { return std::abs(sum) > 1e-3 * largest; });
}

bool has_ignored_label(const Json& json, const Tensors& tensors) {
  if (json["attrs_effective"].value("soft_label", false)) return false;
  const Tensor labels = input(json, tensors, "Label");
  const Tensor back = cotangent(json, tensors, "Loss");
  if (!back.initialized()) return false;
  const auto ignored = static_cast<double>(number(json, "ignore_index"));
  for (int64_t i = 0; i < labels.numel(); ++i) {
    if (element(labels, i) == ignored && element(back, i) != 0) return true;
  }
  return false;
}

bool has_short_path(const Json& json, const Tensors& tensors) {
  const Tensor paths = input(json, tensors, "PathTable");
  if (paths.initialized()) {
    const auto nodes = paths.values<int64_t>();
    return std::any_of(nodes.begin(), nodes.end(), [](int64_t node) { return node < 0; });
  }
  const int64_t classes = number(json, "num_classes");
  const Tensor label = input(json, tensors, "Label");
  const auto labels = label.values<int64_t>();
  return std::any_of(labels.begin(), labels.end(), [classes](int64_t each) {
    return std::bit_width(static_cast<uint64_t>(each + classes)) - 1 <
           std::bit_width(static_cast<uint64_t>(classes - 1));
  });
}

bool divides_unlike_signs(const Json& json, const Tensors& tensors) {
  const Tensor x = input(json, tensors, "X");
  const Tensor y = input(json, tensors, "Y");
  const int64_t axis = number(json, "axis");
  return x.dtype() == DType::kInt32 ? has_unlike_signs<int32_t>(x, y, axis)
                                    : has_unlike_signs<int64_t>(x, y, axis);
}

bool has_gradient(const Json& json, const Tensors& tensors) {
  const std::string id = json["case"];
  for (const auto& [name, parameter] : json["parameters"].items()) {
    const char* part = parameter["gradient"] == "selected_rows" ? "/value" : "";
    for (int step = 1; step <= 10; ++step) {
      if (!is_zero(tensors(str_cat(id, "/grad/", step, "/", name, part)))) return true;
    }
  }
  return false;
}

bool leaves_zero(const Json& json, const Tensors& tensors) {
  const std::string id = json["case"];
  for (const auto& [name, parameter] : json["parameters"].items()) {
    for (const int step : {1, 2, 10}) {
      if (!is_zero(tensors(str_cat(id, "/after/", step, "/", name, "/Param")))) return true;
    }
  }
  return false;
}

bool has_no_number(const Json& json, const Tensors& tensors) {
  const Json list = json.value("gradients", Json::object()).value("X", Json::array());
  if (list.empty() || list[0].is_null()) return false;
  const Tensor gradient = tensors(list[0]["tensor"].get<std::string>());
  for (int64_t i = 0; i < gradient.numel(); ++i) {
    if (std::isnan(element(gradient, i))) return true;
  }
  return false;
}

Tensor either_overflow(const Tensor& got, const Tensor& expected, const Tensor& cotangent) {
  Tensor either = got.clone().reshaped({got.numel(), 1});
  const Tensor right = cotangent.reshaped({got.numel(), 1});
  for (int64_t i = 0; i < got.numel(); ++i) {
    if (!std::isnan(element(got, i)) || std::isnan(element(expected, i))) continue;
    either.rows(i, i + 1).copy_from(right.rows(i, i + 1));
  }
  return either.reshaped(got.shape());
}

}  // namespace fleet::fluid::golden
