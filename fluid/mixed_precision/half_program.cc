#include "fluid/mixed_precision/half_program.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/append.h"
#include "fluid/ops/shape/shape_ops.h"
#include "fluid/program/default_programs.h"

namespace fleet::fluid::mixed_precision {
namespace {

const char* suffix(DType dtype) {
  if (dtype == DType::kFloat32) return ".cast_fp32";
  return dtype == DType::kFloat16 ? ".cast_fp16" : ".cast_bf16";
}

// The only input of batch_norm that may have 16 bits.
bool may_be_half(const Operator& op, std::string_view slot) {
  return op.type != "batch_norm" || slot == "X";
}

// Names of the main block in other blocks.
std::set<std::string, std::less<>> named_in_blocks(const Program& program) {
  std::set<std::string, std::less<>> names;
  for (int32_t i = 1; i < program.block_count(); ++i) {
    for (const auto& op : program.block(i).ops()) {
      for (const auto& list : {op->input_names(), op->output_names()}) {
        names.insert(list.begin(), list.end());
      }
    }
  }
  return names;
}

class Rewriter {
 public:
  Rewriter(Program& program, const PrecisionTable& table, DType half)
      : block_(program.global_block()),
        table_(table),
        half_(half),
        kept_(named_in_blocks(program)) {}

  // Leaves the block as it is when an op cannot be what the table says.
  void run() {
    const OpList ops = block_.ops();
    const std::vector<VarDesc> vars = copies_of_vars();
    try {
      block_.set_ops({});
      for (const auto& op : ops) {
        const bool rewrites = op->role == OpRole::kForward && op->attr("sub_block") == nullptr;
        if (rewrites) {
          add(*op);
        } else {
          block_.append_op(*op);
        }
      }
    } catch (...) {
      restore(ops, vars);
      throw;
    }
  }

 private:
  std::vector<VarDesc> copies_of_vars() const {
    std::vector<VarDesc> copies;
    for (const VarDesc* var : std::as_const(block_).vars_in_order()) copies.push_back(*var);
    return copies;
  }

  void restore(const OpList& ops, const std::vector<VarDesc>& vars) {
    block_.set_ops(ops);
    for (const VarDesc* var : block_.vars()) {
      const auto is_it = [var](const VarDesc& before) { return before.name == var->name; };
      if (std::none_of(vars.begin(), vars.end(), is_it)) block_.remove_var(std::string(var->name));
    }
    for (const VarDesc& before : vars) block_.edit_var(before.name) = before;
  }

  void add(const Operator& op) {
    const Precision precision = precision_of(op);
    Operator changed = op;
    if (precision == Precision::kHalf) cast_inputs(changed, DType::kFloat32, half_);
    if (precision == Precision::kFloat32) cast_inputs(changed, half_, DType::kFloat32);
    if (changed.inputs == op.inputs && !reads(changed, half_)) {
      block_.append_op(std::move(changed));
    } else {
      if (changed.type == "cast") note_in_dtype(changed);
      insert_op(block_, block_.op_count(), std::move(changed));  // finds its outputs' types anew
    }
    for (const std::string& name : op.output_names()) {
      made_by_[name] = precision;
      casts_.erase(name);
    }
  }

  Precision precision_of(const Operator& op) const {
    const Precision listed = table_.of(op.type);
    if (listed == Precision::kFloat32 || touches_black(op) || must_keep_outputs(op)) {
      return Precision::kFloat32;
    }
    if (listed == Precision::kHalf) return listed;
    Precision found = Precision::kOfInputs;
    for (const std::string& name : op.input_names()) {
      const auto maker = made_by_.find(name);
      if (maker == made_by_.end()) continue;
      if (maker->second == Precision::kFloat32) return Precision::kFloat32;
      if (maker->second == Precision::kHalf) found = Precision::kHalf;
    }
    return found;
  }

  bool touches_black(const Operator& op) const {
    const auto black = [this](const std::string& name) { return table_.is_black(name); };
    const auto inputs = op.input_names();
    const auto outputs = op.output_names();
    return std::any_of(inputs.begin(), inputs.end(), black) ||
           std::any_of(outputs.begin(), outputs.end(), black);
  }

  bool must_keep_outputs(const Operator& op) const {
    if (op.attr("dtype") != nullptr) return true;
    for (const auto& [slot, names] : op.outputs) {
      if (op.type == "batch_norm" && slot != "Y") continue;
      for (const std::string& name : names) {
        const VarDesc* var = std::as_const(block_).find_var(name);
        if (kept_.contains(name) || (var != nullptr && var->persistable)) return true;
      }
    }
    return false;
  }

  const VarDesc* typed_like(const std::string& name, DType dtype) const {
    const VarDesc* var = std::as_const(block_).find_var(name);
    const bool is_it = var != nullptr && var->typed && var->dtype == dtype;
    return is_it && var->kind == VarKind::kLodTensor ? var : nullptr;
  }

  bool reads(const Operator& op, DType dtype) const {
    const auto inputs = op.input_names();
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](const std::string& name) { return typed_like(name, dtype) != nullptr; });
  }

  // In the order of the release, which puts each cast right in front of the op, and so the last
  // input's first.
  void cast_inputs(Operator& op, DType from, DType to) {
    std::vector<Operator> casts;
    for (auto& [slot, names] : op.inputs) {
      if (!may_be_half(op, slot)) continue;
      for (std::string& name : names) {
        if (const VarDesc* var = typed_like(name, from)) name = cast_of(*var, to, casts);
      }
    }
    for (auto cast = casts.rbegin(); cast != casts.rend(); ++cast) {
      insert_op(block_, block_.op_count(), std::move(*cast));
    }
  }

  std::string cast_of(const VarDesc& var, DType to, std::vector<Operator>& casts) {
    std::string& name = casts_[var.name];
    if (!name.empty()) return name;
    name = var.name + suffix(to);
    if (block_.has_var(name)) name = unique_name::generate(name);
    VarDesc desc;
    desc.name = name;
    desc.dtype = to;
    desc.stop_gradient = var.stop_gradient;
    Operator op;
    op.type = "cast";
    op.inputs["X"] = {var.name};
    op.outputs["Out"] = {name};
    op.attrs = to_attributes(CastAttrs{.in_dtype = var.dtype, .out_dtype = to});
    casts.push_back(std::move(op));
    block_.add_var(std::move(desc));
    return name;
  }

  void note_in_dtype(Operator& op) const {
    auto attrs = parse_attributes<CastAttrs>("cast", op.attrs);
    attrs.in_dtype = std::as_const(block_).var(op.input("X").front()).dtype;
    op.attrs = to_attributes(attrs);
  }

  Block& block_;
  const PrecisionTable& table_;
  DType half_;
  std::set<std::string, std::less<>> kept_;
  std::map<std::string, Precision, std::less<>> made_by_;
  std::map<std::string, std::string, std::less<>> casts_;  // of the variable's present value
};

void require_forward_only(const Program& program) {
  for (const auto& op : program.global_block().ops()) {
    if (!has_role(op->role, OpRole::kBackward)) continue;
    throw_error(ErrorCode::kPrecondition,
                {.what = "mixed precision rewrites the forward part, which has its gradients",
                 .where = "op '" + op->type + "', role " + to_string(op->role),
                 .expected = "a program before any backward or minimize",
                 .got = "a backward part",
                 .fix = "call the decorated optimizer's minimize first, and once for a program"});
  }
}

}  // namespace

void compute_in_halves(Program& program, const PrecisionTable& table, DType half) {
  require_forward_only(program);
  Rewriter(program, table, half).run();
}

}  // namespace fleet::fluid::mixed_precision
