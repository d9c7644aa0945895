// Files written and read by hand: what a checkpoint's bytes cost without anything around them. As
// many threads as a checkpoint has parts each have a file, and memory that is there already.
#pragma once

#include <cstddef>
#include <string>

namespace fleet::benchmarks {

// Each thread writes `bytes` to a file, syncs it, gives it its name and syncs the folder; then a
// small file in the same way, as the list of a part is written. Two more small files follow, as the
// manifest and the name of the newest. The seconds of the faster of two ways: the disk has the
// bytes at the sync, or each piece at once. Throws when a call fails.
double write_plain_files_s(const std::string& folder, int threads, size_t bytes);
// The first thread's large file alone.
double write_plain_file_s(const std::string& folder, size_t bytes);

// Reads the large files that were written.
double read_plain_files_s(const std::string& folder, int threads, size_t bytes);

}  // namespace fleet::benchmarks
