#include "fluid/kernels/half/widened.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "fluid/kernels/half/convert.h"
#include "fluid/ops/shape/shape_ops.h"

namespace fleet::fluid {
namespace {

std::vector<ValueSpec> widened_specs(std::span<const ValueSpec> specs) {
  std::vector<ValueSpec> wide(specs.begin(), specs.end());
  for (ValueSpec& spec : wide) {
    if (spec.kind == ValueKind::kTensor && is_half(spec.dtype)) spec.dtype = DType::kFloat32;
  }
  return wide;
}

// The types that the program gives an op's outputs; float32 for those that nobody wants.
std::vector<DType> output_types(const PrepareContext& context) {
  std::vector<DType> types;
  for (const auto& [slot, names] : context.op().outputs) {
    for (size_t i = 0; i < names.size(); ++i) {
      const VarDesc* var = context.output_var(slot, i);
      types.push_back(var == nullptr ? DType::kFloat32 : var->dtype);
    }
  }
  return types;
}

// Of selected rows and arrays, elements of 16 bits have no kernels.
bool makes_only_tensors(const PrepareContext& context) {
  for (const auto& [slot, names] : context.op().outputs) {
    for (size_t i = 0; i < names.size(); ++i) {
      const VarDesc* var = context.output_var(slot, i);
      const bool half = var != nullptr && is_half(var->dtype);
      if (half && var->kind != VarKind::kLodTensor) return false;
    }
  }
  return true;
}

class Widened final : public Prepared {
 public:
  using Outputs = std::vector<PrepareContext::OutputSpec>;
  Widened(std::unique_ptr<Prepared> kernel, Outputs outputs, std::vector<DType> types)
      : kernel_(std::move(kernel)),
        outputs_(std::move(outputs)),
        types_(std::move(types)),
        made_(types_.size()) {}

  void run(const KernelContext& context) override {
    std::vector<Value*> inputs;
    for (size_t i = 0; i < context.input_count(); ++i) inputs.push_back(widen(context, i));
    std::vector<Value*> outputs;
    for (size_t i = 0; i < types_.size(); ++i) outputs.push_back(output(context, i));
    KernelContext inner(inputs, outputs, context.scratch());
    inner.set_place(context.place());
    inner.set_stream(context.stream());
    inner.set_tiles(context.tiles());
    inner.set_nonfinite_word(context.nonfinite_word());
    inner.set_step(context.step(), context.shard());
    kernel_->run(inner);
    context.add_written(inner.written());
    for (size_t i = 0; i < types_.size(); ++i) {
      if (is_half(types_[i])) round(context, i, *outputs[i]);
    }
  }

 private:
  // Input i, in float32 where it has a 16-bit type.
  Value* widen(const KernelContext& context, size_t i) {
    wide_.resize(context.input_count());
    Value& given = context.input_value(static_cast<int>(i));
    const auto* tensor = std::get_if<Tensor>(&given);
    if (tensor == nullptr || !tensor->initialized() || !is_half(tensor->dtype())) return &given;
    if (!std::holds_alternative<Tensor>(wide_[i])) wide_[i] = Tensor();
    auto& wide = std::get<Tensor>(wide_[i]);
    wide.reset(DType::kFloat32, tensor->shape(), tensor->place());
    wide.share_lod(*tensor);
    convert_half(*tensor, wide, context.stream(), context.tiles());
    return &wide_[i];
  }

  // What the kernel writes in place of output i. A value that it updates is one for it, too.
  Value* output(const KernelContext& context, size_t i) {
    Value& given = context.output_value(static_cast<int>(i));
    if (!is_half(types_[i])) return &given;
    for (size_t input = 0; input < context.input_count(); ++input) {
      const bool updated = &context.input_value(static_cast<int>(input)) == &given;
      if (updated && std::holds_alternative<Tensor>(wide_[input])) return &wide_[input];
    }
    if (outputs_[i].declared) {
      if (!std::holds_alternative<Tensor>(made_[i])) made_[i] = Tensor();
      std::get<Tensor>(made_[i]).reset(DType::kFloat32, outputs_[i].shape, context.place());
    }
    return &made_[i];
  }

  void round(const KernelContext& context, size_t i, const Value& value) {
    const int at = static_cast<int>(i);
    const auto* made = std::get_if<Tensor>(&value);
    if (made == nullptr || !made->initialized() || made->dtype() != DType::kFloat32) {
      context.output_value(at) = value;
      return;
    }
    Tensor& out = outputs_[i].declared ? context.output(at)
                                       : context.make_dense(at, types_[i], made->shape());
    if (!made->lod().empty()) out.share_lod(*made);
    convert_half(*made, out, context.stream(), context.tiles());
  }

  std::unique_ptr<Prepared> kernel_;
  Outputs outputs_;  // as the kernel declared them
  std::vector<DType> types_;
  std::vector<Value> wide_;  // inputs in float32
  std::vector<Value> made_;  // outputs in float32
};

class OrWidened final : public Prepared {
 public:
  OrWidened(std::unique_ptr<Prepared> own, std::unique_ptr<Prepared> wide)
      : own_(std::move(own)), wide_(std::move(wide)) {}

  void run(const KernelContext& context) override {
    if (own_ == nullptr || !ran(context)) wide_->run(context);
  }

 private:
  bool ran(const KernelContext& context) {
    try {
      own_->run(context);
      return true;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kNotSupported) throw;
      Logger().warning("kernels", "an op of 16-bit floats computes in float32",
                       {{"where", error.text().where}, {"why", error.text().what}});
    }
    own_ = nullptr;
    return false;
  }

  std::unique_ptr<Prepared> own_;  // null: it does not take the op
  std::unique_ptr<Prepared> wide_;
};

bool same_types(const PrepareContext& a, const PrepareContext& b) {
  const auto same = [](const auto& x, const auto& y) { return x.dtype == y.dtype; };
  return std::ranges::equal(a.outputs(), b.outputs(), same);
}

std::unique_ptr<Prepared> prepare_widening(PrepareContext& context) {
  if (context.attrs<CastAttrs>().out_dtype != DType::kFloat32) return nullptr;
  const int x = context.input("X");
  const int out = context.set_output("Out", context.in("X").shape, DType::kFloat32);
  return make_prepared([=](const KernelContext& c) {
    convert_half(c.input(x), c.output(out), c.stream(), c.tiles());
  });
}

}  // namespace

Kernel widened(const Kernel& kernel) {
  Kernel result{.name = kernel.name + " of float32", .prepare = {}};
  result.table_rows = kernel.table_rows;
  result.prepare = [prepare = kernel.prepare](PrepareContext& context) {
    if (!makes_only_tensors(context)) return std::unique_ptr<Prepared>();
    const std::vector<ValueSpec> specs = widened_specs(context.inputs());
    PrepareContext inner(context.block(), context.op(), specs, context.outputs().size());
    auto prepared = prepare(inner);
    if (prepared == nullptr) return prepared;
    std::vector<DType> types = output_types(context);
    auto outputs = inner.outputs();
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].declared) continue;
      if (outputs[i].dtype != DType::kFloat32) types[i] = DType::kFloat32;  // the kernel's own
      if (is_half(types[i])) outputs[i].dtype = types[i];
    }
    context.declare(std::move(outputs), inner.sets_lod());
    prepared = std::make_unique<Widened>(std::move(prepared), inner.outputs(), std::move(types));
    return prepared;
  };
  return result;
}

Kernel or_widened(Kernel own, const Kernel& of_float32) {
  own.prepare = [own = std::move(own.prepare),
                 wide = widened(of_float32).prepare](PrepareContext& context) {
    PrepareContext halves(context.block(), context.op(), context.inputs(),
                          context.outputs().size());
    auto first = own(halves);
    auto second = wide(context);
    if (first == nullptr || second == nullptr || !same_types(halves, context)) return second;
    second = std::make_unique<OrWidened>(std::move(first), std::move(second));
    return second;
  };
  return own;
}

void add_half(KernelTable& table, std::string_view op, DeviceKind device, DType half, Kernel own,
              const Kernel& of_float32) {
  table.add_last(op, device, half, std::move(own));
  table.add_last(op, device, half, widened(of_float32));
}

void add_casts_of_halves(KernelTable& table, DeviceKind device, const Kernel& from_float32) {
  for (const DType half : {DType::kFloat16, DType::kBFloat16}) {
    add_half(table, "cast", device, half, {.name = "widen", .prepare = prepare_widening},
             from_float32);
  }
}

}  // namespace fleet::fluid
