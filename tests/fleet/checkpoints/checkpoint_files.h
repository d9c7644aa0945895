// What tests of checkpoints ask of the folders that jobs write.
#pragma once

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "base/strings.h"
#include "fluid/io/checkpoint_store.h"
#include "fluid/tables/table_loading.h"

namespace fleet::testing {

// Not what workers have for themselves, or servers beside the program.
inline bool is_shared(const std::string& name) {
  return !name.starts_with("worker-") && !name.ends_with(".dc_mean_square");
}

inline size_t shared_tensors(const fluid::io::CheckpointReader& checkpoint) {
  const auto& tensors = checkpoint.tensors();
  return static_cast<size_t>(std::count_if(tensors.begin(), tensors.end(),
                                           [](const auto& each) { return is_shared(each.first); }));
}

inline std::vector<std::byte> bytes_in(const fluid::io::CheckpointReader& checkpoint,
                                       const std::string& name) {
  const auto value = checkpoint.read(name);
  EXPECT_TRUE(value.ok()) << value.status().to_string();
  const auto* bytes = value.ok() ? value.value().raw() : nullptr;
  return {bytes, bytes + (value.ok() ? value.value().bytes() : 0)};
}

// Values and states of a growing table's rows, by id.
inline std::map<uint64_t, std::vector<float>> rows_in(const fluid::io::CheckpointReader& checkpoint,
                                                      const std::string& name) {
  namespace tables = fluid::tables;
  const auto& files = checkpoint.tables().at(name);
  const tables::TableFileInfo form = tables::TableFileReader(files.front(), system_files()).info();
  tables::GrowingTable table(
      {.name = form.table, .width = form.width, .states = form.states, .fields = form.fields});
  tables::load_table(table, files);
  std::map<uint64_t, std::vector<float>> rows;
  table.scan(0, tables::kBuckets, [&rows](const tables::RowView& row) {
    rows[row.key].assign(row.values.begin(), row.values.end());
    rows[row.key].insert(rows[row.key].end(), row.states.begin(), row.states.end());
  });
  return rows;
}

// What a checkpoint has otherwise than another one, by name, in which there may be more that
// workers have for themselves; `own`: look at that of the first, too. A text says it when one of
// them cannot be read.
inline std::vector<std::string> differences(const std::filesystem::path& a,
                                            const std::filesystem::path& b, bool own = true) {
  const auto first = fluid::io::CheckpointReader::open(a);
  const auto second = fluid::io::CheckpointReader::open(b);
  if (!first.ok()) return {first.status().to_string()};
  if (!second.ok()) return {second.status().to_string()};
  std::vector<std::string> found;
  if (first.value().info().step != second.value().info().step) found.emplace_back("the step");
  const auto& others = second.value().tensors();
  for (const auto& [name, tensor] : first.value().tensors()) {
    if (!own && !is_shared(name)) continue;
    if (name.ends_with("/@readers")) continue;  // load_checkpoint knows of none
    if (!others.contains(name)) {
      found.push_back(name + " is missing");
    } else if (bytes_in(first.value(), name) != bytes_in(second.value(), name)) {
      found.push_back(name);
    }
  }
  for (const auto& [name, files] : first.value().tables()) {
    if (!second.value().tables().contains(name)) {
      found.push_back(name + " is missing");
    } else if (rows_in(first.value(), name) != rows_in(second.value(), name)) {
      found.push_back(name);
    }
  }
  for (const auto& [name, files] : second.value().tables()) {
    if (!first.value().tables().contains(name)) found.push_back(name + " is new");
  }
  if (shared_tensors(first.value()) != shared_tensors(second.value())) {
    found.emplace_back("how many there are");
  }
  return found;
}

inline std::filesystem::path of_step(const std::filesystem::path& root, int64_t step) {
  return fluid::io::CheckpointStore(root).folder_of(step);
}

}  // namespace fleet::testing
