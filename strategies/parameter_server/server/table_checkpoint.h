// Files of a server's tables.
#pragma once

#include <filesystem>

#include "fluid/core/tensor.h"
#include "strategies/parameter_server/protocol/wire.h"

namespace fleet::strategies {

// Writes those rows of a server's table that the whole table has. From any thread. Throws
// ResourceError when the file cannot be written.
void save_table(const CatalogueEntry& entry, const fluid::Tensor& value,
                const std::filesystem::path& path);

}  // namespace fleet::strategies
