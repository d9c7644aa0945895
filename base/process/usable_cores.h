#pragma once

namespace fleet {

// The cores that this process may run on; 1 when the system does not say.
int usable_cores();

}  // namespace fleet
