// Facts of a hello that change results in their last bits only.
#pragma once

#include <string>
#include <string_view>

#include "transport/session/handshake.h"

namespace fleet::transport {

// Facts whose names begin so may differ, unless one side requires the same bits.
constexpr std::string_view kBitsFact = "bits.";

// "instruction set avx2, bits.libc 2.36": what `mine` says where `other` says something else, by
// the order of names; empty where they agree.
std::string differing_bits(const Hello& mine, const Hello& other);

}  // namespace fleet::transport
