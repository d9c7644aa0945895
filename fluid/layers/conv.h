// Convolutions and pooling. See nn.h for what all layers have in common.
#pragma once

#include <string>
#include <vector>

#include "fluid/layers/parameters/param_attr.h"
#include "fluid/program/variable.h"

namespace fleet::fluid::layers {

// Height and width; one number for both.
struct Pair {
  Pair(int both) : height(both), width(both) {}
  Pair(int height_, int width_) : height(height_), width(width_) {}
  int height;
  int width;
};

// Of an image: one number, {height, width}, {top, bottom, left, right}, or "SAME" or "VALID".
struct Padding {
  Padding(int all) : values{all, all} {}
  Padding(int height, int width) : values{height, width} {}
  Padding(int top, int bottom, int left, int right);
  Padding(const char* algorithm_) : values{0, 0}, algorithm(algorithm_) {}
  std::vector<int> values;
  std::string algorithm = "EXPLICIT";
};

struct Conv2dOptions {
  Pair stride = 1;
  Padding padding = 0;
  Pair dilation = 1;
  int groups = 1;
  ParamAttr param_attr = {};
  ParamAttr bias_attr = {};
  bool use_cudnn = true;
  std::string act = {};
  std::string name = {};
  std::string data_format = "NCHW";
};
// input [n, c, h, w]; the filter [num_filters, c / groups, …] starts from a normal distribution of
// deviation sqrt(2 / (c * area)) (He et al. 2015).
Variable conv2d(const Variable& input, int64_t num_filters, Pair filter_size,
                const Conv2dOptions& options = {});

struct Conv2dTransposeOptions {
  // At least one of the two must be given.
  std::optional<Pair> output_size = {};
  std::optional<Pair> filter_size = {};
  Padding padding = 0;
  Pair stride = 1;
  Pair dilation = 1;
  int groups = 1;
  ParamAttr param_attr = {};
  ParamAttr bias_attr = {};
  bool use_cudnn = true;
  std::string act = {};
  std::string name = {};
  std::string data_format = "NCHW";
};
// The gradient of a convolution by its input: makes images larger.
Variable conv2d_transpose(const Variable& input, int64_t num_filters,
                          const Conv2dTransposeOptions& options);

struct Pool2dOptions {
  Pair pool_size = -1;
  std::string pool_type = "max";  // or "avg"
  Pair pool_stride = 1;
  Padding pool_padding = 0;
  bool global_pooling = false;  // pool_size is not used then
  bool use_cudnn = true;
  bool ceil_mode = false;
  std::string name = {};
  bool exclusive = true;  // averages over the part of a window that is inside the image
  std::string data_format = "NCHW";
};
Variable pool2d(const Variable& input, const Pool2dOptions& options);

struct MaxPooled {
  Variable out;
  Variable mask;  // int32: where in its plane each maximum lies, row * width + column
};
struct RequireIndex {};

// A result of size `pool_size`, whatever the image's: of the windows that divide it the largest
// elements, or (pool_type "avg") the means. With RequireIndex() also where the largest lie.
MaxPooled adaptive_pool2d(const Variable& input, Pair pool_size, RequireIndex require,
                          const std::string& name = {});
Variable adaptive_pool2d(const Variable& input, Pair pool_size,
                         const std::string& pool_type = "max", const std::string& name = {});

}  // namespace fleet::fluid::layers
