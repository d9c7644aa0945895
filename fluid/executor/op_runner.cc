#include <algorithm>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/executor/op_runner_impl.h"
#include "fluid/kernels/image_layout.h"

namespace fleet::fluid {
namespace {

bool matches(const Value& value, const ValueSpec& spec) {
  const auto* tensor = std::get_if<Tensor>(&value);
  if (tensor == nullptr || spec.kind != ValueKind::kTensor) return spec_of(value) == spec;
  return tensor->dtype() == spec.dtype && tensor->layout() == spec.layout &&
         tensor->initialized() && tensor->shape() == spec.shape;
}

}  // namespace

OpRunner::OpRunner(const Plan& plan, const PlanOp& op, std::vector<Value*> inputs,
                   std::vector<Value*> outputs, std::span<Buffer> buffers, Scratch& scratch,
                   void* stream)
    : plan_(plan),
      op_(op),
      inputs_(std::move(inputs)),
      seen_(inputs_),
      outputs_(std::move(outputs)),
      unwanted_(outputs_.size()),
      buffers_(buffers),
      context_(
          seen_,
          [&] {
            for (size_t i = 0; i < outputs_.size(); ++i) {
              if (outputs_[i] == nullptr) outputs_[i] = &unwanted_[i];
            }
            return std::span<Value* const>(outputs_);
          }(),
          scratch) {
  context_.set_place(op.place);
  context_.set_stream(stream);
}

bool OpRunner::inputs_fit(const Entry& entry) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!matches(*inputs_[i], entry.inputs[i])) return false;
  }
  return true;
}

bool OpRunner::fits(const Entry& entry) const {
  if (!inputs_fit(entry)) return false;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const auto& wanted = entry.outputs[i];
    if (!wanted.declared) continue;
    const auto* tensor = std::get_if<Tensor>(outputs_[i]);
    if (tensor == nullptr || !tensor->initialized() || tensor->dtype() != wanted.dtype ||
        tensor->layout() != wanted.layout || !(tensor->shape() == wanted.shape) ||
        !(tensor->place() == op_.place)) {
      return false;
    }
  }
  return true;
}

// True when the kernel may see all images of this shape in blocks, and leave its results in them.
bool OpRunner::takes_blocks(const Kernel& kernel, const Entry& entry, const Shape& image) const {
  for (const ValueSpec& spec : entry.inputs) {
    if (spec.kind == ValueKind::kNone) continue;
    if (spec.kind != ValueKind::kTensor) return false;
    const bool number = kernel.images == ImageOrder::kChannels && spec.shape.rank() < 2;
    if (number) continue;
    if (!can_be_blocked(spec.dtype, image) || !(spec.shape == image)) return false;
  }
  return std::all_of(op_.outputs.begin(), op_.outputs.end(), [&](int i) {
    if (i < 0) return true;
    const PlanVar& var = plan_.vars()[static_cast<size_t>(i)];
    const bool number =
        kernel.images == ImageOrder::kChannels && var.desc != nullptr && var.desc->shape.rank() < 2;
    return number || var.may_block;
  });
}

// The specs of the inputs as the kernel takes them.
std::vector<ValueSpec> OpRunner::wanted_by(const Kernel& kernel, const Entry& entry) const {
  std::vector<ValueSpec> specs = entry.inputs;
  const auto blocked = std::find_if(specs.begin(), specs.end(), [](const ValueSpec& spec) {
    return spec.layout == Layout::kBlocked;
  });
  if (blocked == specs.end() || kernel.images == ImageOrder::kAny) return specs;
  const Shape image = blocked->shape;
  const bool takes = kernel.images != ImageOrder::kPlain && takes_blocks(kernel, entry, image);
  for (ValueSpec& spec : specs) {
    const bool is_image = spec.kind == ValueKind::kTensor && spec.shape == image;
    spec.layout = takes && is_image ? Layout::kBlocked : Layout::kPlain;
  }
  return specs;
}

bool OpRunner::prepare_with(const Kernel& kernel, Entry& entry) const {
  const std::vector<ValueSpec> specs = wanted_by(kernel, entry);
  PrepareContext context(plan_.block(), *op_.op, specs, outputs_.size());
  if (kernel.images == ImageOrder::kAny) {
    std::vector<bool> may_block;
    for (const int i : op_.outputs) {
      may_block.push_back(i >= 0 && plan_.vars()[static_cast<size_t>(i)].may_block);
    }
    context.allow_blocks(std::move(may_block));
  }
  entry.prepared = kernel.prepare(context);
  if (entry.prepared == nullptr) return false;
  entry.outputs = context.outputs();
  entry.sets_lod = context.sets_lod();
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].layout != entry.inputs[i].layout) entry.reordered.push_back({i, Tensor()});
  }
  const auto blocked = std::find_if(specs.begin(), specs.end(), [](const ValueSpec& spec) {
    return spec.layout == Layout::kBlocked;
  });
  if (blocked == specs.end() || kernel.images == ImageOrder::kAny) return true;
  for (auto& output : entry.outputs) {
    if (output.declared && output.shape == blocked->shape) output.layout = Layout::kBlocked;
  }
  return true;
}

std::unique_ptr<OpRunner::Entry> OpRunner::prepare() const {
  auto entry = std::make_unique<Entry>();
  for (const Value* value : inputs_) entry->inputs.push_back(spec_of(*value));
  const Operator& op = *op_.op;
  const DType dtype = kernel_dtype(plan_.block(), op, entry->inputs);
  for (const Kernel& kernel : plan_.kernels().find(op.type, op_.place.kind, dtype)) {
    if (prepare_with(kernel, *entry)) return entry;
  }
  std::vector<std::string> given;
  for (const ValueSpec& spec : entry->inputs) {
    given.push_back(str_cat(dtype_name(spec.dtype), spec.shape));
  }
  throw_error(ErrorCode::kNotSupported, {.what = "no kernel of this op takes these inputs",
                                         .where = op.to_string(),
                                         .expected = str_cat("a kernel for ", dtype_name(dtype),
                                                             " on ", op_.place.to_string()),
                                         .got = join(given, ", "),
                                         .fix = "cast the inputs, or add a kernel for this type"});
}

void OpRunner::bind() {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [this](const auto& entry) { return inputs_fit(*entry); });
  if (found != entries_.end()) {
    std::rotate(entries_.begin(), found, found + 1);
  } else {
    current_ = nullptr;
    entries_.insert(entries_.begin(), prepare());
    if (entries_.size() > kMaxEntries) entries_.pop_back();
  }
  current_ = entries_.front().get();
  seen_ = inputs_;
  for (Reordered& image : current_->reordered) seen_[image.input] = &image.value;
  for (size_t i = 0; i < outputs_.size(); ++i) give_memory(current_->outputs[i], i);
}

void OpRunner::reorder(Reordered& image) {
  reorder_image(*std::get_if<Tensor>(inputs_[image.input]), *std::get_if<Tensor>(&image.value));
}

void OpRunner::give_memory(const PrepareContext::OutputSpec& spec, size_t i) {
  if (!spec.declared) return;
  Value& value = *outputs_[i];
  if (!std::holds_alternative<Tensor>(value)) value = Tensor();
  Tensor& tensor = *std::get_if<Tensor>(&value);
  if (tensor.initialized() && tensor.dtype() == spec.dtype && tensor.shape() == spec.shape &&
      tensor.layout() == spec.layout && tensor.place() == op_.place) {
    return;
  }
  const int var = op_.outputs[i];
  const int slot = var < 0 ? -1 : plan_.vars()[static_cast<size_t>(var)].buffer;
  if (slot < 0) {
    tensor.reset(spec.dtype, spec.shape, op_.place);
    return;
  }
  const size_t bytes = static_cast<size_t>(spec.shape.numel()) * dtype_size(spec.dtype);
  Buffer& shared = buffers_[static_cast<size_t>(slot)];
  if (!shared || shared.size() < bytes) {
    shared = Buffer(std::max<size_t>(bytes, 64), allocator_of(op_.place));
  }
  tensor = Tensor(spec.dtype, spec.shape, shared, 0, op_.place);
  if (spec.layout == Layout::kBlocked) tensor.set_layout(Layout::kBlocked);
}

void OpRunner::pass_on_lod() {
  const auto* from = std::get_if<Tensor>(inputs_[static_cast<size_t>(op_.lod_from)]);
  if (from == nullptr) return;
  const int64_t rows = from->lod().empty() ? -1 : from->lod().back().back();
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (op_.outputs[i] < 0) continue;
    const VarDesc* desc = plan_.vars()[static_cast<size_t>(op_.outputs[i])].desc;
    auto* to = std::get_if<Tensor>(outputs_[i]);
    if (desc == nullptr || desc->lod_level == 0 || to == nullptr) continue;
    // Structure belongs to rows: outputs of other rows have none.
    const bool fits = rows < 0 || (to->shape().rank() > 0 && to->shape()[0] == rows);
    if (fits) {
      to->share_lod(*from);
    } else {
      to->set_lod({});
    }
  }
}

}  // namespace fleet::fluid
