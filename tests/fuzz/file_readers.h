// Every reader of files, given bytes that may be anything. For tests and fuzzers.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace fleet::testing {

// Reads the bytes in every format that Fleet reads, and what comes out of them as training would:
// tables as numbers and words, rows through samplers and loaders. Returns how many of the readers
// took the bytes. A refusal is a Status or a fleet::Error with a text; anything else escapes.
// `scratch`: a folder for files, whose contents do not matter.
int read_in_every_format(std::span<const std::byte> bytes, const std::filesystem::path& scratch);

}  // namespace fleet::testing
