// Files that are there wholly or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

namespace fleet::fluid {

// Writes a temporary file in the target's directory (made when it is missing), syncs it, renames
// it over the target and syncs the directory. Throws ResourceError; the target is then as before.
void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);

// The whole file. Throws ResourceError when it cannot be read or is larger than `limit` bytes.
std::vector<std::byte> read_whole_file(const std::filesystem::path& path, size_t limit);

}  // namespace fleet::fluid
