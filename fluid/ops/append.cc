#include "fluid/ops/append.h"

#include <algorithm>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/program/live_blocks.h"

namespace fleet::fluid {
namespace {

void check_slot_names(const Operator& op, const SlotMap& slots, const std::vector<SlotSpec>& specs,
                      std::string_view direction) {
  std::vector<std::string> known;
  for (const SlotSpec& spec : specs) known.push_back(spec.name);
  for (const auto& [slot, names] : slots) {
    if (names.empty() || std::find(known.begin(), known.end(), slot) != known.end()) continue;
    throw_error(ErrorCode::kInvalidProgram,
                {.what = str_cat("op '", op.type, "' has no ", direction, " '", slot, "'",
                                 did_you_mean(slot, known)),
                 .where = str_cat("op '", op.type, "'"),
                 .expected = join(known, ", "),
                 .got = slot,
                 .fix = "use a slot of the op"});
  }
}

// The variables of a slot are as many as the schema wants, and exist in the block.
void check_slot(const Block& block, const Operator& op, const SlotSpec& spec,
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
    if (block.find_var_recursive(name) == nullptr) {
      fail("variables of the program", "'" + name + "'", "create the variable before the op");
    }
  }
}

void check_slots(const Block& block, const Operator& op, const OpSchema& schema) {
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
  check_slots(block, op, schema);
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
  Program copy = program;
  for (const int32_t index : live_blocks(copy)) {
    Block& block = copy.block(index);
    for (const auto& op : block.ops()) {
      std::vector<VarDesc> declared;
      for (const std::string& name : op->output_names()) declared.push_back(block.var(name));
      complete(block, *op, table);
      for (const VarDesc& var : declared) {
        if (var.typed) check_output(*op, block.var(var.name), var);
      }
    }
  }
}

}  // namespace fleet::fluid
