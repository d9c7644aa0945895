#include "strategies/parameter_server/server/table_checkpoint.h"

#include "fluid/core/value.h"
#include "fluid/io/table_files.h"

namespace fleet::strategies {

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
