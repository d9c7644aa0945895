#include "strategies/parameter_server/server/table_checkpoint.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/io/table_files.h"
#include "strategies/parameter_server/server/server_variables.h"

namespace fleet::strategies {
namespace {

void save(const fluid::Program& program, const fluid::Scope& scope, const TableSnapshot& snapshot) {
  const CatalogueEntry entry = catalogue_entry(program, scope, snapshot.table);
  const auto count = static_cast<int64_t>(entry.bytes_in_origin() / entry.row_bytes());
  fluid::SelectedRows rows;
  rows.height = entry.origin_shape.front();
  for (int64_t i = 0; i < count; ++i) {
    rows.rows.push_back(entry.first_row() + i * entry.row_stride);
  }
  rows.value = scope.tensor(snapshot.table).rows(0, count);
  fluid::io::save_table_rows(snapshot.path, rows);
}

}  // namespace

std::function<void(const TableSnapshot&)> table_checkpoint(const fluid::Program& program,
                                                           const fluid::ListenAndServAttrs& listen,
                                                           const fluid::Scope& scope) {
  if (listen.checkpint_block_id < 0) return nullptr;
  if (listen.checkpint_block_id >= program.block_count()) {
    throw_server_program(
        "the block that saves tables is not there", "listen_and_serv.checkpint_block_id",
        str_cat("a block below ", program.block_count()), str_cat(listen.checkpint_block_id));
  }
  std::vector<std::string> tables;
  for (const auto& op : program.block(listen.checkpint_block_id).ops()) {
    if (op->type == "save") tables.push_back(op->input("X").front());
  }
  return [&program, &scope, tables = std::move(tables)](const TableSnapshot& snapshot) {
    if (std::find(tables.begin(), tables.end(), snapshot.table) == tables.end()) {
      throw_error(ErrorCode::kUnknownName,
                  {.what = "a server has no such table to save",
                   .where = "checkpoint_notify, lookup_table",
                   .expected = "one of " + join(tables, ", "),
                   .got = str_cat("'", snapshot.table, "'", did_you_mean(snapshot.table, tables)),
                   .fix = "name a table with is_distributed"});
    }
    save(program, scope, snapshot);
  };
}

}  // namespace fleet::strategies
