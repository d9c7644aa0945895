// Convolutions and pooling of images [n, c, h, w] (data_format NCHW) or [n, h, w, c] (NHWC).
//
//   conv2d                 Input, Filter [out, in / groups, kh, kw] -> Output
//   depthwise_conv2d       the same; groups = in
//   conv2d_grad            Input, Filter, Output@GRAD -> Input@GRAD, Filter@GRAD (each optional)
//   conv2d_transpose       Input, Filter [in, out / groups, kh, kw] -> Output: the gradient of a
//                          convolution by its input
//   conv2d_transpose_grad  as conv2d_grad; depthwise_conv2d_transpose as conv2d_transpose
//   pool2d                 X -> Out
//   pool2d_grad            X, Out, Out@GRAD -> X@GRAD
//   max_pool2d_with_index  X (NCHW) -> Out, Mask: the maxima, and where in its plane each lies, as
//                          int32 row * width + column (declared with X's type, as Paddle
//                          does)
//   max_pool2d_with_index_grad  X, Mask, Out@GRAD -> X@GRAD
// Bias and ResidualData belong to fused forms that do not exist here, and are refused.
#pragma once

#include "fluid/ops/nn/window.h"
#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct Conv2dAttrs {
  std::vector<int32_t> strides = {1, 1};
  std::vector<int32_t> paddings = {0, 0};
  std::string padding_algorithm = "EXPLICIT";
  std::vector<int32_t> dilations = {1, 1};
  int32_t groups = 1;
  std::string data_format = "NCHW";
  bool is_test = false;
  bool use_cudnn = false;  // no kernel looks at it
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(strides), CEREAL_NVP(paddings), CEREAL_NVP(padding_algorithm),
       CEREAL_NVP(dilations), CEREAL_NVP(groups), CEREAL_NVP(data_format), CEREAL_NVP(is_test),
       CEREAL_NVP(use_cudnn));
  }
};

struct Conv2dTransposeAttrs : Conv2dAttrs {
  std::vector<int32_t> output_size;  // height and width; empty: the smallest
  template <class Archive>
  void serialize(Archive& ar) {
    Conv2dAttrs::serialize(ar);
    ar(CEREAL_NVP(output_size));
  }
};

struct Pool2dAttrs {
  std::string pooling_type = "max";  // or avg
  std::vector<int32_t> ksize;
  bool global_pooling = false;  // one window over the whole image
  std::vector<int32_t> strides = {1, 1};
  std::vector<int32_t> paddings = {0, 0};
  std::string padding_algorithm = "EXPLICIT";
  // avg: divide by the elements of the window that are inside the image, else by all of them.
  bool exclusive = true;
  // ksize is the size of the result; window i covers [floor(i in / out), ceil((i + 1) in / out)).
  bool adaptive = false;
  bool ceil_mode = false;  // a last window may begin inside and end outside of the image
  std::string data_format = "NCHW";
  bool is_test = false;
  bool use_cudnn = false;  // no kernel looks at it
  // With `adaptive` maxima are those of ordinary windows of ksize: as many as ksize says.
  bool paddle_form = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(pooling_type), CEREAL_NVP(ksize), CEREAL_NVP(global_pooling), CEREAL_NVP(strides),
       CEREAL_NVP(paddings), CEREAL_NVP(padding_algorithm), CEREAL_NVP(exclusive),
       CEREAL_NVP(adaptive), CEREAL_NVP(ceil_mode), CEREAL_NVP(data_format), CEREAL_NVP(is_test),
       CEREAL_NVP(use_cudnn), CEREAL_NVP(paddle_form));
  }
};

struct MaxPoolWithIndexAttrs {
  std::vector<int32_t> ksize;
  bool global_pooling = false;
  bool adaptive = false;
  std::vector<int32_t> strides = {1, 1};
  std::vector<int32_t> paddings = {0, 0};
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(ksize), CEREAL_NVP(global_pooling), CEREAL_NVP(adaptive), CEREAL_NVP(strides),
       CEREAL_NVP(paddings));
  }
  // The same windows, without indices.
  Pool2dAttrs windows() const {
    return {.ksize = ksize,
            .global_pooling = global_pooling,
            .strides = strides,
            .paddings = paddings,
            .adaptive = adaptive};
  }
};

void add_conv_ops(OpTable& table);

// The windows of an op, from the shapes of its image and filter.
Window conv_window(const Conv2dAttrs& attrs, const Shape& input, const Shape& filter,
                   std::string_view where);
Window conv_transpose_window(const Conv2dTransposeAttrs& attrs, const Shape& input,
                             const Shape& filter, std::string_view where);
// For adaptive pooling kernel, stride and padding mean nothing; in and out do.
Window pool_window(const Pool2dAttrs& attrs, const Shape& x, std::string_view where);

}  // namespace fleet::fluid
