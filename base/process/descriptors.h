// How many files and sockets this process may have open.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace fleet {

// Raises the soft limit to the hard one, for this process and those that it starts: at most to
// 1 048 576, because programs exist that walk over all possible descriptors.
void raise_descriptor_limit();

// Raises it, too. kInput that says how many there are, how many `who` needs, and how to get them,
// when there are too few.
Status provide_descriptors(uint64_t needed, std::string who);

}  // namespace fleet
