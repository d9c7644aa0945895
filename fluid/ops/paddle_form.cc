#include "fluid/ops/paddle_form.h"

namespace fleet::fluid {

void take_paddle_forms(Program& program) {
  const OpTable& table = op_table(program);
  constexpr const char* kForm = "paddle_form";
  for (int32_t index = 0; index < program.block_count(); ++index) {
    Block& block = program.block(index);
    for (size_t i = 0; i < block.op_count(); ++i) {
      const OpSchema* schema = table.find(block.ops()[i]->type);
      if (schema == nullptr || !schema->normalize || !schema->normalize({}).contains(kForm)) {
        continue;
      }
      block.edit_op(i).attrs[kForm] = true;
    }
  }
}

}  // namespace fleet::fluid
