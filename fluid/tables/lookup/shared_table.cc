#include "fluid/tables/lookup/shared_table.h"

#include <any>
#include <string>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::fluid {

Value tables::table_value(std::shared_ptr<SharedTable> table) {
  return Raw{std::any(std::move(table))};
}

std::shared_ptr<tables::SharedTable> tables::table_of(const Value& value) {
  const auto* raw = std::get_if<Raw>(&value);
  const auto* table =
      raw == nullptr ? nullptr : std::any_cast<std::shared_ptr<SharedTable>>(&raw->content);
  return table == nullptr ? nullptr : *table;
}

std::shared_ptr<tables::SharedTable> growing_table(const Scope& scope, std::string_view name) {
  const Value* value = scope.find(name);
  auto table = value == nullptr ? nullptr : tables::table_of(*value);
  if (table != nullptr) return table;
  throw_error(
      ErrorCode::kInvalidProgram,
      {.what = value == nullptr ? "the scope has no such variable"
                                : "the variable holds no growing table",
       .where = str_cat("variable '", name, "'"),
       .expected = "a growing table",
       .got = value == nullptr ? "nothing" : "another value, or none yet",
       .fix = "give the name of the table's parameter, and run the startup program first; "
              "in a job with servers they have the rows: fleet::end_pass, "
              "fleet::table_statistics, fleet::save_persistables and checkpoints reach them"});
}

}  // namespace fleet::fluid
