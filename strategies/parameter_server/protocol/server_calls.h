// What the state machines of servers are asked and what they answer, as values: who sends which
// piece, who asks for what, how a slice is to be updated.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "fluid/core/dtype.h"
#include "strategies/parameter_server/protocol/wire.h"
#include "transport/session/frame.h"

namespace fleet::strategies {

struct SliceGeometry {
  uint64_t bytes = 0;
  fluid::DType dtype = fluid::DType::kFloat32;  // float32, float64 or int64
  // Of a slice whose gradients are rows; float32 or float64.
  bool rows = false;
  int64_t height = 0;
  uint64_t row_bytes = 0;                             // on the wire
  fluid::DType narrow_rows = fluid::DType::kFloat32;  // as of ParameterEntry

  static SliceGeometry of(const ParameterEntry& entry) {
    return {entry.bytes(),          entry.dtype,      entry.rows, entry.height(),
            entry.sent_row_bytes(), entry.narrow_rows};
  }
  fluid::DType row_dtype() const { return dtype == fluid::DType::kFloat32 ? narrow_rows : dtype; }
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
  std::optional<uint64_t> rows = {};  // that the gradient has, when it is of rows

  // Rows are counted where the header says that there are any; a control part that does not say
  // how many counts as more than any slice has.
  static PieceKey of(const transport::FrameHeader& header, transport::ConstBytes control) {
    PieceKey key{header.step, header.variable, header.piece, header.shard_begin, header.shard_end};
    if (!header.has(kFlagRows)) return key;
    const Result<uint64_t> count = decode<uint64_t>(control, "the rows of a gradient");
    key.rows = count.ok() ? count.value() : ~uint64_t{0};
    return key;
  }
};

// A worker that holds gradients back: asks for more of its lane's order than it knows to be let in,
// or for one sparse gradient.
struct CreditCall {
  uint64_t session = 0;
  uint64_t request = 0;
  uint32_t worker = 0;
  uint64_t step = 0;
  uint32_t lane = 0;
  uint32_t known = 0;
  // Nothing more comes from the worker in this step for positions before it.
  uint32_t passed = 0;
  // The sparse gradient that is asked for; of kNoVariables, none: every one that comes from the
  // worker on this lane in this step has begun to come or was asked for.
  std::optional<PieceKey> rows = {};
};

// A request for values: of listed variables, or of every trained slice on a lane.
struct GetCall {
  uint64_t session = 0;
  uint64_t request = 0;
  uint32_t worker = 0;
  uint64_t step = 0;
  uint32_t lane = 0;  // of the connection
  bool all = false;
  std::vector<uint32_t> variables;  // without `all`
  // By place in `variables`, only these rows, strictly ascending; empty: whole values.
  std::vector<std::vector<int64_t>> rows = {};
  // A show and a click of each of these rows; empty: none are told.
  std::vector<std::vector<float>> shows = {};
  GrowingGet growing = GrowingGet::kReads;

  const std::vector<int64_t>* rows_of(uint32_t variable) const {
    return rows.empty() ? nullptr : &rows[place_of(variable)];
  }
  const std::vector<float>* shows_of(uint32_t variable) const {
    return shows.empty() ? nullptr : &shows[place_of(variable)];
  }
  size_t place_of(uint32_t variable) const {
    return static_cast<size_t>(std::find(variables.begin(), variables.end(), variable) -
                               variables.begin());
  }
};

// A part of the answer to a call, and whom it goes to.
struct ServerAnswer {
  uint64_t session = 0;
  uint64_t request = 0;
  uint32_t worker = 0;
  uint32_t lane = 0;
  uint64_t step = 0;  // in its header, as the next
  // Whose value it has; of an answer to a worker that asked for credits, the pieces that are let
  // in.
  uint32_t variable = kNoVariables;
  bool has_value = false;
  // Of the value, only these rows; null: all. Valid during the call.
  const std::vector<int64_t>* rows = nullptr;
  const std::vector<float>* shows = nullptr;  // as GetCall's; valid as long
  GrowingGet growing = GrowingGet::kReads;
  bool last = true;  // ends the answer

  static ServerAnswer with_value(const GetCall& call, uint32_t variable, bool last) {
    return {.session = call.session,
            .request = call.request,
            .worker = call.worker,
            .lane = call.lane,
            .step = call.step,
            .variable = variable,
            .has_value = true,
            .rows = call.rows_of(variable),
            .shows = call.shows_of(variable),
            .growing = call.growing,
            .last = last};
  }
  static ServerAnswer without_value(const GetCall& call) {
    return {call.session, call.request, call.worker, call.lane, call.step};
  }
  static ServerAnswer granting(const CreditCall& call, uint32_t open) {
    return {call.session, call.request, call.worker, call.lane, call.step, open};
  }
};

// One stage of one update of a slice.
struct StepUpdate {
  uint64_t step = 0;  // the step that the update makes, from 1 on
  int shards = 0;     // logical shards that contributed to the gradient
  int stage = 0;      // of an update that goes in several
};

}  // namespace fleet::strategies
