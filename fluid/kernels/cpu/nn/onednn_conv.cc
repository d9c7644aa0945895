#include <mutex>

#include "fluid/kernels/cpu/nn/conv.h"
#include "fluid/kernels/cpu/nn/conv_parts.h"
#include "fluid/kernels/cpu/nn/onednn_call_impl.h"
#include "fluid/kernels/cpu/one_openmp_thread_impl.h"
#include "fluid/kernels/cpu/tile_scratch.h"
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

struct Product {
  dnnl::primitive primitive;
  std::vector<OneDnnOperand> operands;  // src, filter and dst
  size_t scratchpad_bytes = 0;
};

Product product_of(ConvPart part, const ConvShape& shape) {
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

// Images that one call should compute: calls have costs of their own.
int64_t images_of_call(ConvPart part, const ConvShape& s) {
  constexpr int64_t kMostCalls = 16;
  constexpr int64_t kTilesOfCall = 16;
  const WindowAxis& high = s.window[0];
  const WindowAxis& wide = s.window[1];
  const int64_t positions = high.out * wide.out;
  const int64_t taps = s.in / s.groups * high.kernel * wide.kernel;
  const int64_t cost =
      positions * s.out * (kProducts + taps) / kProducts + s.in * high.in * wide.in;
  int64_t least = Tiles::items(cost / kTilesOfCall);
  if (part == ConvPart::kBackwardFilter)
    least = std::max(least, pieces_of(2 * kLongSum, positions));
  least = std::max(least, pieces_of(s.batch, kMostCalls));
  return pieces_of(s.batch, pieces_of(s.batch, least));
}

// Adds the parts, `stride` numbers apart, to the n numbers of `sum`, in their order.
void add_parts(const float* parts, int64_t count, int64_t stride, int64_t n, float* sum,
               const Tiles& tiles) {
  tiles.split(n, count, [=](int64_t begin, int64_t end) {
    for (int64_t part = 0; part < count; ++part) {
      const float* from = parts + part * stride;
      for (int64_t i = begin; i < end; ++i) sum[i] += from[i];
    }
  });
}

// Calls for so many images each, the last one for the rest. They see the filter in the order that
// the first one wants.
class OneDnnConv final : public Conv<float> {
 public:
  OneDnnConv(ConvPart part, const ConvShape& shape)
      : part_(part),
        src_image_(shape.in * shape.window[0].in * shape.window[1].in),
        dst_image_(shape.out * shape.window[0].out * shape.window[1].out),
        images_(images_of_call(part, shape)) {
    const OneOpenMpThread alone;
    ConvShape part_shape = shape;
    part_shape.batch = images_;
    const Product product = product_of(part, part_shape);
    const OneDnnOperand& filter = product.operands[kFilter];
    const bool output = part == ConvPart::kBackwardFilter;
    reorder_ = output ? OneDnnReorder(filter.wanted, filter.plain)
                      : OneDnnReorder(filter.plain, filter.wanted);
    filter_numbers_ = static_cast<int64_t>(filter.wanted.get_size() / sizeof(float));
    filter_stride_ = pieces_of(filter_numbers_, kLine) * kLine;
    for (int64_t i = 0; i < shape.batch / images_; ++i) add_call(product, filter.wanted);
    part_shape.batch = shape.batch % images_;
    if (part_shape.batch > 0) add_call(product_of(part, part_shape), filter.wanted);
  }

  void run(float* src, float* filter, float* dst, Scratch& scratch, const Tiles& tiles) override {
    if (part_ == ConvPart::kBackwardFilter) return find_gradient(src, filter, dst, scratch, tiles);
    if (reorder_.moves()) {
      float* moved = take(scratch, 1);
      reorder_.run(filter, moved);
      filter = moved;
    }
    run_calls(src, dst, tiles, [=](int64_t) { return filter; });
  }

 private:
  static constexpr size_t kFilter = 1;  // among the operands
  static constexpr int64_t kLine = 16;  // numbers

  void add_call(Product product, const memory::desc& filter) {
    product.operands[kFilter].plain = filter;
    calls_.emplace_back(product.primitive, product.operands, product.scratchpad_bytes);
  }

  float* take(Scratch& scratch, int64_t filters) const {
    return reinterpret_cast<float*>(
        scratch.get(static_cast<size_t>(filters * filter_stride_) * sizeof(float)));
  }

  // filter(i) is what call i reads or writes.
  template <class Filter>
  void run_calls(float* src, float* dst, const Tiles& tiles, const Filter& filter) {
    tiles.run(static_cast<int64_t>(calls_.size()), [&](int64_t i) {
      OneDnnCall& call = calls_[static_cast<size_t>(i)];
      const int64_t first = i * images_;
      call.run({src + first * src_image_, filter(i), dst + first * dst_image_},
               tile_scratch(call.scratch_bytes()));
    });
  }

  // Each call has a sum of its own; the first one's becomes that of all.
  void find_gradient(float* src, float* filter, float* dst, Scratch& scratch, const Tiles& tiles) {
    const auto count = static_cast<int64_t>(calls_.size());
    float* sums = take(scratch, count);
    float* sum = reorder_.moves() ? sums : filter;
    run_calls(src, dst, tiles,
              [=, this](int64_t i) { return i == 0 ? sum : sums + i * filter_stride_; });
    if (count > 1) {
      add_parts(sums + filter_stride_, count - 1, filter_stride_, filter_numbers_, sum, tiles);
    }
    if (reorder_.moves()) reorder_.run(sum, filter);
  }

  ConvPart part_;
  int64_t src_image_;  // elements of an image
  int64_t dst_image_;
  int64_t images_;              // of a call
  int64_t filter_numbers_ = 0;  // as the library wants it
  int64_t filter_stride_ = 0;   // of filters that lie one after the other
  OneDnnReorder reorder_;
  std::vector<OneDnnCall> calls_;
};

}  // namespace

std::unique_ptr<Conv<float>> onednn_conv(ConvPart part, const ConvShape& shape) {
  if (is_empty(shape)) return nullptr;
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
