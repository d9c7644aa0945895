#include "strategies/parameter_server/server/table_checkpoint.h"

#include "base/strings.h"
#include "fluid/core/value.h"
#include "fluid/io/table_files.h"
#include "strategies/parameter_server/server/server_variables.h"

namespace fleet::strategies {

std::vector<std::string> saved_tables(const fluid::Program& program,
                                      const fluid::ListenAndServAttrs& listen) {
  std::vector<std::string> tables;
  if (listen.checkpint_block_id < 0) return tables;
  if (listen.checkpint_block_id >= program.block_count()) {
    throw_server_program(
        "the block that saves tables is not there", "listen_and_serv.checkpint_block_id",
        str_cat("a block below ", program.block_count()), str_cat(listen.checkpint_block_id));
  }
  for (const auto& op : program.block(listen.checkpint_block_id).ops()) {
    if (op->type == "save") tables.push_back(op->input("X").front());
  }
  return tables;
}

void save_table(const CatalogueEntry& entry, const fluid::Tensor& value,
                const std::filesystem::path& path) {
  const auto count = static_cast<int64_t>(entry.bytes_in_origin() / entry.row_bytes());
  fluid::SelectedRows rows;
  rows.height = entry.origin_shape.front();
  for (int64_t i = 0; i < count; ++i) {
    rows.rows.push_back(entry.first_row() + i * entry.row_stride);
  }
  rows.value = value.rows(0, count);
  fluid::io::save_table_rows(path, rows);
}

}  // namespace fleet::strategies
