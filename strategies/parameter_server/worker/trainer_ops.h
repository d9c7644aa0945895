// What the communication ops of a trainer program mean, in every mode: which variables, and where
// they live.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "fluid/program/program.h"
#include "strategies/parameter_server/client/remote_tensor.h"
#include "strategies/parameter_server/worker/rows/growing_lookup.h"
#include "strategies/parameter_server/worker/rows/remote_lookup.h"

namespace fleet::strategies {

// Notes of an exchange (exchange.h) about an op.
struct ExchangeNotes {
  virtual ~ExchangeNotes() = default;
};

struct BoundOp {
  enum class Kind {
    kNothing,
    kSend,
    kSendBarrier,
    kReceive,
    kFetchBarrier,
    kLookup,  // rows into the op's outputs
    kRows,    // rows into their places of a table, before an op looks at them
    kPrefetch,
    kGrowingLookup,
    kSaveTable,
  };
  Kind kind = Kind::kNothing;
  // Of the inputs of a send, of the outputs of a recv; a send without any reports something else
  // than gradients.
  std::vector<RemoteTensor> tensors;
  RemoteTable table;
  RemotePrefetch prefetch;
  RemoteGrowingTables growing;
  std::vector<RemoteSnapshot> snapshots;
  std::unique_ptr<ExchangeNotes> notes;
};
using BoundBlock = std::unordered_map<const fluid::Operator*, BoundOp>;

// The communication ops of a block; `sends_gradients`: its sends have tensors. Throws ProgramError
// when an op does not fit the job, UsageError when a server does not keep what it names.
BoundBlock bind_ops(const fluid::Block& block, const ServerClient& client,
                    const std::vector<std::string>& server_names, bool sends_gradients);
// A lookup of a program that was not transpiled, which knows its table by name, and the op's row;
// ProgramError for other ops.
BoundOp bind_by_name(const fluid::Operator& op, const fluid::OpSchema& row,
                     const ServerClient& client);

}  // namespace fleet::strategies
