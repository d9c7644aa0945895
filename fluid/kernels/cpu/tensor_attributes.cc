#include "fluid/kernels/cpu/tensor_attributes.h"

#include <utility>

#include "base/strings.h"

namespace fleet::fluid::cpu {
namespace {

// An attribute that this op has from tensors, and where those are among its inputs.
struct Source {
  TensorAttribute attribute;
  std::vector<int> inputs;
};

using Numbers = std::vector<std::vector<int64_t>>;  // of each source

void append_numbers(const Tensor& tensor, std::vector<int64_t>& numbers) {
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    numbers.push_back(tensor.dtype() == DType::kInt64 ? tensor.data<int64_t>()[i]
                                                      : tensor.data<int32_t>()[i]);
  }
}

std::vector<Source> sources_of(const PrepareContext& context,
                               const std::vector<TensorAttribute>& attributes) {
  std::vector<Source> sources;
  for (const TensorAttribute& attribute : attributes) {
    const bool listed = context.input_count(attribute.list) != 0;
    const std::string& slot = listed ? attribute.list : attribute.whole;
    Source source{attribute, {}};
    for (size_t i = 0; i < context.input_count(slot); ++i) {
      const ValueSpec& spec = context.in(slot, i);
      context.require(spec.dtype == DType::kInt32 || spec.dtype == DType::kInt64, slot,
                      "int32 or int64", std::string(dtype_name(spec.dtype)));
      context.require((!listed && !attribute.scalar) || spec.shape.numel() == 1, slot, "one number",
                      spec.shape.to_string());
      source.inputs.push_back(context.input(slot, i));
    }
    if (!source.inputs.empty()) sources.push_back(std::move(source));
  }
  return sources;
}

class FromTensors final : public Prepared {
 public:
  FromTensors(PrepareContext& context, const PrepareKernel& prepare, std::vector<Source> sources,
              const std::vector<TensorAttribute>& attributes)
      : block_(context.block()),
        op_(context.op()),
        prepare_(prepare),
        sources_(std::move(sources)) {
    for (const TensorAttribute& attribute : attributes) {
      op_.inputs.erase(attribute.whole);
      op_.inputs.erase(attribute.list);
    }
    for (const auto& [slot, names] : op_.inputs) {
      for (size_t i = 0; i < names.size(); ++i) inputs_.push_back(context.input(slot, i));
    }
    for (const auto& [slot, names] : op_.outputs) {
      for (size_t i = 0; i < names.size(); ++i) context.own_output(slot, i);
    }
    outputs_.resize(context.outputs().size());
  }

  void run(const KernelContext& c) override {
    std::vector<Value*> inputs;
    for (const int i : inputs_) inputs.push_back(&c.input_value(i));
    Numbers numbers;
    for (const Source& source : sources_) {
      auto& list = numbers.emplace_back();
      for (const int i : source.inputs) append_numbers(c.input(i), list);
    }
    if (prepared_ == nullptr || numbers != numbers_) prepare_for(inputs, std::move(numbers));
    std::vector<Value*> outputs;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const auto& spec = outputs_[i];
      if (spec.declared) c.make_dense(static_cast<int>(i), spec.dtype, spec.shape);
      outputs.push_back(&c.output_value(static_cast<int>(i)));
    }
    KernelContext inner(inputs, outputs, c.scratch());
    inner.set_stream(c.stream());
    inner.set_tiles(c.tiles());
    inner.set_step(c.step(), c.shard());
    prepared_->run(inner);
  }

 private:
  void prepare_for(const std::vector<Value*>& inputs, Numbers numbers) {
    prepared_ = nullptr;
    for (size_t i = 0; i < sources_.size(); ++i) {
      const TensorAttribute& attribute = sources_[i].attribute;
      Attribute& value = op_.attrs[attribute.name];
      if (attribute.scalar) {
        value = numbers[i].front();
      } else {
        value = numbers[i];
      }
    }
    std::vector<ValueSpec> specs;
    specs.reserve(inputs.size());
    for (const Value* value : inputs) specs.push_back(spec_of(*value));
    PrepareContext context(block_, op_, specs, outputs_.size());
    prepared_ = prepare_(context);
    outputs_ = context.outputs();
    numbers_ = std::move(numbers);
  }

  const Block& block_;
  Operator op_;  // without the slots of tensors
  PrepareKernel prepare_;
  std::vector<Source> sources_;
  std::vector<int> inputs_;  // of op_, among those of the whole op
  Numbers numbers_;          // that prepared_ is for
  std::unique_ptr<Prepared> prepared_;
  std::vector<PrepareContext::OutputSpec> outputs_;
};

}  // namespace

PrepareKernel with_tensor_attributes(PrepareKernel prepare,
                                     std::vector<TensorAttribute> attributes) {
  return [prepare = std::move(prepare), attributes = std::move(attributes)](
             PrepareContext& context) -> std::unique_ptr<Prepared> {
    auto sources = sources_of(context, attributes);
    if (sources.empty()) return prepare(context);
    return std::make_unique<FromTensors>(context, prepare, std::move(sources), attributes);
  };
}

}  // namespace fleet::fluid::cpu
