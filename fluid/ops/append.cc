#include "fluid/ops/append.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/program/verify.h"

namespace fleet::fluid {
namespace {

[[noreturn]] void fail_slot_name(const Operator& op, const std::string& slot,
                                 const std::vector<SlotSpec>& specs, std::string_view direction) {
  std::vector<std::string> known;
  known.reserve(specs.size());
  for (const SlotSpec& spec : specs) known.push_back(spec.name);
  throw_error(ErrorCode::kInvalidProgram,
              {.what = str_cat("op '", op.type, "' has no ", direction, " '", slot, "'",
                               did_you_mean(slot, known)),
               .where = str_cat("op '", op.type, "'"),
               .expected = join(known, ", "),
               .got = slot,
               .fix = "use a slot of the op"});
}

void check_slot_names(const Operator& op, const SlotMap& slots, const std::vector<SlotSpec>& specs,
                      std::string_view direction) {
  for (const auto& [slot, names] : slots) {
    const auto named = [&slot = slot](const SlotSpec& spec) { return spec.name == slot; };
    if (names.empty() || std::any_of(specs.begin(), specs.end(), named)) continue;
    fail_slot_name(op, slot, specs, direction);
  }
}

// The variables of a slot are as many as the schema wants, and exist in the block; null when that
// is known of all that have names.
void check_slot(const Block* block, const Operator& op, const SlotSpec& spec,
                const std::vector<std::string>& names, std::string_view direction) {
  const auto fail = [&](std::string expected, std::string got, std::string fix) {
    throw_error(ErrorCode::kInvalidProgram,
                {.what = "a slot is filled wrongly",
                 .where = str_cat("op '", op.type, "', ", direction, " '", spec.name, "'"),
                 .expected = std::move(expected),
                 .got = std::move(got),
                 .fix = std::move(fix)});
  };
  if (names.empty() && !spec.optional) {
    fail(spec.repeated ? "at least one variable" : "one variable", "none", "fill the slot");
  }
  if (names.size() > 1 && !spec.repeated) {
    fail("one variable", join(names, ", "), "leave only one");
  }
  for (const std::string& name : names) {
    if (name.empty() && direction == "output") continue;
    if (name.empty() || (block != nullptr && block->find_var_recursive(name) == nullptr)) {
      fail("variables of the program", "'" + name + "'", "create the variable before the op");
    }
  }
}

void check_slots(const Block* block, const Operator& op, const OpSchema& schema) {
  check_slot_names(op, op.inputs, schema.inputs, "input");
  check_slot_names(op, op.outputs, schema.outputs, "output");
  for (const SlotSpec& spec : schema.inputs) {
    check_slot(block, op, spec, op.input(spec.name), "input");
  }
  for (const SlotSpec& spec : schema.outputs) {
    check_slot(block, op, spec, op.output(spec.name), "output");
  }
}

// Checks the op, completes its attributes and sets the shapes of its outputs.
void complete(Block& block, Operator& op) {
  const OpSchema& schema = op_table(block.program()).at(op.type);
  check_slots(&block, op, schema);
  if (schema.normalize) op.attrs = schema.normalize(op.attrs);
  if (schema.infer) {
    InferContext context(block, op);
    schema.infer(context);
  }
}

// What inference made of an output, against what the program says.
void check_output(const Operator& op, const VarDesc& inferred, const VarDesc& declared) {
  const auto fail = [&](ErrorCode code, std::string expected, std::string got) {
    throw_error(code, {.what = "a variable is not what its op makes",
                       .where = str_cat("op '", op.type, "', variable '", declared.name, "'"),
                       .expected = std::move(expected),
                       .got = std::move(got),
                       .fix = "build the op with append_op, or correct the variable"});
  };
  if (!inferred.shape.compatible(declared.shape)) {
    fail(ErrorCode::kShapeMismatch, inferred.shape.to_string(), declared.shape.to_string());
  }
  if (inferred.dtype != declared.dtype) {
    fail(ErrorCode::kDTypeMismatch, std::string(dtype_name(inferred.dtype)),
         std::string(dtype_name(declared.dtype)));
  }
}

// What is checked of an op apart from its names: nothing in it tells two ops apart that differ in
// the names of their variables only.
class CheckedOp {
 public:
  // `vars`: behind the op's names, slot by slot; null for a name that is left empty.
  CheckedOp(const Operator& op, std::vector<const VarDesc*> vars)
      : op_(&op), vars_(std::move(vars)) {}

  // Looks at a few variables only: that ops with many are alike would be rare.
  bool alike(const Operator& op, const std::vector<const VarDesc*>& vars) const {
    return vars_.size() == vars.size() && vars_.size() <= kMostVars &&
           alike(op_->inputs, op.inputs) && alike(op_->outputs, op.outputs) &&
           op_->attrs == op.attrs && alike(vars);
  }

 private:
  static constexpr size_t kMostVars = 16;

  static bool alike(const SlotMap& slots, const SlotMap& others) {
    return std::equal(slots.begin(), slots.end(), others.begin(), others.end(),
                      [](const auto& a, const auto& b) {
                        return a.first == b.first && a.second.size() == b.second.size();
                      });
  }

  static bool alike(const VarDesc* a, const VarDesc* b) {
    if (a == nullptr || b == nullptr) return a == b;
    return a->kind == b->kind && a->dtype == b->dtype && a->typed == b->typed &&
           a->shape == b->shape && a->lod_level == b->lod_level &&
           a->persistable == b->persistable && a->is_parameter == b->is_parameter;
  }

  // Variables that occur twice in one op do so in the other.
  bool alike(const std::vector<const VarDesc*>& vars) const {
    for (size_t i = 0; i < vars_.size(); ++i) {
      if (!alike(vars_[i], vars[i])) return false;
      for (size_t j = 0; j < i; ++j) {
        if ((vars_[i] == vars_[j]) != (vars[i] == vars[j])) return false;
      }
    }
    return true;
  }

  const Operator* op_;
  std::vector<const VarDesc*> vars_;
};

// Checks ops of a program that nobody changes. Inference works on copies of an op's own variables.
class Verifier {
 public:
  explicit Verifier(const OpTable& table) : table_(table) {}

  // Nets repeat themselves: an op like the last one of its type, or like the last one of them that
  // shares its attributes, is as right as that.
  void verify(const Operator& op, const std::vector<const VarDesc*>& vars) {
    const auto last = last_.find(op.type);
    if (last != last_.end() && last->second->alike(op, vars)) return;
    const std::pair<std::string_view, const void*> kin(op.type, op.attrs.begin());
    const auto last_of_kin = last_of_kin_.find(kin);
    if (last_of_kin != last_of_kin_.end() && last_of_kin->second.alike(op, vars)) return;
    const OpSchema& schema = table_.at(op.type);
    check_slots(nullptr, op, schema);
    if (schema.normalize) schema.normalize(op.attrs);
    if (schema.infer) check_inference(op, schema, vars);
    const auto checked = last_of_kin_.insert_or_assign(kin, CheckedOp(op, vars)).first;
    last_[op.type] = &checked->second;
  }

 private:
  static void check_inference(const Operator& op, const OpSchema& schema,
                              const std::vector<const VarDesc*>& vars) {
    Program apart;
    Block& copies = apart.global_block();
    for (const VarDesc* var : vars) {
      if (var != nullptr) copies.add_var(*var);
    }
    InferContext context(copies, op);
    schema.infer(context);
    size_t outputs = 0;
    for (const auto& [slot, names] : op.outputs) outputs += names.size();
    for (size_t i = vars.size() - outputs; i < vars.size(); ++i) {
      if (vars[i] == nullptr || !vars[i]->typed) continue;
      check_output(op, std::as_const(copies).var(vars[i]->name), *vars[i]);
    }
  }

  const OpTable& table_;
  // By type and attributes, and by type; the program holds the keys.
  std::map<std::pair<std::string_view, const void*>, CheckedOp> last_of_kin_;
  std::unordered_map<std::string_view, const CheckedOp*> last_;
};

}  // namespace

const Operator& append_op(Block& block, Operator op) {
  complete(block, op);
  const Program& program = block.program();
  op.role = program.current_role();
  op.role_var = program.current_role_var();
  op.name_scope = program.current_name_scope();
  return block.append_op(std::move(op));
}

const Operator& insert_op(Block& block, size_t position, Operator op) {
  complete(block, op);
  const Program& program = block.program();
  if (op.role == OpRole::kForward) {
    op.role = program.current_role();
    op.role_var = program.current_role_var();
  }
  if (op.name_scope.empty()) op.name_scope = program.current_name_scope();
  return block.insert_op(position, std::move(op));
}

void verify(const Program& program) {
  verify(program, [&program]() -> SeeOp {
    return [verifier = Verifier(op_table(program))](const Operator& op, const auto& vars) mutable {
      verifier.verify(op, vars);
    };
  }).throw_if_error();
}

}  // namespace fleet::fluid
