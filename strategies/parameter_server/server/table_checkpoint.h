// The block of a server's program that saves its tables (ListenAndServAttrs::checkpint_block_id).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "fluid/core/tensor.h"
#include "fluid/ops/distributed/comm.h"
#include "fluid/program/program.h"
#include "strategies/parameter_server/protocol/wire.h"

namespace fleet::strategies {

// The block's tables; none for programs without such a block. Throws ProgramError when the block
// is not there.
std::vector<std::string> saved_tables(const fluid::Program& program,
                                      const fluid::ListenAndServAttrs& listen);

// Writes those rows of a server's table that the whole table has. From any thread. Throws
// ResourceError when the file cannot be written.
void save_table(const CatalogueEntry& entry, const fluid::Tensor& value,
                const std::filesystem::path& path);

}  // namespace fleet::strategies
