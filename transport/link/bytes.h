// What moves over links: views of bytes.
#pragma once

#include <cstddef>
#include <span>

namespace fleet::transport {

using ConstBytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

}  // namespace fleet::transport
