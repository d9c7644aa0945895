// Losses that compare values, element by element or row by row.
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cuda/loss/pointwise_loops.h"
#include "fluid/kernels/cuda/register_impl.h"
#include "fluid/kernels/loss/element_losses.h"
#include "fluid/kernels/loss/row_losses.h"

namespace fleet::fluid::cuda {
namespace {

// A device for losses that are made element by element.
struct Elements {
  static constexpr DeviceKind kKind = DeviceKind::kCuda;
  template <class T, class F>
  static void run(const KernelContext& c, const F& f, const functions::LossArrays<T, F>& arrays,
                  int64_t n) {
    element_loss<T>(stream_of(c).raw(), f, arrays, n);
  }
};

template <class T, bool Gradient>
std::unique_ptr<Prepared> prepare_sigmoid_loss(PrepareContext& context) {
  const auto attrs = context.attrs<SigmoidCrossEntropyAttrs>();
  const T ignore = static_cast<T>(attrs.ignore_index);
  const Shape shape = context.in("X").shape;
  const int x = context.input("X");
  const int label = input_like(context, "Label", "X");
  const int grad = Gradient ? input_like(context, "Out@GRAD", "X") : -1;
  const int out = context.set_output(Gradient ? "X@GRAD" : "Out", shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel(), normalize = attrs.normalize](const KernelContext& c) {
    Stream& stream = stream_of(c);
    T* divisor = nullptr;
    if (normalize) {
      divisor = stream.scratch<T>(1 + loss_partials(n));
      count_labels<T>(stream.raw(), ignore, c.in<T>(label), n, divisor + 1, divisor);
    }
    sigmoid_loss<T>(stream.raw(), ignore, divisor, c.in<T>(x), c.in<T>(label),
                    in_or_null<T>(c, grad), c.out<T>(out), n);
  });
}

template <class T>
SmoothL1Args<T> smooth_l1_args(const KernelContext& c, const auto& loss) {
  const T sigma = static_cast<T>(loss.sigma);
  return {.rows = loss.rows,
          .length = loss.length,
          .sigma2 = sigma * sigma,
          .inside = in_or_null<T>(c, loss.inside),
          .outside = in_or_null<T>(c, loss.outside)};
}

template <class T>
std::unique_ptr<Prepared> prepare_smooth_l1(PrepareContext& context) {
  const SmoothL1 l = smooth_l1_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    smooth_l1_loss<T>(stream_of(c).raw(), smooth_l1_args<T>(c, l), c.in<T>(l.x), c.in<T>(l.y),
                      out_or_null<T>(c, l.difference), out_or_null<T>(c, l.out));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_smooth_l1_grad(PrepareContext& context) {
  const SmoothL1Back l = smooth_l1_back_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    smooth_l1_back<T>(stream_of(c).raw(), smooth_l1_args<T>(c, l), c.in<T>(l.difference),
                      c.in<T>(l.grad), out_or_null<T>(c, l.x_grad), out_or_null<T>(c, l.y_grad));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_bpr(PrepareContext& context) {
  const BprLoss b = bpr_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    bpr_loss<T>(stream_of(c).raw(), b.rows, b.classes, c.in<T>(b.x), c.in<int64_t>(b.label),
                c.out<T>(b.out));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_bpr_grad(PrepareContext& context) {
  const BprLoss b = bpr_back_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    bpr_back<T>(stream_of(c).raw(), b.rows, b.classes, c.in<T>(b.x), c.in<int64_t>(b.label),
                c.in<T>(b.grad), c.out<T>(b.out));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_kldiv(PrepareContext& context) {
  const KldivLoss k = kldiv_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    Stream& stream = stream_of(c);
    if (!k.summed) {
      return kldiv<T>(stream.raw(), c.in<T>(k.x), c.in<T>(k.target), c.out<T>(k.out), k.n);
    }
    kldiv_sum<T>(stream.raw(), c.in<T>(k.x), c.in<T>(k.target), static_cast<T>(k.divisor),
                 stream.scratch<T>(loss_partials(k.n)), c.out<T>(k.out), k.n);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_kldiv_grad(PrepareContext& context) {
  const KldivLoss k = kldiv_back_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    kldiv_back<T>(stream_of(c).raw(), c.in<T>(k.target), c.in<T>(k.grad), static_cast<T>(k.divisor),
                  !k.summed, c.out<T>(k.out), k.n);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_label_smooth(PrepareContext& context) {
  const LabelSmoothing l = label_smoothing_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    label_smooth<T>(stream_of(c).raw(), static_cast<T>(l.epsilon), l.classes, c.in<T>(l.x),
                    in_or_null<T>(c, l.prior), c.out<T>(l.out), l.n);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_label_smooth_grad(PrepareContext& context) {
  const T factor = T{1} - static_cast<T>(context.attrs<LabelSmoothAttrs>().epsilon);
  const Shape shape = context.in("Out@GRAD").shape;
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    scale<T>(stream_of(c).raw(), {.scale = factor}, c.in<T>(grad), c.out<T>(out), n);
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
    add_element_losses<Elements, T>(table);
    add_element_loss<Elements, T>(
        table, "log_loss", {{"Predicted", "Labels"}, {"Loss"}}, [](const PrepareContext& context) {
          return functions::LogLoss<T>{static_cast<T>(context.attrs<LogLossAttrs>().epsilon)};
        });
    list("smooth_l1_loss", prepare_smooth_l1<T>);
    list("smooth_l1_loss_grad", prepare_smooth_l1_grad<T>);
    list("bpr_loss", prepare_bpr<T>);
    list("bpr_loss_grad", prepare_bpr_grad<T>);
    list("kldiv_loss", prepare_kldiv<T>);
    list("kldiv_loss_grad", prepare_kldiv_grad<T>);
    list("label_smooth", prepare_label_smooth<T>);
    list("label_smooth_grad", prepare_label_smooth_grad<T>);
  });
}

}  // namespace fleet::fluid::cuda
