// What tests of checkpoints ask of the folders that jobs write.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/strings.h"
#include "fluid/io/checkpoint_store.h"

namespace fleet::testing {

// Without those that workers have for themselves.
inline size_t shared_tensors(const fluid::io::CheckpointReader& checkpoint) {
  const auto& tensors = checkpoint.tensors();
  return static_cast<size_t>(std::count_if(tensors.begin(), tensors.end(), [](const auto& each) {
    return !each.first.starts_with("worker-");
  }));
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
    if (!own && name.starts_with("worker-")) continue;
    if (name.ends_with("/@readers")) continue;  // load_checkpoint knows of none
    const auto other = others.find(name);
    if (other == others.end()) {
      found.push_back(name + " is missing");
    } else if (other->second.crc32c != tensor.crc32c || !(other->second.shape == tensor.shape)) {
      found.push_back(name);
    }
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
