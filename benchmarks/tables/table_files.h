// Files of a growing table against plain ones of as many bytes.
#pragma once

#include "benchmarks/harness/harness.h"

namespace fleet::benchmarks {

// save_table(), until the file has its name on the disk.
Row table_save(const Rounds& rounds);
// load_table() of a file that is on the disk only, or, `cached`, in the page cache.
Row table_load(const Rounds& rounds, bool cached);

}  // namespace fleet::benchmarks
