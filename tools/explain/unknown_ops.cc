#include "tools/explain/unknown_ops.h"

#include <algorithm>
#include <memory>
#include <set>

#include "fluid/kernels/op_library.h"

namespace fleet::explain {
namespace {

using fluid::Program;

void find_unknown(const Program& program, std::set<std::string>& found) {
  for (int32_t index = 0; index < program.block_count(); ++index) {
    for (const auto& op : program.block(index).ops()) {
      if (fluid::op_table(program).find(op->type) == nullptr) found.insert(op->type);
    }
  }
}

void add_slots(const fluid::SlotMap& slots, std::vector<fluid::SlotSpec>& specs) {
  for (const auto& [slot, names] : slots) {
    const bool there = std::any_of(specs.begin(), specs.end(),
                                   [&slot = slot](const auto& spec) { return spec.name == slot; });
    if (!there) specs.push_back({.name = slot, .optional = true, .repeated = true});
  }
}

fluid::OpSchema schema_of(const std::string& type, const Program& program) {
  fluid::OpSchema schema;
  schema.type = type;
  for (int32_t index = 0; index < program.block_count(); ++index) {
    for (const auto& op : program.block(index).ops()) {
      if (op->type != type) continue;
      add_slots(op->inputs, schema.inputs);
      add_slots(op->outputs, schema.outputs);
    }
  }
  return schema;
}

}  // namespace

std::vector<std::string> unknown_ops(const Program& main, const Program& startup) {
  std::set<std::string> found;
  find_unknown(main, found);
  find_unknown(startup, found);
  return {found.begin(), found.end()};
}

void take_as_they_are(Program& program, const std::vector<std::string>& types) {
  if (types.empty()) return;
  auto library = std::make_shared<fluid::OpLibrary>();
  library->ops() = fluid::op_table(program);
  for (const std::string& type : types) library->ops().add(schema_of(type, program));
  program.set_op_library(std::move(library));
}

}  // namespace fleet::explain
