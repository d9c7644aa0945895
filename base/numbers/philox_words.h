// Many numbers of base/philox.h at once, several times as fast as one by one.
#pragma once

#include <cstdint>
#include <span>

#include "base/philox.h"

namespace fleet {

// words[i] = philox(key, index / 4, stream)[index % 4] for index = first + i.
void philox_words(RandomKey key, uint64_t first, uint64_t stream, std::span<uint32_t> words);

// values[i] = uniform_float(key, first + i, stream).
void uniform_floats(RandomKey key, uint64_t first, uint64_t stream, std::span<float> values);

}  // namespace fleet
