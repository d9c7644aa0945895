// What standard output can show.
#pragma once

#include "base/environment.h"

namespace fleet::tools {

struct Terminal {
  int columns = 0;       // 0: not a terminal, or one that does not say
  bool unicode = false;  // by the locale
  bool colour = false;   // a terminal, and NO_COLOR is not set
};

Terminal standard_output(const Environment& environment);

}  // namespace fleet::tools
