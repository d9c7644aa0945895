// Convolutions by cuDNN: algorithms that give the same bits in every run, without TF32 unless it is
// allowed. Products of 16-bit floats add up in float32, and are rounded once.
#include <algorithm>
#include <array>
#include <cudnn.h>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "fluid/kernels/cuda/halves_impl.h"
#include "fluid/kernels/cuda/register_impl.h"
#include "fluid/kernels/cuda/shape/move_loops.h"
#include "fluid/kernels/half/widened.h"
#include "fluid/kernels/nn/conv_problem.h"

namespace fleet::fluid::cuda {
namespace {

constexpr size_t kMostWorkspace = size_t{1} << 30;
constexpr const char* kKeepOnCpu = "keep the op on the CPU with op_device = \"cpu\"";

void check_dnn(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  const bool unsupported = CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED;
  throw_error(unsupported ? ErrorCode::kNotSupported : ErrorCode::kInternal,
              {.what = str_cat("a cuDNN call failed: ", cudnnGetErrorString(status)),
               .where = call,
               .expected = "CUDNN_STATUS_SUCCESS",
               .got = str_cat("status ", static_cast<int>(status)),
               .fix = unsupported ? kKeepOnCpu
                                  : "check the device's free memory and that libcudnn is version 9 "
                                    "or newer, then report it with the whole message"});
}

cudnnHandle_t handle_of(Stream& stream) {
  std::shared_ptr<void>& kept = stream.library();
  if (kept == nullptr) {
    cudnnHandle_t handle = nullptr;
    check_dnn(cudnnCreate(&handle), "cudnnCreate");
    kept =
        std::shared_ptr<void>(handle, [](void* h) { cudnnDestroy(static_cast<cudnnHandle_t>(h)); });
  }
  auto* const handle = static_cast<cudnnHandle_t>(kept.get());
  cudaStream_t current = nullptr;
  check_dnn(cudnnGetStream(handle, &current), "cudnnGetStream");
  const auto wanted = static_cast<cudaStream_t>(stream.raw());
  if (current != wanted) check_dnn(cudnnSetStream(handle, wanted), "cudnnSetStream");
  return handle;
}

template <class Descriptor>
using Owned = std::unique_ptr<std::remove_pointer_t<Descriptor>, cudnnStatus_t (*)(Descriptor)>;

template <class Descriptor>
Owned<Descriptor> make_descriptor(cudnnStatus_t (*create)(Descriptor*),
                                  cudnnStatus_t (*destroy)(Descriptor)) {
  Descriptor descriptor = nullptr;
  check_dnn(create(&descriptor), "create a descriptor");
  return Owned<Descriptor>(descriptor, destroy);
}

// An image batch as cuDNN sees it: dense, channels first, padded alike on both sides. `copies`: the
// op's image lies otherwise, and is copied to or from one that does not.
struct Plain {
  int64_t batch = 0;
  int64_t channels = 0;
  std::array<int64_t, 2> size = {};    // with the padding that cuDNN cannot add
  std::array<int64_t, 2> image = {};   // of the op
  std::array<int64_t, 2> before = {};  // where the image begins in `size`
  bool channels_last = false;
  bool copies = false;

  int64_t numel() const { return batch * channels * size[0] * size[1]; }
  int64_t image_numel() const { return batch * channels * image[0] * image[1]; }
  int64_t first() const { return before[0] * size[1] + before[1]; }
  // From the image to the plain form, or back.
  WalkDims walk(bool back) const {
    WalkDims dims;
    const int64_t row = image[1];
    const std::array<int64_t, 4> image_steps =
        channels_last
            ? std::array<int64_t, 4>{image[0] * row * channels, 1, row * channels, channels}
            : std::array<int64_t, 4>{channels * image[0] * row, image[0] * row, row, 1};
    const std::array<int64_t, 4> plain_steps = {channels * size[0] * size[1], size[0] * size[1],
                                                size[1], 1};
    const std::array<int64_t, 4> sizes = {batch, channels, std::min(image[0], size[0] - before[0]),
                                          std::min(image[1], size[1] - before[1])};
    dims.rank = 4;
    for (size_t d = 0; d < 4; ++d) {
      dims.size[d] = sizes[d];
      dims.from[d] = back ? plain_steps[d] : image_steps[d];
      dims.to[d] = back ? image_steps[d] : plain_steps[d];
      dims.count *= sizes[d];
    }
    return dims;
  }
};

// Both images of a convolution, and the padding that is left to cuDNN.
struct Images {
  Plain src;
  Plain dst;
  std::array<int, 2> padding = {};
};

Images images_of(const ConvShape& s) {
  Images images;
  images.src = {.batch = s.batch, .channels = s.in, .channels_last = s.channels_last};
  images.dst = {.batch = s.batch, .channels = s.out, .channels_last = s.channels_last};
  images.src.copies = images.dst.copies = s.channels_last;
  bool pads = false;
  for (size_t d = 0; d < 2; ++d) {
    const WindowAxis& axis = s.window[d];
    images.src.image[d] = images.src.size[d] = axis.in;
    images.dst.image[d] = images.dst.size[d] = axis.out;
    images.padding[d] = static_cast<int>(axis.pad_before);
    const int64_t free = axis.in + 2 * axis.pad_before - axis.extent();
    pads = pads || free < 0 || free / axis.stride + 1 != axis.out;
  }
  if (!pads) return images;
  images.src.copies = true;
  for (size_t d = 0; d < 2; ++d) {
    const WindowAxis& axis = s.window[d];
    images.src.size[d] = (axis.out - 1) * axis.stride + axis.extent();
    images.src.before[d] = axis.pad_before;
    images.padding[d] = 0;
  }
  return images;
}

template <class T>
constexpr cudnnDataType_t kType = CUDNN_DATA_FLOAT;
template <>
constexpr cudnnDataType_t kType<double> = CUDNN_DATA_DOUBLE;
template <>
constexpr cudnnDataType_t kType<__half> = CUDNN_DATA_HALF;
template <>
constexpr cudnnDataType_t kType<__nv_bfloat16> = CUDNN_DATA_BFLOAT16;

// Whether an algorithm transforms images and filters first, and may round halves on the way.
bool transforms(cudnnConvolutionFwdAlgo_t algorithm) {
  return algorithm >= CUDNN_CONVOLUTION_FWD_ALGO_FFT;
}
bool transforms(cudnnConvolutionBwdDataAlgo_t algorithm) {
  return algorithm >= CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT;
}
bool transforms(cudnnConvolutionBwdFilterAlgo_t algorithm) {
  return algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT ||
         algorithm >= CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD;
}

template <class T>
class DeviceConv {
 public:
  DeviceConv(ConvPart part, const ConvShape& shape)
      : part_(part),
        images_(images_of(shape)),
        src_(make_descriptor(cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor)),
        dst_(make_descriptor(cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor)),
        filter_(make_descriptor(cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor)),
        conv_(
            make_descriptor(cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor)) {
    describe(src_.get(), images_.src);
    describe(dst_.get(), images_.dst);
    const auto number = [](int64_t n) { return static_cast<int>(n); };
    const WindowAxis& rows = shape.window[0];
    const WindowAxis& columns = shape.window[1];
    check_dnn(cudnnSetFilter4dDescriptor(filter_.get(), kType<T>, CUDNN_TENSOR_NCHW,
                                         number(shape.out), number(shape.in / shape.groups),
                                         number(rows.kernel), number(columns.kernel)),
              "cudnnSetFilter4dDescriptor");
    check_dnn(cudnnSetConvolution2dDescriptor(conv_.get(), images_.padding[0], images_.padding[1],
                                              number(rows.stride), number(columns.stride),
                                              number(rows.dilation), number(columns.dilation),
                                              CUDNN_CROSS_CORRELATION, kType<Computed<T>>),
              "cudnnSetConvolution2dDescriptor");
    check_dnn(cudnnSetConvolutionGroupCount(conv_.get(), number(shape.groups)),
              "cudnnSetConvolutionGroupCount");
    const auto of_floats = Stream::allows_tf32() ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
    set_math(Half<T> ? CUDNN_TENSOR_OP_MATH : of_floats);
  }

  // Reads two of the three and writes the other, as cpu::Conv.
  void run(Stream& stream, T* src, T* filter, T* dst) {
    if (images_.src.image_numel() == 0 || images_.dst.image_numel() == 0) {
      return clear(stream, src, filter);
    }
    const cudnnHandle_t handle = handle_of(stream);
    if (!chosen_) choose(handle);
    const auto room = [](const Plain& plain) {
      return plain.copies ? (static_cast<size_t>(plain.numel()) * sizeof(T) + 255) / 256 * 256 : 0;
    };
    const size_t src_bytes = room(images_.src);
    const size_t dst_bytes = room(images_.dst);
    auto* memory =
        stream.scratch<std::byte>(static_cast<int64_t>(src_bytes + dst_bytes + workspace_));
    T* plain_src = images_.src.copies ? reinterpret_cast<T*>(memory) : src;
    T* plain_dst = images_.dst.copies ? reinterpret_cast<T*>(memory + src_bytes) : dst;
    if (part_ != ConvPart::kBackwardData) to_plain(stream, images_.src, src, plain_src);
    if (part_ != ConvPart::kForward) to_plain(stream, images_.dst, dst, plain_dst);
    compute(handle, plain_src, filter, plain_dst, memory + src_bytes + dst_bytes);
    if (part_ == ConvPart::kForward) from_plain(stream, images_.dst, plain_dst, dst);
    if (part_ == ConvPart::kBackwardData) from_plain(stream, images_.src, plain_src, src);
  }

 private:
  static void describe(cudnnTensorDescriptor_t descriptor, const Plain& plain) {
    check_dnn(cudnnSetTensor4dDescriptor(
                  descriptor, CUDNN_TENSOR_NCHW, kType<T>, static_cast<int>(plain.batch),
                  static_cast<int>(plain.channels), static_cast<int>(plain.size[0]),
                  static_cast<int>(plain.size[1])),
              "cudnnSetTensor4dDescriptor");
  }

  void set_math(cudnnMathType_t type) {
    check_dnn(cudnnSetConvolutionMathType(conv_.get(), type), "cudnnSetConvolutionMathType");
  }

  // What there is of a gradient without images.
  void clear(Stream& stream, T* src, T* filter) const {
    if (part_ == ConvPart::kBackwardData) {
      set_to_zero(stream.raw(), src, images_.src.image_numel());
    }
    if (part_ == ConvPart::kBackwardFilter) set_to_zero(stream.raw(), filter, filter_numel());
  }
  int64_t filter_numel() const {
    cudnnDataType_t type{};
    cudnnTensorFormat_t format{};
    int k = 0;
    int c = 0;
    int h = 0;
    int w = 0;
    check_dnn(cudnnGetFilter4dDescriptor(filter_.get(), &type, &format, &k, &c, &h, &w),
              "cudnnGetFilter4dDescriptor");
    return int64_t{k} * c * h * w;
  }

  static void to_plain(Stream& stream, const Plain& plain, const T* image, T* to) {
    if (!plain.copies) return;
    if (plain.numel() != plain.image_numel()) set_to_zero(stream.raw(), to, plain.numel());
    copy_walk(stream.raw(), plain.walk(false), sizeof(T), reinterpret_cast<const std::byte*>(image),
              reinterpret_cast<std::byte*>(to + plain.first()));
  }
  static void from_plain(Stream& stream, const Plain& plain, const T* from, T* image) {
    if (!plain.copies) return;
    // What no window covers.
    set_to_zero(stream.raw(), image, plain.image_numel());
    copy_walk(stream.raw(), plain.walk(true), sizeof(T),
              reinterpret_cast<const std::byte*>(from + plain.first()),
              reinterpret_cast<std::byte*>(image));
  }

  // The first of cuDNN's proposals, which are in the order of their speed, with the same bits in
  // every run.
  template <class Performance, class Find>
  auto first_of(const char* call, Find find) {
    std::array<Performance, 16> proposals{};
    int count = 0;
    check_dnn(find(static_cast<int>(proposals.size()), &count, proposals.data()), call);
    for (int i = 0; i < count; ++i) {
      const Performance& p = proposals[static_cast<size_t>(i)];
      if (p.status != CUDNN_STATUS_SUCCESS || p.determinism != CUDNN_DETERMINISTIC) continue;
      if (p.memory > kMostWorkspace) continue;
      if constexpr (Half<T>) {
        if (transforms(p.algo)) continue;
        // With tensor cores or without, and its memory is for that.
        set_math(p.mathType);
      }
      workspace_ = p.memory;
      return p.algo;
    }
    throw_error(ErrorCode::kNotSupported,
                {.what = "cuDNN has no algorithm for this convolution that gives the same bits in "
                         "every run",
                 .where = call,
                 .expected = "one that needs at most 1 GiB of workspace",
                 .got = str_cat(count, " others"),
                 .fix = kKeepOnCpu});
  }

  void choose(cudnnHandle_t handle) {
    switch (part_) {
      case ConvPart::kForward:
        forward_ = first_of<cudnnConvolutionFwdAlgoPerf_t>(
            "cudnnGetConvolutionForwardAlgorithm_v7", [&](int most, int* count, auto* proposals) {
              return cudnnGetConvolutionForwardAlgorithm_v7(handle, src_.get(), filter_.get(),
                                                            conv_.get(), dst_.get(), most, count,
                                                            proposals);
            });
        break;
      case ConvPart::kBackwardData:
        data_ = first_of<cudnnConvolutionBwdDataAlgoPerf_t>(
            "cudnnGetConvolutionBackwardDataAlgorithm_v7",
            [&](int most, int* count, auto* proposals) {
              return cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, filter_.get(), dst_.get(),
                                                                 conv_.get(), src_.get(), most,
                                                                 count, proposals);
            });
        break;
      case ConvPart::kBackwardFilter:
        weights_ = first_of<cudnnConvolutionBwdFilterAlgoPerf_t>(
            "cudnnGetConvolutionBackwardFilterAlgorithm_v7",
            [&](int most, int* count, auto* proposals) {
              return cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, src_.get(), dst_.get(),
                                                                   conv_.get(), filter_.get(), most,
                                                                   count, proposals);
            });
        break;
    }
    chosen_ = true;
  }

  void compute(cudnnHandle_t handle, T* src, T* filter, T* dst, void* workspace) const {
    const Computed<T> one = 1;
    const Computed<T> zero = 0;
    switch (part_) {
      case ConvPart::kForward:
        return check_dnn(cudnnConvolutionForward(handle, &one, src_.get(), src, filter_.get(),
                                                 filter, conv_.get(), forward_, workspace,
                                                 workspace_, &zero, dst_.get(), dst),
                         "cudnnConvolutionForward");
      case ConvPart::kBackwardData:
        return check_dnn(cudnnConvolutionBackwardData(
                             handle, &one, filter_.get(), filter, dst_.get(), dst, conv_.get(),
                             data_, workspace, workspace_, &zero, src_.get(), src),
                         "cudnnConvolutionBackwardData");
      case ConvPart::kBackwardFilter:
        return check_dnn(cudnnConvolutionBackwardFilter(handle, &one, src_.get(), src, dst_.get(),
                                                        dst, conv_.get(), weights_, workspace,
                                                        workspace_, &zero, filter_.get(), filter),
                         "cudnnConvolutionBackwardFilter");
    }
  }

  ConvPart part_;
  Images images_;
  Owned<cudnnTensorDescriptor_t> src_;
  Owned<cudnnTensorDescriptor_t> dst_;
  Owned<cudnnFilterDescriptor_t> filter_;
  Owned<cudnnConvolutionDescriptor_t> conv_;
  bool chosen_ = false;  // at the first run: it takes a handle
  size_t workspace_ = 0;
  cudnnConvolutionFwdAlgo_t forward_{};
  cudnnConvolutionBwdDataAlgo_t data_{};
  cudnnConvolutionBwdFilterAlgo_t weights_{};
};

template <class T, bool Transposed>
std::unique_ptr<Prepared> prepare_conv(PrepareContext& context) {
  if (context.has_input("Bias") || context.has_input("ResidualData")) return nullptr;
  const ConvProblem problem = conv_problem(context, Transposed);
  const auto conv = std::make_shared<DeviceConv<T>>(
      Transposed ? ConvPart::kBackwardData : ConvPart::kForward, problem.shape);
  const int input = context.input("Input");
  const int filter = context.input("Filter");
  const int out = context.set_output("Output", problem.output, element_type<T>());
  return make_prepared([=](const KernelContext& c) {
    T* from = const_cast<T*>(c.in<T>(input));
    T* weights = const_cast<T*>(c.in<T>(filter));
    T* to = c.out<T>(out);
    conv->run(stream_of(c), Transposed ? to : from, weights, Transposed ? from : to);
  });
}

template <class T, bool Transposed>
std::unique_ptr<Prepared> prepare_conv_grad(PrepareContext& context) {
  if (context.has_input("Bias")) return nullptr;
  const ConvProblem problem = conv_problem(context, Transposed);
  const Shape& grad_shape = context.in("Output@GRAD").shape;
  context.require(grad_shape == problem.output, "Output@GRAD", problem.output.to_string(),
                  grad_shape.to_string());
  const int input = context.input("Input");
  const int filter = context.input("Filter");
  const int grad = context.input("Output@GRAD");
  const int input_grad =
      context.set_output("Input@GRAD", context.in("Input").shape, element_type<T>());
  const int filter_grad =
      context.set_output("Filter@GRAD", context.in("Filter").shape, element_type<T>());
  std::shared_ptr<DeviceConv<T>> for_input;
  std::shared_ptr<DeviceConv<T>> for_filter;
  if (input_grad >= 0) {
    for_input = std::make_shared<DeviceConv<T>>(
        Transposed ? ConvPart::kForward : ConvPart::kBackwardData, problem.shape);
  }
  if (filter_grad >= 0) {
    for_filter = std::make_shared<DeviceConv<T>>(ConvPart::kBackwardFilter, problem.shape);
  }
  return make_prepared([=](const KernelContext& c) {
    T* from = const_cast<T*>(c.in<T>(input));
    T* weights = const_cast<T*>(c.in<T>(filter));
    T* grads = const_cast<T*>(c.in<T>(grad));
    if (for_input != nullptr) {
      T* to = c.out<T>(input_grad);
      for_input->run(stream_of(c), Transposed ? grads : to, weights, Transposed ? to : grads);
    }
    if (for_filter != nullptr) {
      for_filter->run(stream_of(c), Transposed ? grads : from, c.out<T>(filter_grad),
                      Transposed ? from : grads);
    }
  });
}

template <class T>
void register_type(KernelTable& table) {
  const auto list = [&table](const std::string& op, auto prepare, auto in_float) {
    Kernel kernel{.name = "cudnn", .prepare = prepare};
    // Which convolutions of halves cuDNN takes, of bfloat16 above all, depends on its version, the
    // device and the shapes: it is asked when one runs first.
    if constexpr (Half<T>) {
      kernel = or_widened(std::move(kernel), {.name = "cudnn", .prepare = in_float});
    }
    table.add_last(op, DeviceKind::kCuda, element_type<T>(), std::move(kernel));
  };
  for (const std::string op : {"conv2d", "depthwise_conv2d"}) {
    list(op, prepare_conv<T, false>, prepare_conv<float, false>);
    list(op + "_grad", prepare_conv_grad<T, false>, prepare_conv_grad<float, false>);
  }
  for (const std::string op : {"conv2d_transpose", "depthwise_conv2d_transpose"}) {
    list(op, prepare_conv<T, true>, prepare_conv<float, true>);
    list(op + "_grad", prepare_conv_grad<T, true>, prepare_conv_grad<float, true>);
  }
}

}  // namespace

void register_conv(KernelTable& table) {
  register_type<float>(table);
  register_type<double>(table);
  register_type<__half>(table);
  register_type<__nv_bfloat16>(table);
}

}  // namespace fleet::fluid::cuda
