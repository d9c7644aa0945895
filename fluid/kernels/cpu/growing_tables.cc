#include "fluid/kernels/cpu/growing_tables.h"

#include "base/error.h"
#include "base/strings.h"

namespace fleet::fluid::cpu {

tables::SharedTable& TableInput::table(const KernelContext& context) const {
  const auto table = tables::table_of(context.input_value(position));
  if (table != nullptr && static_cast<int64_t>(table->options().width) == width) return *table;
  throw_error(ErrorCode::kInvalidProgram,
              {.what = "the variable does not hold the growing table that the program has",
               .where = where,
               .expected = str_cat("a growing table of width ", width),
               .got = table == nullptr ? "another value, or none yet"
                                       : str_cat("one of width ", table->options().width),
               .fix = "run the startup program that was built with this one"});
}

TableInput table_input(const PrepareContext& context, std::string_view slot, bool has_value) {
  const VarDesc* var = context.input_var(slot);
  const bool declared =
      var != nullptr && var->kind == VarKind::kGrowingTable && var->shape.rank() == 2;
  context.require(declared, slot, "a variable of kind GROWING_TABLE and shape [-1, width]",
                  var == nullptr ? "nothing" : std::string(var_kind_name(var->kind)));
  const std::string& name = context.op().input(slot).front();
  context.require(!has_value || context.in(slot).kind == ValueKind::kRaw, slot, "a growing table",
                  "another value");
  return {.position = context.input(slot),
          .width = var->shape[1],
          .where = str_cat("op '", context.op().type, "', table '", name, "'")};
}

}  // namespace fleet::fluid::cpu
