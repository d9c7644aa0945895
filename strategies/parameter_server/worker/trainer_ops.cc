#include "strategies/parameter_server/worker/trainer_ops.h"

#include <utility>

#include "fluid/ops/distributed/comm.h"
#include "strategies/parameter_server/errors.h"
#include "strategies/parameter_server/worker/remote_places.h"

namespace fleet::strategies {
namespace {

using Kind = BoundOp::Kind;

BoundOp bind_send(const fluid::Operator& op, const ServerClient& client,
                  const std::vector<std::string>& server_names) {
  BoundOp bound{.kind = Kind::kSend};
  const auto attrs = fluid::parse_attributes<fluid::SendAttrs>(op.type, op.attrs);
  // Without the handler it is the step counter of a schedule: servers count steps themselves.
  if (attrs.use_send_handler) bound.tensors = places_of_send(op, client, server_names);
  return bound;
}

BoundOp bind_receive(const fluid::Operator& op, const ServerClient& client,
                     const std::vector<std::string>& server_names) {
  const auto attrs = fluid::parse_attributes<fluid::RecvAttrs>(op.type, op.attrs);
  if (attrs.do_not_run != 0) return {};
  return {.kind = Kind::kReceive, .tensors = places_of_recv(op, client, server_names)};
}

std::optional<BoundOp> bind_op(const fluid::Operator& op, const ServerClient& client,
                               const std::vector<std::string>& server_names) {
  if (op.type == "recv") return bind_receive(op, client, server_names);
  if (op.type == "send_barrier") return BoundOp{.kind = Kind::kSendBarrier};
  if (op.type == "fetch_barrier") return BoundOp{.kind = Kind::kFetchBarrier};
  if (op.type == "distributed_lookup_table") {
    return BoundOp{.kind = Kind::kLookup, .table = table_of_lookup(op, client, server_names)};
  }
  if (op.type == "prefetch") {
    return BoundOp{.kind = Kind::kPrefetch, .prefetch = prefetch_of(op, client, server_names)};
  }
  if (op.type == "lookup_remote_growing_tables") {
    return BoundOp{.kind = Kind::kGrowingLookup,
                   .growing = growing_tables_of(op, client, server_names)};
  }
  if (op.type == "checkpoint_notify") {
    return BoundOp{.kind = Kind::kSaveTable, .snapshots = snapshots_of(op, server_names)};
  }
  if (auto table = table_of_op(op, client, server_names)) {
    return BoundOp{.kind = Kind::kRows, .table = *std::move(table)};
  }
  return std::nullopt;
}

}  // namespace

BoundBlock bind_ops(const fluid::Block& block, const ServerClient& client,
                    const std::vector<std::string>& server_names, bool sends_gradients) {
  BoundBlock bound;
  for (const auto& op : block.ops()) {
    if (op->type == "send") {
      bound.emplace(op.get(), sends_gradients ? bind_send(*op, client, server_names)
                                              : BoundOp{.kind = Kind::kSend});
    } else if (auto own = bind_op(*op, client, server_names)) {
      bound.emplace(op.get(), *std::move(own));
    }
  }
  return bound;
}

BoundOp bind_by_name(const fluid::Operator& op, const fluid::OpSchema& row,
                     const ServerClient& client) {
  auto table = table_by_name(op, row, client);
  if (!table) {
    throw_worker_op(op, "a worker of a parameter-server job cannot run this op",
                    "send, send_barrier, recv or fetch_barrier", op.type);
  }
  return {.kind = row.gives_table_rows ? Kind::kLookup : Kind::kRows, .table = *std::move(table)};
}

}  // namespace fleet::strategies
