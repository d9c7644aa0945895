// What workers and servers say to each other on data lanes. The frames are the transport's; this
// file gives the verbs their meaning.
//
//   kInit          no payload: asks for the server's parameter index; the answer's control part is
//                  a ParameterIndex. With payload: piece `piece` of an initial value of `variable`;
//                  accepted before the first step only. Of kNoVariables: `step` steps of the job
//                  were over before the server's first one; answered by an empty reply.
//                  With kFlagPart: the control part is a PartSource; answered with a text, when
//                  that is done: why it is not, or nothing.
//   kPush          piece `piece` of the sum over shards [shard_begin, shard_end) of the gradient of
//                  `variable`, for `step`. A request of pushes alone is answered by an empty reply.
//                  From a server: piece `piece` of part `variable` of an exchange
//                  (protocol/server_exchange.h).
//                  With kFlagRows: a piece of rows of the gradient; the control part is how many
//                  rows there are (u64), the payload their numbers (i64) and then their values.
//   kSendBarrier   the sender has sent `piece` pieces for `step` to this server, over all lanes;
//                  then as kGet.
//   kGet           asks for values after `step`; answered by their pieces as soon as they are
//                  there. `variable` is one id, kAllVariables (every trained slice of the lane), or
//                  kListedVariables with the ids in the control part (vector of u32).
//                  With kFlagRows: rows of some variables; the control part is a vector of
//                  RowsOfGet, ascending by variable, the payload the numbers of all their rows
//                  (i64, strictly ascending in each variable), one variable behind the other,
//                  with shows and clicks where these are told;
//                  answered by pieces of their values. Of a growing table the numbers are ids
//                  (u64, ascending as i64), and `piece` is a GrowingGet.
//   kCredit        asks to send more pieces of `step` on this lane: `variable` is how many of the
//                  lane's order (protocol/send_order.h) the sender knows to be let in; nothing more
//                  comes from it for positions before `piece`. The answer's `variable` is the new
//                  number, when it is larger, or when `piece` is the order's end.
//                  With kFlagRows: asks to send a sparse gradient, the sum over shards [begin,
//                  end) for `variable`; the control part is as kPush's. Answered when it is let in.
//                  Of kNoVariables: of the slices of this lane, what was neither sent nor asked for
//                  does not come; answered at once.
//   kNotify        the sender contributes to no step after `step`. Answered by an empty reply.
//                  With kFlagTable: a growing table ends a pass, is written or read; the control
//                  part is a TableOrder, the answer's a TableAnswer, when that is done. An order
//                  that comes again, because a connection broke, is carried out once.
//   kSnapshot      writes a table's rows to a file; the control part is a TableSnapshot. Answered
//                  by an empty reply when the file is there.
//                  With kFlagPart: writes variables, as the server's part of a checkpoint;
//                  the control part is a PartOrder. Answered as soon as the values are set apart;
//                  the answer's control part is a text: why the server does not, or nothing.
//
// Asynchronous servers take the same verbs but kSendBarrier, and steps are clocks of a worker and
// slice (docs/wire_protocol.md, "Asynchronous servers").
//
// Variable ids index the server's parameter index; trained slices come first. Slice i travels on
// data lane i modulo the number of lanes. Offsets of pieces count from the start of the slice.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/archive.h"
#include "fluid/core/dtype.h"
#include "fluid/core/value.h"
#include "fluid/ops/nn/growing_table.h"
#include "fluid/tables/growing_table.h"
#include "transport/session/frame.h"

namespace fleet::strategies {

constexpr uint32_t kAllVariables = 0xffffffff;
constexpr uint32_t kListedVariables = 0xfffffffe;
constexpr uint32_t kNoVariables = 0xfffffffd;  // a barrier that wants no values, only the step

constexpr uint32_t kFlagRows = transport::kFlagUser0;
constexpr uint32_t kFlagPart = transport::kFlagUser0;
constexpr uint32_t kFlagTable = transport::kFlagUser0;

// Rows of growing tables that one get asks for at most.
constexpr uint64_t kMostRowsOfGet = uint64_t{1} << 24;

// What a get of a growing table's rows does there.
enum class GrowingGet : uint32_t {
  kReads = 0,      // changes nothing
  kMakesRows = 1,  // a lookup of training
  // The same for rows that were read before: answered without values.
  kMakesRowsOnly = 2,
};

constexpr uint32_t pieces_of(uint64_t bytes) {
  return static_cast<uint32_t>((bytes + transport::kPieceBytes - 1) / transport::kPieceBytes);
}
constexpr uint64_t piece_offset(uint32_t piece) {
  return uint64_t{piece} * transport::kPieceBytes;
}
constexpr uint64_t piece_bytes(uint64_t bytes, uint32_t piece) {
  const uint64_t rest = bytes - piece_offset(piece);
  return rest < transport::kPieceBytes ? rest : transport::kPieceBytes;
}

// Of one variable, how many rows a get asks for.
struct RowsOfGet {
  uint32_t variable = 0;
  uint64_t rows = 0;
  bool shown = false;  // the numbers are followed by a show and a click of each (f32)

  // Of numbers and shows.
  uint64_t bytes() const { return rows * (shown ? 16 : 8); }
  template <class Archive>
  void serialize(Archive& archive) {
    archive(variable, rows, shown);
  }
};

// One variable that a server keeps.
struct ParameterEntry {
  std::string name;      // "fc_w.block1"
  std::string gradient;  // "fc_w@GRAD.block1"; empty unless the variable is a trained slice
  fluid::DType dtype = fluid::DType::kFloat32;
  std::vector<int64_t> shape;
  std::string origin;  // "fc_w"
  std::vector<int64_t> origin_shape;
  int64_t offset = 0;  // in elements, from the start of the origin
  bool rows = false;   // the gradient comes as rows
  // Rows of the origin from one row of the slice to the next; above 1 there may be some behind the
  // origin's last.
  int64_t row_stride = 1;
  std::string lookup;    // what a prefetch of rows names it by
  bool growing = false;  // this server's rows of a growing table, of `shape` each
  // float16 or bfloat16: what float32 values of rows are on the wire, those that are asked for and
  // those of gradients; float32: all travel as they are.
  fluid::DType narrow_rows = fluid::DType::kFloat32;

  uint64_t numel() const {
    uint64_t count = 1;
    for (const int64_t dim : shape) count *= static_cast<uint64_t>(dim);
    return count;
  }
  uint64_t bytes() const { return numel() * fluid::dtype_size(dtype); }
  int64_t height() const {
    if (growing) return fluid::SelectedRows::kNoHeight;
    return shape.empty() ? 1 : shape.front();
  }
  bool is_whole() const { return shape == origin_shape && !growing; }
  // Of the origin: the slice's first one.
  int64_t first_row() const {
    const uint64_t row = row_bytes() / fluid::dtype_size(dtype);
    return row == 0 ? 0 : offset / static_cast<int64_t>(row);
  }
  uint64_t row_bytes() const {
    if (growing) return bytes();
    return height() == 0 ? 0 : bytes() / static_cast<uint64_t>(height());
  }
  // On the wire.
  fluid::DType row_dtype() const { return dtype == fluid::DType::kFloat32 ? narrow_rows : dtype; }
  uint64_t sent_row_bytes() const {
    return row_bytes() / fluid::dtype_size(dtype) * fluid::dtype_size(row_dtype());
  }
  // Without what lies behind the origin's last row.
  uint64_t bytes_in_origin() const {
    if (row_stride == 1) return bytes();
    const int64_t behind = origin_shape.front() - first_row();
    return static_cast<uint64_t>((behind + row_stride - 1) / row_stride) * row_bytes();
  }

  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, gradient, dtype, shape, origin, origin_shape, offset, rows, row_stride, lookup,
            growing, narrow_rows);
  }
};

struct ParameterIndex {
  uint64_t step = 0;     // updates applied so far
  uint32_t trained = 0;  // entries [0, trained) take gradients
  std::vector<ParameterEntry> entries;
  // By lane, pieces of its order that may be sent before any credit; empty: there is no bound.
  std::vector<uint32_t> open;
  // Bytes of sparse gradients that each contributor may send in a step without asking.
  uint64_t free_row_bytes = ~uint64_t{0};

  template <class Archive>
  void serialize(Archive& archive) {
    archive(step, trained, entries, open, free_row_bytes);
  }
};

// What a server is told to save, and where: its rows of a table, as "<table>_<number>" in a folder,
// which must be one of those that the server's own configuration allows.
struct TableSnapshot {
  std::string table;
  std::string folder;
  uint32_t number = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(table, folder, number);
  }
};

// Which part of a checkpoint a server is told to write, in a folder where a worker has begun it,
// and which of its variables: what several servers have a copy of, one of them writes.
struct PartOrder {
  std::string folder;
  int32_t part = 0;
  int32_t parts = 1;
  std::vector<uint32_t> variables;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(folder, part, parts, variables);
  }
};

// A checkpoint that a server reads its values from, before the first step.
struct PartSource {
  std::string folder;
  uint32_t checksum = 0;  // of the manifest that the worker sees there
  bool check = false;     // whether they are there and undamaged is asked, and nothing changed

  template <class Archive>
  void serialize(Archive& archive) {
    archive(folder, checksum, check);
  }
};

// What a server is to do with its rows of a growing table. Files lie in folders that its own
// configuration allows.
struct TableOrder {
  enum class Action : uint32_t {
    kEndPass = 0,
    kSave = 1,  // a delta waits for kCommit before it has its name
    kLoad = 2,  // reads; kCommit puts the rows in their place
    kTellStatistics = 3,
    kCommit = 4,
    kDrop = 5,      // what waits
    kSetApart = 6,  // the rows as they are, for the next kSave
  };
  uint64_t number = 0;  // of the sender's orders, from 1
  std::string table;
  Action action = Action::kEndPass;
  fluid::tables::PassRule rule;
  std::vector<std::string> files;  // kSave: the one of this server; kLoad: all of the save
  bool states = true;              // kSave, kSetApart: of optimizers
  bool delta = false;              // kSave: what changed since the last delta

  template <class Archive>
  void serialize(Archive& archive) {
    archive(number, table, action, rule, files, states, delta);
  }
};

struct TableAnswer {
  std::string why;  // it was not done; empty: it was
  ErrorCode code = ErrorCode::kPrecondition;
  uint64_t rows = 0;  // that went, were written, or are there
  // kSave: how the table is made.
  fluid::MakeGrowingTableAttrs options;
  fluid::tables::TableStatistics statistics;  // kTellStatistics

  template <class Archive>
  void serialize(Archive& archive) {
    archive(why, code, rows, options, statistics);
  }
};

}  // namespace fleet::strategies
