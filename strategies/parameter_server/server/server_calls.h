// What the state machines of servers are asked, as values: who sends which piece, who asks for
// what.
#pragma once

#include <cstdint>
#include <vector>

#include "fluid/core/dtype.h"
#include "transport/session/frame.h"

namespace fleet::strategies {

struct SliceGeometry {
  uint64_t bytes = 0;
  fluid::DType dtype = fluid::DType::kFloat32;  // float32, float64 or int64
};

// Who sends: a worker, over a connection. Session numbers are never 0 and never used again.
struct Sender {
  uint32_t worker = 0;
  uint64_t session = 0;
};

struct PieceKey {
  uint64_t step = 0;
  uint32_t variable = 0;
  uint32_t piece = 0;
  uint32_t shard_begin = 0;
  uint32_t shard_end = 0;

  static PieceKey of(const transport::FrameHeader& header) {
    return {header.step, header.variable, header.piece, header.shard_begin, header.shard_end};
  }
};

// A request for values: of listed variables, or of every trained slice on a lane.
struct GetCall {
  uint64_t session = 0;
  uint64_t request = 0;
  uint64_t step = 0;
  bool all = false;
  uint32_t lane = 0;                // with `all`
  std::vector<uint32_t> variables;  // without
};

}  // namespace fleet::strategies
