// What simulated jobs train: a small classifier on real rows, through the engine, with all
// parameters in one flat vector, so that policies can average, delay and exchange them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "fluid/core/tensor.h"
#include "fluid/executor/executor.h"
#include "fluid/program/program.h"

namespace fleet::experiments {

// x: [rows, width] float32; y: [rows, 1] int64, from 0 to classes - 1. Shared by threads.
struct ClassificationData {
  std::string name;
  fluid::Tensor train_x;
  fluid::Tensor train_y;
  fluid::Tensor test_x;
  fluid::Tensor test_y;
  int64_t classes = 0;

  int64_t width() const { return train_x.shape()[1]; }
  int64_t train_rows() const { return train_x.shape()[0]; }
};

// The UCI digits in the order that order_1234.txt fixes: 1 297 rows train, 500 test; x/16 - 0.3.
ClassificationData load_digits(const std::filesystem::path& folder);
// A CSV file: with a header, every column a number or a word; `label` names the column of the
// class, by default the last. Words become one column each (one-hot), numbers are standardised by
// the training rows. The last `test_rows` rows test.
ClassificationData load_csv(const std::filesystem::path& path, int64_t test_rows,
                            const std::string& label = "");
// A pair of IDX files of bytes, images and labels; pixels are scaled to x/255 - 0.3.
ClassificationData load_idx(const std::filesystem::path& images,
                            const std::filesystem::path& labels, int64_t test_rows);

using Weights = std::vector<float>;

// What the default programs get: a multi-layer perceptron with ReLU between its layers, softmax
// cross entropy, mean over rows.
struct Classifier {
  fluid::Variable logits;
  fluid::Variable loss;
};
Classifier append_classifier(const ClassificationData& data, const std::vector<int64_t>& hidden);

// A classifier whose gradients are computed at given weights. Used by one thread.
class Model {
 public:
  Model(const ClassificationData& data, const std::vector<int64_t>& hidden);

  size_t parameters() const { return size_; }
  // Xavier's uniform weights, biases 0.
  Weights initial(uint64_t seed) const;
  // The mean loss over these training rows and its gradient at `weights`.
  double gradient(std::span<const float> weights, std::span<const int64_t> rows,
                  std::span<float> gradient);
  // These training rows, until the next call.
  const fluid::Feed& batch(std::span<const int64_t> rows);
  // Between flat weights and the scope of another program with this classifier.
  void write(std::span<const float> weights, const fluid::Scope& scope) const;
  Weights read(const fluid::Scope& scope) const;
  // Wrong answers, in percent of the test rows. NaN counts as wrong.
  double test_error(std::span<const float> weights);
  // The mean loss over all training rows.
  double train_loss(std::span<const float> weights);

 private:
  struct Part {
    std::string name;
    size_t begin = 0;
    size_t size = 0;
    size_t fan_in = 0;  // 0: a bias
    size_t fan_out = 0;
  };
  void build(const std::vector<int64_t>& hidden);
  void bind();
  std::vector<fluid::Tensor> evaluate(std::span<const float> weights, const fluid::Feed& feed,
                                      const std::string& fetch);

  const ClassificationData& data_;
  fluid::Program main_;
  fluid::Program startup_;
  fluid::Program test_;
  std::string loss_;
  std::string logits_;
  std::vector<fluid::Fetch> fetches_;  // the loss, then every gradient
  std::vector<Part> parts_;
  size_t size_ = 0;
  fluid::Tensor flat_;  // the parameters of the scope are views of it
  fluid::Executor executor_;
  fluid::Feed batch_ = {{"x", fluid::Tensor()}, {"y", fluid::Tensor()}};
};

}  // namespace fleet::experiments
