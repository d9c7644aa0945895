#include "base/philox.h"

#include <cmath>
#include <numbers>

#include "base/hash.h"
#include "base/numbers/philox_constants_impl.h"

namespace fleet {
namespace {

using namespace philox_detail;

double to_double(uint32_t high, uint32_t low) {
  const uint64_t bits = (static_cast<uint64_t>(high) << 32 | low) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace

RandomKey RandomKey::of(uint64_t seed, std::string_view name) {
  const uint64_t mixed = mix64(fnv1a(name) ^ mix64(seed));
  return {static_cast<uint32_t>(mixed), static_cast<uint32_t>(mixed >> 32)};
}

std::array<uint32_t, 4> philox(RandomKey key, uint64_t index, uint64_t stream) {
  std::array<uint32_t, 4> x = {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                               static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p0 = uint64_t{kMultiplier0} * x[0];
    const uint64_t p1 = uint64_t{kMultiplier1} * x[2];
    x = {static_cast<uint32_t>(p1 >> 32) ^ x[1] ^ key.low, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ x[3] ^ key.high, static_cast<uint32_t>(p0)};
    key.low += kWeyl0;
    key.high += kWeyl1;
  }
  return x;
}

float uniform_float(RandomKey key, uint64_t index, uint64_t stream) {
  return to_float(philox(key, index / 4, stream)[index % 4]);
}

double uniform_double(RandomKey key, uint64_t index, uint64_t stream) {
  const auto block = philox(key, index, stream);
  return to_double(block[0], block[1]);
}

double normal_double(RandomKey key, uint64_t index, uint64_t stream) {
  const auto block = philox(key, index, stream);
  const double radius = std::sqrt(-2.0 * std::log(1.0 - to_double(block[0], block[1])));
  return radius * std::cos(2.0 * std::numbers::pi * to_double(block[2], block[3]));
}

}  // namespace fleet
