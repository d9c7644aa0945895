#include "fluid/ops/append.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/program/live_blocks.h"
#include "fluid/program/var_index.h"

namespace fleet::fluid {
namespace {

[[noreturn]] void fail_slot_name(const Operator& op, const std::string& slot,
                                 const std::vector<SlotSpec>& specs, std::string_view direction) {
  std::vector<std::string> known;
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
void complete(Block& block, Operator& op, const OpTable& table) {
  const OpSchema& schema = table.at(op.type);
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

// Checks ops of a program that nobody changes. Inference works on copies of an op's own variables.
class Verifier {
 public:
  Verifier(const Program& program, const OpTable& table) : index_(program), table_(table) {}

  void verify(const Block& block, const Operator& op) {
    const OpSchema& schema = table_.at(op.type);
    check_slots(nullptr, op, schema);
    check_attributes(op, schema);
    if (schema.infer) check_inference(block, op, schema);
  }

 private:
  // Ops of one type often have the same attributes one after the other.
  void check_attributes(const Operator& op, const OpSchema& schema) {
    if (!schema.normalize) return;
    auto& [known, attrs] = checked_[&schema];
    if (known && attrs == op.attrs) return;
    schema.normalize(op.attrs);
    known = true;
    attrs = op.attrs;
  }

  void check_inference(const Block& block, const Operator& op, const OpSchema& schema) {
    Program apart;
    Block& copies = apart.global_block();
    std::vector<const VarDesc*> outputs;
    for (const SlotMap* slots : {&op.inputs, &op.outputs}) {
      for (const auto& [slot, names] : *slots) {
        for (const std::string& name : names) {
          if (name.empty()) continue;
          const VarDesc* var = index_.find(block, name);
          if (slots == &op.outputs) outputs.push_back(var);
          copies.add_var(*var);
        }
      }
    }
    InferContext context(copies, op);
    schema.infer(context);
    for (const VarDesc* declared : outputs) {
      if (declared->typed) check_output(op, *copies.find_var(declared->name), *declared);
    }
  }

  VarIndex index_;
  const OpTable& table_;
  std::unordered_map<const OpSchema*, std::pair<bool, AttributeMap>> checked_;
};

}  // namespace

Operator& append_op(Block& block, Operator op, const OpTable& table) {
  complete(block, op, table);
  const Program& program = block.program();
  op.role = program.current_role();
  op.role_var = program.current_role_var();
  op.name_scope = program.current_name_scope();
  return block.append_op(std::move(op));
}

Operator& insert_op(Block& block, size_t position, Operator op, const OpTable& table) {
  complete(block, op, table);
  const Program& program = block.program();
  if (op.role == OpRole::kForward) {
    op.role = program.current_role();
    op.role_var = program.current_role_var();
  }
  if (op.name_scope.empty()) op.name_scope = program.current_name_scope();
  return block.insert_op(position, std::move(op));
}

void verify(const Program& program, const OpTable& table) {
  program.verify().throw_if_error();
  Verifier verifier(program, table);
  for (const int32_t index : live_blocks(program)) {
    const Block& block = program.block(index);
    for (const auto& op : block.ops()) verifier.verify(block, *op);
  }
}

}  // namespace fleet::fluid
