// Losses that compare elements: sigmoid_cross_entropy_with_logits, log_loss, hinge_loss,
// huber_loss.
#include <string>

#include "base/strings.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cuda/loss/pointwise_loops.h"
#include "fluid/kernels/cuda/register_impl.h"
#include "fluid/ops/loss/regression_loss.h"

namespace fleet::fluid::cuda {
namespace {

int like(const PrepareContext& context, const char* slot, const char* other) {
  const ValueSpec& wanted = context.in(other);
  const ValueSpec& given = context.in(slot);
  context.require(given.dtype == wanted.dtype && given.shape == wanted.shape, slot,
                  str_cat(dtype_name(wanted.dtype), wanted.shape),
                  str_cat(dtype_name(given.dtype), given.shape));
  return context.input(slot);
}

// Where the two inputs and the output of a loss are, or of its gradient for the first input.
struct Pair {
  int value = -1;
  int label = -1;
  int grad = -1;  // of gradients
  int out = -1;
  int64_t n = 0;
};

template <class T>
Pair pair_of(PrepareContext& context, bool gradient, const std::string& value, const char* label,
             const std::string& loss) {
  const Shape shape = context.in(value).shape;
  return {.value = context.input(value),
          .label = like(context, label, value.c_str()),
          .grad = gradient ? like(context, (loss + "@GRAD").c_str(), value.c_str()) : -1,
          .out = context.set_output(gradient ? value + "@GRAD" : loss, shape, dtype_of<T>()),
          .n = shape.numel()};
}

template <class T>
const T* grad_of(const KernelContext& c, const Pair& pair) {
  return pair.grad >= 0 ? c.in<T>(pair.grad) : nullptr;
}

template <class T, bool Gradient>
std::unique_ptr<Prepared> prepare_sigmoid_loss(PrepareContext& context) {
  const auto attrs = context.attrs<SigmoidCrossEntropyAttrs>();
  const T ignore = static_cast<T>(attrs.ignore_index);
  const Pair pair = pair_of<T>(context, Gradient, "X", "Label", "Out");
  return make_prepared([=, normalize = attrs.normalize](const KernelContext& c) {
    Stream& stream = stream_of(c);
    T* divisor = nullptr;
    if (normalize) {
      divisor = stream.scratch<T>(1 + count_partials(pair.n));
      count_labels<T>(stream.raw(), ignore, c.in<T>(pair.label), pair.n, divisor + 1, divisor);
    }
    sigmoid_loss<T>(stream.raw(), ignore, divisor, c.in<T>(pair.value), c.in<T>(pair.label),
                    grad_of<T>(c, pair), c.out<T>(pair.out), pair.n);
  });
}

template <class T, bool Gradient>
std::unique_ptr<Prepared> prepare_log_loss(PrepareContext& context) {
  const T epsilon = static_cast<T>(context.attrs<LogLossAttrs>().epsilon);
  const Pair pair = pair_of<T>(context, Gradient, "Predicted", "Labels", "Loss");
  return make_prepared([=](const KernelContext& c) {
    log_loss<T>(stream_of(c).raw(), epsilon, c.in<T>(pair.value), c.in<T>(pair.label),
                grad_of<T>(c, pair), c.out<T>(pair.out), pair.n);
  });
}

template <class T, bool Gradient>
std::unique_ptr<Prepared> prepare_hinge_loss(PrepareContext& context) {
  const Pair pair = pair_of<T>(context, Gradient, "Logits", "Labels", "Loss");
  return make_prepared([=](const KernelContext& c) {
    hinge_loss<T>(stream_of(c).raw(), c.in<T>(pair.value), c.in<T>(pair.label), grad_of<T>(c, pair),
                  c.out<T>(pair.out), pair.n);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_huber(PrepareContext& context) {
  const T delta = static_cast<T>(context.attrs<HuberLossAttrs>().delta);
  const Shape shape = context.in("X").shape;
  const int x = context.input("X");
  const int y = like(context, "Y", "X");
  const int residual = context.set_output("Residual", shape, dtype_of<T>());
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    huber_loss<T>(stream_of(c).raw(), delta, c.in<T>(x), c.in<T>(y), out_or_null<T>(c, residual),
                  out_or_null<T>(c, out), n);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_huber_grad(PrepareContext& context) {
  const T delta = static_cast<T>(context.attrs<HuberLossAttrs>().delta);
  const Shape shape = context.in("Residual").shape;
  const int residual = context.input("Residual");
  const int grad = like(context, "Out@GRAD", "Residual");
  const int x_grad = context.set_output("X@GRAD", shape, dtype_of<T>());
  const int y_grad = context.set_output("Y@GRAD", shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    huber_back<T>(stream_of(c).raw(), delta, c.in<T>(residual), c.in<T>(grad),
                  out_or_null<T>(c, x_grad), out_or_null<T>(c, y_grad), n);
  });
}

}  // namespace

void register_pointwise_loss(KernelTable& table) {
  cpu::for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto list = [&table](const char* op, auto prepare) {
      table.add_last(op, DeviceKind::kCuda, dtype_of<T>(), {.name = "loop", .prepare = prepare});
    };
    list("sigmoid_cross_entropy_with_logits", prepare_sigmoid_loss<T, false>);
    list("sigmoid_cross_entropy_with_logits_grad", prepare_sigmoid_loss<T, true>);
    list("log_loss", prepare_log_loss<T, false>);
    list("log_loss_grad", prepare_log_loss<T, true>);
    list("hinge_loss", prepare_hinge_loss<T, false>);
    list("hinge_loss_grad", prepare_hinge_loss<T, true>);
    list("huber_loss", prepare_huber<T>);
    list("huber_loss_grad", prepare_huber_grad<T>);
  });
}

}  // namespace fleet::fluid::cuda
