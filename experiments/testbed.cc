#include "experiments/testbed.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/philox.h"
#include "base/strings.h"
#include "fluid/backward/backward.h"
#include "fluid/layers/layers.h"
#include "fluid/program/default_programs.h"

namespace fleet::experiments {

using fluid::Tensor;

Model::Model(const ClassificationData& data, const std::vector<int64_t>& hidden)
    : data_(data), executor_(fluid::CPUPlace()) {
  build(hidden);
  bind();
}

Classifier append_classifier(const ClassificationData& data, const std::vector<int64_t>& hidden) {
  const fluid::Variable x = fluid::layers::data("x", {data.width()});
  const fluid::Variable y = fluid::layers::data("y", {1}, fluid::DType::kInt64);
  fluid::Variable top = x;
  for (const int64_t width : hidden) top = fluid::layers::fc(top, width, {.act = "relu"});
  const fluid::Variable logits = fluid::layers::fc(top, data.classes);
  return {logits, fluid::layers::mean(fluid::layers::softmax_with_cross_entropy(logits, y))};
}

void Model::build(const std::vector<int64_t>& hidden) {
  const fluid::ProgramGuard programs(main_, startup_);
  const fluid::unique_name::Guard names;
  const auto [logits, loss] = append_classifier(data_, hidden);
  test_ = main_.clone(/*for_test=*/true);
  logits_ = logits.name();
  loss_ = loss.name();
  fetches_.emplace_back(loss_);
  for (const fluid::ParamGrad& pair : fluid::append_backward(loss)) {
    const fluid::Shape& shape = pair.param.shape();
    const bool matrix = shape.rank() == 2;
    parts_.push_back({.name = pair.param.name(),
                      .begin = size_,
                      .size = static_cast<size_t>(shape.numel()),
                      .fan_in = matrix ? static_cast<size_t>(shape[0]) : 0,
                      .fan_out = matrix ? static_cast<size_t>(shape[1]) : 0});
    size_ += parts_.back().size;
    fetches_.emplace_back(pair.grad.name());
  }
}

void Model::bind() {
  executor_.run(startup_);
  flat_ = Tensor::zeros(fluid::DType::kFloat32, {static_cast<int64_t>(size_)});
  for (const Part& part : parts_) {
    Tensor& parameter = executor_.scope().tensor(part.name);
    parameter = Tensor(fluid::DType::kFloat32, parameter.shape(), flat_.buffer(),
                       flat_.offset() + part.begin * sizeof(float));
  }
}

Weights Model::initial(uint64_t seed) const {
  Weights weights(size_, 0.0f);
  for (const Part& part : parts_) {
    if (part.fan_in == 0) continue;
    const double limit = std::sqrt(6.0 / static_cast<double>(part.fan_in + part.fan_out));
    const RandomKey key = RandomKey::of(seed, part.name);
    for (size_t i = 0; i < part.size; ++i) {
      weights[part.begin + i] = static_cast<float>((2 * uniform_double(key, i) - 1) * limit);
    }
  }
  return weights;
}

const fluid::Feed& Model::batch(std::span<const int64_t> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  const auto width = static_cast<size_t>(data_.width());
  Tensor& x = batch_[0].second;
  Tensor& y = batch_[1].second;
  x.reset(fluid::DType::kFloat32, {count, data_.width()});
  y.reset(fluid::DType::kInt64, {count, 1});
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<size_t>(rows[i]);
    std::copy_n(data_.train_x.data<float>() + row * width, width, x.data<float>() + i * width);
    y.data<int64_t>()[i] = data_.train_y.values<int64_t>()[row];
  }
  return batch_;
}

void Model::write(std::span<const float> weights, const fluid::Scope& scope) const {
  for (const Part& part : parts_) {
    std::copy_n(weights.data() + part.begin, part.size, scope.tensor(part.name).data<float>());
  }
}

Weights Model::read(const fluid::Scope& scope) const {
  Weights weights(size_);
  for (const Part& part : parts_) {
    std::copy_n(scope.tensor(part.name).data<float>(), part.size, weights.data() + part.begin);
  }
  return weights;
}

double Model::gradient(std::span<const float> weights, std::span<const int64_t> rows,
                       std::span<float> gradient) {
  std::copy(weights.begin(), weights.end(), flat_.data<float>());
  const auto results = executor_.run(main_, batch(rows), fetches_);
  for (size_t i = 0; i < parts_.size(); ++i) {
    std::copy_n(results[i + 1].data<float>(), parts_[i].size, gradient.data() + parts_[i].begin);
  }
  return results[0].item<double>();
}

std::vector<Tensor> Model::evaluate(std::span<const float> weights, const fluid::Feed& feed,
                                    const std::string& fetch) {
  std::copy(weights.begin(), weights.end(), flat_.data<float>());
  return executor_.run(test_, feed, {fetch});
}

double Model::test_error(std::span<const float> weights) {
  const Tensor logits = evaluate(weights, {{"x", data_.test_x}, {"y", data_.test_y}}, logits_)[0];
  const auto values = logits.values<float>();
  const auto classes = static_cast<size_t>(data_.classes);
  const auto rows = static_cast<size_t>(data_.test_y.numel());
  size_t wrong = 0;
  for (size_t i = 0; i < rows; ++i) {
    const auto row = values.subspan(i * classes, classes);
    const auto label = static_cast<size_t>(data_.test_y.values<int64_t>()[i]);
    bool right = std::isfinite(row[label]);
    for (size_t c = 0; c < classes && right; ++c) {
      right = c == label || row[c] < row[label] || (row[c] == row[label] && c > label);
    }
    wrong += !right;
  }
  return 100.0 * static_cast<double>(wrong) / static_cast<double>(rows);
}

double Model::train_loss(std::span<const float> weights) {
  return evaluate(weights, {{"x", data_.train_x}, {"y", data_.train_y}}, loss_)[0].item<double>();
}

}  // namespace fleet::experiments
