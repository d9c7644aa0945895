#include <mutex>

#include "fluid/kernels/cpu/nn/conv.h"
#include "fluid/kernels/cpu/nn/onednn_call_impl.h"
#include "fluid/kernels/cpu/one_openmp_thread_impl.h"
#include "fluid/kernels/image_layout.h"

namespace fleet::fluid::cpu {
namespace {

using dnnl::memory;
using Dims = memory::dims;
constexpr auto kFloat = memory::data_type::f32;

// What all three descriptions are made of.
struct Descriptions {
  explicit Descriptions(const ConvShape& s) {
    const WindowAxis& high = s.window[0];
    const WindowAxis& wide = s.window[1];
    const auto image = [&s](bool blocked) {
      if (s.channels_last) return memory::format_tag::nhwc;
      if (!blocked) return memory::format_tag::nchw;
      return image_block() == 16 ? memory::format_tag::nChw16c : memory::format_tag::nChw8c;
    };
    const Dims src_dims = {s.batch, s.in, high.in, wide.in};
    const Dims dst_dims = {s.batch, s.out, high.out, wide.out};
    const bool grouped = s.groups > 1;
    const Dims filter_dims =
        grouped ? Dims{s.groups, s.out / s.groups, s.in / s.groups, high.kernel, wide.kernel}
                : Dims{s.out, s.in, high.kernel, wide.kernel};
    src = {src_dims, kFloat, image(s.src_blocked)};
    dst = {dst_dims, kFloat, image(s.dst_blocked)};
    filter = {filter_dims, kFloat, grouped ? memory::format_tag::goihw : memory::format_tag::oihw};
    any_src = {src_dims, kFloat, memory::format_tag::any};
    any_dst = {dst_dims, kFloat, memory::format_tag::any};
    any_filter = {filter_dims, kFloat, memory::format_tag::any};
    strides = {high.stride, wide.stride};
    dilations = {high.dilation - 1, wide.dilation - 1};
    before = {high.pad_before, wide.pad_before};
    after = {after_of(high), after_of(wide)};
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  }

  // What the last window needs: less than the padding when strides leave a rest.
  static memory::dim after_of(const WindowAxis& axis) {
    return (axis.out - 1) * axis.stride + axis.extent() - axis.in - axis.pad_before;
  }

  memory::desc src, dst, filter, any_src, any_dst, any_filter;
  Dims strides, dilations, before, after;
  dnnl::primitive_attr attributes;
};

using Forward = dnnl::convolution_forward;
using BackwardData = dnnl::convolution_backward_data;
using BackwardFilter = dnnl::convolution_backward_weights;
constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;

Forward::primitive_desc forward(const Descriptions& d) {
#if DNNL_VERSION_MAJOR >= 3
  return {onednn_engine(), dnnl::prop_kind::forward_training,
          kAlgorithm,      d.any_src,
          d.any_filter,    d.any_dst,
          d.strides,       d.dilations,
          d.before,        d.after,
          d.attributes};
#else
  const Forward::desc description(dnnl::prop_kind::forward_training, kAlgorithm, d.any_src,
                                  d.any_filter, d.any_dst, d.strides, d.dilations, d.before,
                                  d.after);
  return {description, d.attributes, onednn_engine()};
#endif
}

BackwardData::primitive_desc backward_data(const Descriptions& d) {
#if DNNL_VERSION_MAJOR >= 3
  return {onednn_engine(), kAlgorithm, d.any_src, d.any_filter, d.any_dst,   d.strides,
          d.dilations,     d.before,   d.after,   forward(d),   d.attributes};
#else
  const BackwardData::desc description(kAlgorithm, d.any_src, d.any_filter, d.any_dst, d.strides,
                                       d.dilations, d.before, d.after);
  return {description, d.attributes, onednn_engine(), forward(d)};
#endif
}

BackwardFilter::primitive_desc backward_filter(const Descriptions& d) {
#if DNNL_VERSION_MAJOR >= 3
  return {onednn_engine(), kAlgorithm, d.any_src, d.any_filter, d.any_dst,   d.strides,
          d.dilations,     d.before,   d.after,   forward(d),   d.attributes};
#else
  const BackwardFilter::desc description(kAlgorithm, d.any_src, d.any_filter, d.any_dst, d.strides,
                                         d.dilations, d.before, d.after);
  return {description, d.attributes, onednn_engine(), forward(d)};
#endif
}

class OneDnnConv final : public Conv<float> {
 public:
  OneDnnConv(ConvPart part, const ConvShape& shape) : call_(make(part, shape)) {}

  void run(float* src, float* filter, float* dst, Scratch& scratch) override {
    call_.run({src, filter, dst}, scratch);
  }

 private:
  static OneDnnCall make(ConvPart part, const ConvShape& shape) {
    const OneOpenMpThread alone;
    const Descriptions d(shape);
    if (part == ConvPart::kForward) {
      const auto description = forward(d);
      return {Forward(description),
              {{DNNL_ARG_SRC, d.src, description.src_desc(), false},
               {DNNL_ARG_WEIGHTS, d.filter, description.weights_desc(), false},
               {DNNL_ARG_DST, d.dst, description.dst_desc(), true}},
              description.scratchpad_desc().get_size()};
    }
    if (part == ConvPart::kBackwardData) {
      const auto description = backward_data(d);
      return {BackwardData(description),
              {{DNNL_ARG_DIFF_SRC, d.src, description.diff_src_desc(), true},
               {DNNL_ARG_WEIGHTS, d.filter, description.weights_desc(), false},
               {DNNL_ARG_DIFF_DST, d.dst, description.diff_dst_desc(), false}},
              description.scratchpad_desc().get_size()};
    }
    const auto description = backward_filter(d);
    return {BackwardFilter(description),
            {{DNNL_ARG_SRC, d.src, description.src_desc(), false},
             {DNNL_ARG_DIFF_WEIGHTS, d.filter, description.diff_weights_desc(), true},
             {DNNL_ARG_DIFF_DST, d.dst, description.diff_dst_desc(), false}},
            description.scratchpad_desc().get_size()};
  }

  OneDnnCall call_;
};

}  // namespace

std::unique_ptr<Conv<float>> onednn_conv(ConvPart part, const ConvShape& shape) {
  if (shape.batch == 0) return nullptr;
  // oneDNN orders the use of its cache of primitives in a way that ThreadSanitizer does not see.
  static std::mutex one_at_a_time;
  const std::lock_guard guard(one_at_a_time);
  try {
    return std::make_unique<OneDnnConv>(part, shape);
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

}  // namespace fleet::fluid::cpu
