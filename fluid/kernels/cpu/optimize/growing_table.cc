// Updates of the rows of a growing table: the kernel of an update op, applied to blocks of rows.
#include "fluid/ops/nn/growing_table.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/kernels/cpu/growing_tables.h"
#include "fluid/kernels/cpu/optimize/update.h"
#include "fluid/kernels/cpu/register.h"

namespace fleet::fluid::cpu {
namespace {

using tables::RowBlock;

bool is_true(const Operator& op, std::string_view name) {
  const Attribute* attr = op.attr(name);
  const auto* set = attr == nullptr ? nullptr : std::get_if<bool>(attr);
  return set != nullptr && *set;
}

// What stands behind a variable of the op that is applied to rows.
struct Source {
  enum class Kind : uint8_t { kParam, kGrad, kState, kOuter };
  Kind kind = Kind::kOuter;
  int at = 0;  // of kState: which; of kOuter: position among the whole op's inputs or outputs
};

// The op that is applied to rows, without what depends on how many there are.
class RowUpdate {
 public:
  RowUpdate(const PrepareContext& context, int64_t row_width)
      : block(context.block()),
        kernels(kernel_table(context.block().program())),
        op(row_update_of(context.op())),
        states(row_update_attributes(context.op()).states),
        width(row_width),
        sparse(is_true(op, "paddle_form")) {
    for (const auto& [slot, names] : op.inputs) {
      if (names.empty()) continue;
      const int outer = context.input(slot);
      inputs.push_back(source_of(slot, names.front(), outer));
      outer_specs.push_back(inputs.back().kind == Source::Kind::kOuter ? context.in(slot)
                                                                       : ValueSpec());
    }
    for (const auto& [slot, names] : op.outputs) {
      if (!names.empty()) outputs.push_back(source_of(slot, names.front(), context.output(slot)));
    }
  }

  const Block& block;
  const KernelTable& kernels;
  const Operator op;
  const std::vector<std::string> states;
  const int64_t width;
  // Gradients are given as selected rows, for which a form of Paddle's may differ.
  const bool sparse;
  std::vector<Source> inputs;  // in the order of slots
  std::vector<Source> outputs;
  std::vector<ValueSpec> outer_specs;  // of the inputs that are kOuter

 private:
  Source source_of(std::string_view slot, const std::string& name, int outer) const {
    if (slot == "Param" || slot == "ParamOut") return {.kind = Source::Kind::kParam};
    if (slot == "Grad") return {.kind = Source::Kind::kGrad};
    if (outer >= 0) return {.kind = Source::Kind::kOuter, .at = outer};
    const auto state = std::find(states.begin(), states.end(), name);
    return {.kind = Source::Kind::kState, .at = static_cast<int>(state - states.begin())};
  }
};

// The op prepared for blocks of one number of rows. One thread at a time.
class PreparedBlock {
 public:
  PreparedBlock(const RowUpdate& update, int64_t rows)
      : update_(update), shape_{rows, update.width}, values_(2 + update.states.size()) {
    prepare();
    for (size_t i = 0; i < update_.outputs.size(); ++i) {
      if (update_.outputs[i].kind != Source::Kind::kOuter) continue;
      const PrepareContext::OutputSpec& spec = specs_[i];
      own_outputs_[i] = Tensor(spec.dtype, spec.shape);
    }
    if (!update_.sparse) return;
    SelectedRows all;
    all.rows.resize(static_cast<size_t>(rows));
    std::iota(all.rows.begin(), all.rows.end(), 0);
    all.height = rows;
    values_[kGrad] = std::move(all);
  }

  const PrepareContext::OutputSpec& output(size_t i) const { return specs_[i]; }

  // `states`: of each of the update's, which of a row's it is. What the op makes beside rows goes
  // to the whole op's outputs if it `advances` them, else nowhere. Returns the sum of what was
  // written.
  double run(const RowBlock& block, std::span<const size_t> states, const KernelContext& outer,
             bool advances) {
    values_[kParam] = view(block.values);
    // The kernel only reads it.
    Tensor gradients = view(const_cast<float*>(block.gradients));
    if (auto* rows = std::get_if<SelectedRows>(&values_[kGrad])) {
      rows->value = std::move(gradients);
    } else {
      values_[kGrad] = std::move(gradients);
    }
    for (size_t i = 0; i < states.size(); ++i) {
      values_[kStates + i] = view(block.states[states[i]]);
    }
    inputs_.clear();
    outputs_.clear();
    for (const Source& source : update_.inputs) {
      const bool whole = source.kind == Source::Kind::kOuter;
      inputs_.push_back(whole ? &outer.input_value(source.at) : own(source));
    }
    for (size_t i = 0; i < update_.outputs.size(); ++i) {
      const Source& source = update_.outputs[i];
      const bool whole = source.kind == Source::Kind::kOuter;
      outputs_.push_back(!whole     ? own(source)
                         : advances ? &outer.output_value(source.at)
                                    : &own_outputs_.at(i));
    }
    KernelContext context(inputs_, outputs_, scratch_);
    context.set_step(outer.step(), outer.shard());
    prepared_->run(context);
    return context.written();
  }

 private:
  static constexpr size_t kParam = 0;
  static constexpr size_t kGrad = 1;
  static constexpr size_t kStates = 2;

  void prepare() {
    std::vector<ValueSpec> specs = update_.outer_specs;
    for (size_t i = 0; i < specs.size(); ++i) {
      const Source::Kind kind = update_.inputs[i].kind;
      if (kind == Source::Kind::kOuter) continue;
      const bool rows = kind == Source::Kind::kGrad && update_.sparse;
      specs[i] = {.kind = rows ? ValueKind::kSelectedRows : ValueKind::kTensor,
                  .dtype = DType::kFloat32,
                  .shape = shape_};
    }
    for (const Kernel& kernel :
         update_.kernels.find(update_.op.type, DeviceKind::kCpu, DType::kFloat32)) {
      PrepareContext context(update_.block, update_.op, specs, update_.outputs.size());
      prepared_ = kernel.prepare(context);
      specs_ = context.outputs();
      if (prepared_ != nullptr) return;
    }
    throw_error(ErrorCode::kNotSupported, {.what = "no kernel applies this update to rows",
                                           .where = str_cat("op '", update_.op.type, "'"),
                                           .expected = "a kernel for float32 on the CPU",
                                           .got = "none",
                                           .fix = "choose another optimizer for this table"});
  }

  Tensor view(float* rows) const {
    const auto bytes = static_cast<size_t>(shape_.numel()) * sizeof(float);
    return {DType::kFloat32, shape_, Buffer(reinterpret_cast<std::byte*>(rows), bytes, nullptr), 0};
  }

  Value* own(const Source& source) {
    switch (source.kind) {
      case Source::Kind::kParam:
        return &values_[kParam];
      case Source::Kind::kGrad:
        return &values_[kGrad];
      default:
        return &values_[kStates + static_cast<size_t>(source.at)];
    }
  }

  const RowUpdate& update_;
  const Shape shape_;
  std::unique_ptr<Prepared> prepared_;
  std::vector<PrepareContext::OutputSpec> specs_;
  std::vector<Value> values_;            // views of the block: values, gradients, states
  std::map<size_t, Value> own_outputs_;  // by output
  std::vector<Value*> inputs_;
  std::vector<Value*> outputs_;
  Scratch scratch_;
};

// Prepared ops of blocks, by their number of rows, for as many threads as want one.
class PreparedBlocks {
 public:
  explicit PreparedBlocks(const RowUpdate& update) : update_(update) {}

  std::unique_ptr<PreparedBlock> take(size_t rows) {
    {
      const std::lock_guard lock(mutex_);
      auto& free = free_[rows];
      if (!free.empty()) {
        auto block = std::move(free.back());
        free.pop_back();
        return block;
      }
    }
    return std::make_unique<PreparedBlock>(update_, static_cast<int64_t>(rows));
  }
  void give(size_t rows, std::unique_ptr<PreparedBlock> block) {
    const std::lock_guard lock(mutex_);
    free_[rows].push_back(std::move(block));
  }

 private:
  const RowUpdate& update_;
  std::mutex mutex_;
  std::map<size_t, std::vector<std::unique_ptr<PreparedBlock>>> free_;
};

class BlocksUpdate final : public tables::BlockUpdate {
 public:
  BlocksUpdate(PreparedBlocks& blocks, std::span<const size_t> states, const KernelContext& context)
      : blocks_(blocks), states_(states), context_(context) {}

  void update(const RowBlock& block) const override {
    const size_t rows = block.keys.size();
    auto prepared = blocks_.take(rows);
    context_.add_written(prepared->run(block, states_, context_, false));
    blocks_.give(rows, std::move(prepared));
  }

 private:
  PreparedBlocks& blocks_;
  std::span<const size_t> states_;
  const KernelContext& context_;
};

class TableUpdate final : public Prepared {
 public:
  explicit TableUpdate(PrepareContext& context)
      : table_(table_input(context, "Param")),
        grad_(context.input("Grad")),
        update_(context, table_.width),
        blocks_(update_),
        one_row_(update_, 1),
        no_gradient_(static_cast<size_t>(table_.width)) {
    const ValueSpec& grad = context.in("Grad");
    const bool fits = grad.kind == ValueKind::kSelectedRows && grad.dtype == DType::kFloat32 &&
                      grad.shape.rank() > 0 &&
                      grad.shape.numel(1, grad.shape.rank()) == table_.width;
    context.require(fits, "Grad", str_cat("selected rows of ", table_.width, " float32"),
                    str_cat(dtype_name(grad.dtype), grad.shape));
    context.own_output("ParamOut");
    size_t at = 0;
    for (const auto& [slot, names] : update_.op.outputs) {
      if (names.empty()) continue;
      const PrepareContext::OutputSpec& spec = one_row_.output(at);
      const bool outer = update_.outputs[at++].kind == Source::Kind::kOuter;
      if (outer) context.set_output(slot, spec.shape, spec.dtype);
      advances_ = advances_ || outer;
    }
  }

  void run(const KernelContext& context) override {
    const SelectedRows& gradient = context.rows_input(grad_);
    merged_.merge(gradient, SelectedRows::kNoHeight, table_.width, context.tiles());
    const std::span keys(reinterpret_cast<const uint64_t*>(merged_.rows().data()), merged_.count());
    table_.table(context).alone([&](tables::GrowingTable& table) {
      const std::vector<size_t> states = states_of(table);
      table.apply(keys, merged_.values(), BlocksUpdate(blocks_, states, context), context.tiles());
    });
    if (advances_) advance(context);
  }

 private:
  // Of each of the update's states, which of a row's it is.
  std::vector<size_t> states_of(const tables::GrowingTable& table) const {
    const auto& there = table.options().states;
    std::vector<size_t> found;
    for (const std::string& name : update_.states) {
      const auto at = std::find_if(there.begin(), there.end(),
                                   [&](const auto& state) { return state.name == name; });
      if (at == there.end() || at->width != table.options().width) throw_no_state(name);
      found.push_back(static_cast<size_t>(at - there.begin()));
    }
    return found;
  }

  [[noreturn]] void throw_no_state(const std::string& name) const {
    throw_error(ErrorCode::kPrecondition,
                {.what = "rows of the growing table lack a state of the optimizer",
                 .where = table_.where,
                 .expected = str_cat("state '", name, "', as wide as the table"),
                 .got = "a table that was made before minimize, or by another startup program",
                 .fix = "run the startup program after minimize"});
  }

  // Powers of beta go on once a step, whatever rows there were: the op is applied to a row of no
  // table.
  void advance(const KernelContext& context) {
    std::vector<float> values(no_gradient_);
    std::vector<std::vector<float>> states(update_.states.size(), no_gradient_);
    std::vector<float*> pointers;
    std::vector<size_t> order;
    for (std::vector<float>& state : states) {
      order.push_back(pointers.size());
      pointers.push_back(state.data());
    }
    one_row_.run(
        {.keys = {}, .values = values.data(), .states = pointers, .gradients = no_gradient_.data()},
        order, context, true);
  }

  TableInput table_;
  int grad_;
  RowUpdate update_;
  PreparedBlocks blocks_;
  PreparedBlock one_row_;
  std::vector<float> no_gradient_;
  bool advances_ = false;
  MergedRows<float> merged_;
};

}  // namespace

void register_growing_table_update(KernelTable& table) {
  table.add_last("update_growing_table", DeviceKind::kCpu, DType::kFloat32,
                 {.name = "blocks", .prepare = [](PrepareContext& context) {
                    return std::unique_ptr<Prepared>(std::make_unique<TableUpdate>(context));
                  }});
}

}  // namespace fleet::fluid::cpu
