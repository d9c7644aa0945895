// conv2d, conv2d_transpose and their gradients: each result is one product of conv.h.
#include "base/strings.h"
#include "fluid/kernels/cpu/nn/conv.h"
#include "fluid/kernels/cpu/nn/register_nn.h"
#include "fluid/kernels/image_layout.h"
#include "fluid/ops/nn/conv.h"

namespace fleet::fluid::cpu {
namespace {

enum class Backend { kOwn, kOneDnn, kReference };

template <class T, Backend backend>
std::shared_ptr<Conv<T>> make_conv(ConvPart part, const ConvShape& shape) {
  if constexpr (backend == Backend::kReference) {
    return reference_conv<T>(part, shape);
  } else if constexpr (backend == Backend::kOwn) {
    auto conv = lane_conv(part, shape);
    return conv != nullptr ? std::move(conv) : gemm_conv(part, shape);
  } else {
    return onednn_conv(part, shape);
  }
}

// Only oneDNN's own convolutions read and write blocks of channels.
constexpr bool takes_blocks(Backend backend, bool transposed) {
  return backend == Backend::kOneDnn && !transposed;
}

bool is_blocked(const PrepareContext& context, const char* slot) {
  return context.in(slot).layout == Layout::kBlocked;
}

// What is in blocks has its channels in front.
bool is_misread(const PrepareContext& context, const ConvShape& shape) {
  if (!shape.channels_last) return false;
  return is_blocked(context, "Input") ||
         (context.has_input("Output@GRAD") && is_blocked(context, "Output@GRAD"));
}

bool blocks_output(const PrepareContext& context, const char* slot, const ConvShape& conv,
                   const Shape& shape) {
  return context.may_block(slot) && !conv.channels_last && can_be_blocked(DType::kFloat32, shape);
}

template <class T, Backend backend, bool Transposed>
std::unique_ptr<Prepared> prepare_conv(PrepareContext& context) {
  if (context.has_input("Bias") || context.has_input("ResidualData")) return nullptr;
  ConvProblem problem = conv_problem(context, Transposed);
  if (is_misread(context, problem.shape)) return nullptr;
  if (takes_blocks(backend, Transposed)) {
    problem.shape.src_blocked = is_blocked(context, "Input");
    problem.shape.dst_blocked = blocks_output(context, "Output", problem.shape, problem.output);
  }
  const auto conv = make_conv<T, backend>(Transposed ? ConvPart::kBackwardData : ConvPart::kForward,
                                          problem.shape);
  if (conv == nullptr) return nullptr;
  const int input = context.input("Input");
  const int filter = context.input("Filter");
  const int out = context.set_output("Output", problem.output, dtype_of<T>());
  if (problem.shape.dst_blocked) context.set_blocked("Output");
  return make_prepared([=](const KernelContext& c) {
    T* from = const_cast<T*>(c.in<T>(input));
    T* weights = const_cast<T*>(c.in<T>(filter));
    T* to = c.out<T>(out);
    conv->run(Transposed ? to : from, weights, Transposed ? from : to, c.scratch(), c.tiles());
  });
}

template <class T, Backend backend, bool Transposed>
std::unique_ptr<Prepared> prepare_conv_grad(PrepareContext& context) {
  if (context.has_input("Bias")) return nullptr;
  ConvProblem problem = conv_problem(context, Transposed);
  const Shape& grad_shape = context.in("Output@GRAD").shape;
  context.require(grad_shape == problem.output, "Output@GRAD", problem.output.to_string(),
                  grad_shape.to_string());
  if (is_misread(context, problem.shape)) return nullptr;
  const int input = context.input("Input");
  const int filter = context.input("Filter");
  const int grad = context.input("Output@GRAD");
  const int input_grad = context.set_output("Input@GRAD", context.in("Input").shape, dtype_of<T>());
  const int filter_grad =
      context.set_output("Filter@GRAD", context.in("Filter").shape, dtype_of<T>());
  std::shared_ptr<Conv<T>> for_input;
  std::shared_ptr<Conv<T>> for_filter;
  if (takes_blocks(backend, Transposed)) {
    problem.shape.dst_blocked = is_blocked(context, "Output@GRAD");
    problem.shape.src_blocked =
        blocks_output(context, "Input@GRAD", problem.shape, context.in("Input").shape);
    if (problem.shape.src_blocked) context.set_blocked("Input@GRAD");
  }
  if (input_grad >= 0) {
    for_input = make_conv<T, backend>(Transposed ? ConvPart::kForward : ConvPart::kBackwardData,
                                      problem.shape);
    if (for_input == nullptr) return nullptr;
  }
  if (filter_grad >= 0) {
    problem.shape.src_blocked = is_blocked(context, "Input");
    for_filter = make_conv<T, backend>(ConvPart::kBackwardFilter, problem.shape);
    if (for_filter == nullptr) return nullptr;
  }
  return make_prepared([=](const KernelContext& c) {
    T* from = const_cast<T*>(c.in<T>(input));
    T* weights = const_cast<T*>(c.in<T>(filter));
    T* grads = const_cast<T*>(c.in<T>(grad));
    if (for_input != nullptr) {
      T* to = c.out<T>(input_grad);
      for_input->run(Transposed ? grads : to, weights, Transposed ? to : grads, c.scratch(),
                     c.tiles());
    }
    if (for_filter != nullptr) {
      T* to = c.out<T>(filter_grad);
      for_filter->run(Transposed ? grads : from, to, Transposed ? from : grads, c.scratch(),
                      c.tiles());
    }
  });
}

template <class T, Backend backend>
void add_backend(KernelTable& table, const char* name) {
  const auto add = [&](const std::string& op, bool transposed, auto prepare) {
    table.add_last(
        op, DeviceKind::kCpu, dtype_of<T>(),
        {.name = name,
         .prepare = prepare,
         .images = takes_blocks(backend, transposed) ? ImageOrder::kAny : ImageOrder::kPlain});
  };
  for (const std::string op : {"conv2d", "depthwise_conv2d"}) {
    add(op, false, prepare_conv<T, backend, false>);
    add(op + "_grad", false, prepare_conv_grad<T, backend, false>);
  }
  for (const std::string op : {"conv2d_transpose", "depthwise_conv2d_transpose"}) {
    add(op, true, prepare_conv<T, backend, true>);
    add(op + "_grad", true, prepare_conv_grad<T, backend, true>);
  }
}

}  // namespace

void register_conv(KernelTable& table) {
  add_backend<float, Backend::kOwn>(table, "own");
  add_backend<float, Backend::kOneDnn>(table, "onednn");
  add_backend<float, Backend::kReference>(table, "reference");
  add_backend<double, Backend::kReference>(table, "reference");
}

}  // namespace fleet::fluid::cpu
