// The losses of fluid/kernels/functions/losses.h whose elements are made one by one, as kernels of
// a device.
#pragma once

#include <array>
#include <vector>

#include "fluid/kernels/checked_inputs.h"
#include "fluid/kernels/functions/losses.h"
#include "fluid/kernels/kernel_table.h"
#include "fluid/ops/loss/regression_loss.h"

namespace fleet::fluid {

// In the order of the function's inputs and outputs. All have the shape and type of the first.
struct LossSlots {
  std::vector<const char*> inputs;
  std::vector<const char*> outputs;
};

// Device has the kind it is, and run(context, f, arrays, n), which computes n elements.
template <class Device, class T, class F>
std::unique_ptr<Prepared> prepare_element_loss(PrepareContext& context, const LossSlots& slots,
                                               const F& f) {
  const char* first = slots.inputs.front();
  const Shape shape = context.in(first).shape;
  std::array<int, F::kInputs> in{};
  std::array<int, F::kOutputs> out{};
  for (size_t i = 0; i < in.size(); ++i) in[i] = input_like(context, slots.inputs[i], first);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = context.set_output(slots.outputs[i], shape, dtype_of<T>());
  }
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    functions::LossArrays<T, F> arrays;
    for (size_t i = 0; i < in.size(); ++i) arrays.in[i] = c.in<T>(in[i]);
    for (size_t i = 0; i < out.size(); ++i) {
      arrays.out[i] = out[i] >= 0 ? c.out<T>(out[i]) : nullptr;
    }
    Device::run(c, f, arrays, n);
  });
}

// `function_of` makes the function of the op's attributes.
template <class Device, class T, class FunctionOf>
void add_element_loss(KernelTable& table, const char* op, LossSlots slots, FunctionOf function_of) {
  const auto prepare = [slots = std::move(slots), function_of](PrepareContext& context) {
    return prepare_element_loss<Device, T>(context, slots, function_of(context));
  };
  table.add_last(op, Device::kKind, dtype_of<T>(),
                 {.name = "loop", .prepare = prepare, .images = ImageOrder::kElements});
}

template <class Device, class T>
void add_element_losses(KernelTable& table) {
  using Context = const PrepareContext&;
  const auto add = [&table](const char* op, LossSlots slots, auto function_of) {
    add_element_loss<Device, T>(table, op, std::move(slots), function_of);
  };
  add("log_loss_grad", {{"Predicted", "Labels", "Loss@GRAD"}, {"Predicted@GRAD"}},
      [](Context context) {
        return functions::LogLossBack<T>{static_cast<T>(context.attrs<LogLossAttrs>().epsilon)};
      });
  add("hinge_loss", {{"Logits", "Labels"}, {"Loss"}},
      [](Context) { return functions::HingeLoss<T>{}; });
  add("hinge_loss_grad", {{"Logits", "Labels", "Loss@GRAD"}, {"Logits@GRAD"}},
      [](Context) { return functions::HingeBack<T>{}; });
  add("huber_loss", {{"X", "Y"}, {"Residual", "Out"}}, [](Context context) {
    return functions::HuberLoss<T>{static_cast<T>(context.attrs<HuberLossAttrs>().delta)};
  });
  add("huber_loss_grad", {{"Residual", "Out@GRAD"}, {"X@GRAD", "Y@GRAD"}}, [](Context context) {
    return functions::HuberBack<T>{static_cast<T>(context.attrs<HuberLossAttrs>().delta)};
  });
  add("rank_loss", {{"Left", "Right", "Label"}, {"Out"}},
      [](Context) { return functions::RankLoss<T>{}; });
  add("rank_loss_grad", {{"Left", "Right", "Label", "Out@GRAD"}, {"Left@GRAD", "Right@GRAD"}},
      [](Context) { return functions::RankBack<T>{}; });
  add("margin_rank_loss", {{"X1", "X2", "Label"}, {"Out", "Activated"}}, [](Context context) {
    return functions::MarginRankLoss<T>{
        static_cast<T>(context.attrs<MarginRankLossAttrs>().margin)};
  });
  add("margin_rank_loss_grad", {{"Label", "Activated", "Out@GRAD"}, {"X1@GRAD", "X2@GRAD"}},
      [](Context) { return functions::MarginRankBack<T>{}; });
}

}  // namespace fleet::fluid
