// Softmax and the losses of classification. A label that is no class makes its row NaN: an
// exception, as on the CPU, would cost a wait for the device in every step.
#include "fluid/ops/loss/loss.h"

#include "fluid/kernels/checked_inputs.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cuda/register_impl.h"
#include "fluid/kernels/shape/axis_view.h"

namespace fleet::fluid::cuda {
namespace {

Rows rows_of(const Shape& shape, int axis) {
  const AxisView view(shape, axis);
  return {.outer = view.outer, .n = view.n, .inner = view.inner};
}

// The labels of an op, checked; where they are is known when it runs.
template <class T>
struct LabelInput {
  LabelInput(const PrepareContext& context, const Shape& shape, int axis, bool soft_label,
             int64_t ignore_index)
      : position(context.input("Label")), soft(soft_label), ignore(ignore_index) {
    require_labels(context, soft ? shape : with_one_class(shape, axis),
                   soft ? dtype_of<T>() : DType::kInt64);
  }

  Labels<T> get(const KernelContext& c) const {
    Labels<T> labels;
    labels.ignore = ignore;
    if (soft) {
      labels.soft = c.in<T>(position);
    } else {
      labels.index = c.in<int64_t>(position);
    }
    return labels;
  }

  int position;
  bool soft;
  int64_t ignore;
};

template <class T>
std::unique_ptr<Prepared> prepare_softmax(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  const Rows rows = rows_of(shape, context.attrs<SoftmaxAttrs>().axis);
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    softmax<T>(stream_of(c).raw(), rows, c.in<T>(x), c.out<T>(out));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_softmax_grad(PrepareContext& context) {
  const Shape shape = context.in("Out").shape;
  const Rows rows = rows_of(shape, context.attrs<SoftmaxAttrs>().axis);
  context.require(context.in("Out@GRAD").shape == shape, "Out@GRAD", shape.to_string(),
                  context.in("Out@GRAD").shape.to_string());
  const int out = context.input("Out");
  const int grad = context.input("Out@GRAD");
  const int x_grad = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    softmax_back<T>(stream_of(c).raw(), rows, c.in<T>(out), c.in<T>(grad), c.out<T>(x_grad));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_loss(PrepareContext& context, bool soft, int64_t ignore) {
  const Shape shape = context.in("X").shape;
  const Rows rows = rows_of(shape, -1);
  const LabelInput<T> labels(context, shape, -1, soft, ignore);
  const int x = context.input("X");
  const int y = context.set_output("Y", with_one_class(shape), dtype_of<T>());
  const int match = context.set_output("MatchX", with_one_class(shape), dtype_of<T>());
  Shape carried = shape;
  carried.push_back(0);
  context.set_output("XShape", carried, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    cross_entropy<T>(stream_of(c).raw(), rows, c.in<T>(x), labels.get(c), c.out<T>(y),
                     out_or_null<T>(c, match));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_cross_entropy(PrepareContext& context) {
  const auto attrs = context.attrs<CrossEntropyAttrs>();
  return prepare_loss<T>(context, attrs.soft_label, attrs.ignore_index);
}

template <class T>
std::unique_ptr<Prepared> prepare_cross_entropy2(PrepareContext& context) {
  return prepare_loss<T>(context, false, context.attrs<CrossEntropy2Attrs>().ignore_index);
}

template <class T>
std::unique_ptr<Prepared> prepare_cross_entropy_grad(PrepareContext& context) {
  const auto attrs = context.attrs<CrossEntropyAttrs>();
  const Shape shape = context.in("X").shape;
  const Rows rows = rows_of(shape, -1);
  const LabelInput<T> labels(context, shape, -1, attrs.soft_label, attrs.ignore_index);
  const int x = context.input("X");
  const int y_grad = context.input("Y@GRAD");
  const int x_grad = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    cross_entropy_back<T>(stream_of(c).raw(), rows, c.in<T>(x), nullptr, labels.get(c),
                          c.in<T>(y_grad), c.out<T>(x_grad));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_cross_entropy2_grad(PrepareContext& context) {
  const Shape& carried = context.in("XShape").shape;
  context.require(carried.rank() >= 2, "XShape", "X's shape and a 0", carried.to_string());
  const Shape shape(carried.dims().first(static_cast<size_t>(carried.rank() - 1)));
  const Rows rows = rows_of(shape, -1);
  const LabelInput<T> labels(context, shape, -1, false,
                             context.attrs<CrossEntropy2Attrs>().ignore_index);
  const int match = context.input("MatchX");
  const int y_grad = context.input("Y@GRAD");
  const int x_grad = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    cross_entropy_back<T>(stream_of(c).raw(), rows, nullptr, c.in<T>(match), labels.get(c),
                          c.in<T>(y_grad), c.out<T>(x_grad));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_with_softmax(PrepareContext& context) {
  const auto attrs = context.attrs<SoftmaxWithCrossEntropyAttrs>();
  const Shape shape = context.in("Logits").shape;
  const Rows rows = rows_of(shape, attrs.axis);
  const LabelInput<T> labels(context, shape, attrs.axis, attrs.soft_label, attrs.ignore_index);
  const int logits = context.input("Logits");
  const int probability = context.set_output("Softmax", shape, dtype_of<T>());
  const int loss = context.set_output("Loss", with_one_class(shape, attrs.axis), dtype_of<T>());
  if (probability < 0 || loss < 0) return nullptr;
  return make_prepared([=](const KernelContext& c) {
    softmax_with_cross_entropy<T>(stream_of(c).raw(), rows, c.in<T>(logits), labels.get(c),
                                  c.out<T>(probability), c.out<T>(loss));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_with_softmax_grad(PrepareContext& context) {
  const auto attrs = context.attrs<SoftmaxWithCrossEntropyAttrs>();
  const Shape shape = context.in("Softmax").shape;
  const Rows rows = rows_of(shape, attrs.axis);
  const LabelInput<T> labels(context, shape, attrs.axis, attrs.soft_label, attrs.ignore_index);
  const int probability = context.input("Softmax");
  const int loss_grad = context.input("Loss@GRAD");
  const int out = context.set_output("Logits@GRAD", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    softmax_with_cross_entropy_back<T>(stream_of(c).raw(), rows, c.in<T>(probability),
                                       labels.get(c), c.in<T>(loss_grad), c.out<T>(out));
  });
}

}  // namespace

void register_loss(KernelTable& table) {
  cpu::for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto list = [&table](const char* op, auto prepare) {
      table.add_last(op, DeviceKind::kCuda, dtype_of<T>(), {.name = "loop", .prepare = prepare});
    };
    list("softmax", prepare_softmax<T>);
    list("softmax_grad", prepare_softmax_grad<T>);
    list("cross_entropy", prepare_cross_entropy<T>);
    list("cross_entropy_grad", prepare_cross_entropy_grad<T>);
    list("cross_entropy2", prepare_cross_entropy2<T>);
    list("cross_entropy_grad2", prepare_cross_entropy2_grad<T>);
    list("softmax_with_cross_entropy", prepare_with_softmax<T>);
    list("softmax_with_cross_entropy_grad", prepare_with_softmax_grad<T>);
  });
}

}  // namespace fleet::fluid::cuda
