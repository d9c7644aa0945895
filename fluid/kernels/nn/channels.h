// Images or rows, seen as channels.
#pragma once

#include <cstdint>

namespace fleet::fluid {

// [outer, channels, inner]
struct Channels {
  int64_t outer = 0;
  int64_t count = 0;
  int64_t inner = 1;

  int64_t each() const { return outer * inner; }  // elements of one channel
  int64_t numel() const { return outer * count * inner; }
};

}  // namespace fleet::fluid
