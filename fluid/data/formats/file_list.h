// Which files are read, by whom, and in which order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fleet::fluid::data {

// The files that the names and globs (`*`, `?`, `[a-z]`) stand for, in the order of the list; those
// of a glob in the order of their bytes. A file that is named twice is there twice. UsageError for
// a glob that no file matches; whether a file without a glob is there shows when it is read.
std::vector<std::string> expand_files(std::span<const std::string> names);

// The part of a worker, as Paddle's fleet.split_files cuts: blocks one after the other, the first
// workers having one file more where they cannot be equal. None for a worker that there are no
// files left for. UsageError unless 0 <= worker < workers.
std::vector<std::string> split_files(std::span<const std::string> files, int worker, int workers);

// The numbers 0 to n - 1 in an order that depends on the seed alone (Fisher and Yates).
std::vector<uint64_t> shuffled(uint64_t n, uint64_t seed);

}  // namespace fleet::fluid::data
