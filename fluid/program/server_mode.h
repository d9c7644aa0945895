// How the servers of a job treat what its workers send: the one list of modes. Programs record
// theirs (DistributionInfo::server_mode); strategies, options, facts and logs use the same words.
#pragma once

#include <cstdint>
#include <string_view>

namespace fleet::fluid {

enum class ServerMode : uint8_t {
  // Gradients of a step meet on the servers, and are averaged.
  kSync,
  // Workers push gradients, servers apply each on arrival (Li et al., OSDI 2014).
  kAsync,
  // The trainer threads of a process meet, and push one gradient: synchronous inside a worker,
  // asynchronous between workers.
  kHalfAsync,
  // Workers train alone and exchange what their parameters changed by, every k steps:
  //   push d = (w - old) / N, old += d, W += d;   pull W: w += W - old, old = W.
  kGeo,
  // Elastic averaging (Zhang, Choromanska, LeCun, NIPS 2015, algorithm 1), every tau steps:
  //   d = alpha (x - X),  x -= d,  X += d.
  // Its programs are those of GEO, and record "geo".
  kEasgd,
};

std::string_view to_string(ServerMode mode);  // "sync", "async", "half_async", "geo", "easgd"
// Throws ProgramError (kUnknownName) for another word.
ServerMode parse_server_mode(std::string_view text);

constexpr bool is_synchronous(ServerMode mode) {
  return mode == ServerMode::kSync;
}
// Workers train alone and send differences of parameters, not gradients.
constexpr bool sends_differences(ServerMode mode) {
  return mode == ServerMode::kGeo || mode == ServerMode::kEasgd;
}
// The mode that programs of such a job record.
constexpr ServerMode recorded_mode(ServerMode mode) {
  return mode == ServerMode::kEasgd ? ServerMode::kGeo : mode;
}

}  // namespace fleet::fluid
