// Rows of tables that live on servers, for the ops that look them up or have them saved.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fluid/core/value.h"
#include "fluid/ops/op_schema.h"
#include "fluid/program/program.h"
#include "strategies/parameter_server/client/server_client.h"

namespace fleet::strategies {

// A table in parts of whole rows, which follow each other or, with a stride, lie between each
// other: row r is row r / stride of part r modulo stride then, and all parts have as many rows.
struct RemoteTable {
  struct Part {
    RemoteVariable remote;
    int64_t first = 0;  // place of its first row
    int64_t rows = 0;
  };
  std::string where;  // for messages
  std::vector<Part> parts;
  int64_t stride = 1;
  fluid::DType dtype = fluid::DType::kFloat32;
  int64_t height = 0;
  int64_t width = 0;
  uint64_t row_bytes = 0;
  int64_t padding = -1;         // the id whose row is zeros; -1: none
  bool last_dim_is_one = true;  // of the ids, and left out in the outputs' shapes

  // Where a row stands among the rows of all parts, one part after the other.
  int64_t place_of(int64_t row) const {
    return stride == 1 ? row : row % stride * parts.front().rows + row / stride;
  }
};

// What a distributed_lookup_table op looks up. Throws ProgramError when the op does not fit the
// job, UsageError when a server does not keep what it names.
RemoteTable table_of_lookup(const fluid::Operator& op, const ServerClient& client,
                            const std::vector<std::string>& server_names);

// The table that another op knows the places of (table_names, epmap) and reads rows of; none for
// ops without.
std::optional<RemoteTable> table_of_op(const fluid::Operator& op, const ServerClient& client,
                                       const std::vector<std::string>& server_names);

// The table of an op that knows it by its name only (OpSchema::table_slot of `row`, the op's), as
// in programs that were not transpiled; none for other ops. Throws ProgramError when no server
// keeps it.
std::optional<RemoteTable> table_by_name(const fluid::Operator& op, const fluid::OpSchema& row,
                                         const ServerClient& client);

// What a prefetch op asks for: input i holds ids of rows of server i, whose numbers there are the
// ids divided by the part's stride.
struct RemotePrefetch {
  struct Part {
    RemoteVariable remote;
    int64_t stride = 1;
  };
  std::vector<Part> parts;
  fluid::DType dtype = fluid::DType::kFloat32;
  int64_t width = 0;
};
RemotePrefetch prefetch_of(const fluid::Operator& op, const ServerClient& client,
                           const std::vector<std::string>& server_names);
// Asks for the rows of strictly ascending ids, straight into the outputs' tensors. On the thread of
// the client's loop. `on_done` runs once, when the rows are here or with the first failure; inside
// the call when no row is wanted.
void prefetch_rows(const RemotePrefetch& prefetch, std::span<fluid::Value* const> ids,
                   std::span<fluid::Value* const> outputs, ServerClient& client,
                   transport::DoneHandler on_done = nullptr);

// What a checkpoint_notify op tells each server.
struct RemoteSnapshot {
  uint32_t server = 0;
  TableSnapshot snapshot;
};
std::vector<RemoteSnapshot> snapshots_of(const fluid::Operator& op,
                                         const std::vector<std::string>& server_names);
// On the thread of the client's loop; `on_done` as with prefetch_rows.
void save_tables(const std::vector<RemoteSnapshot>& snapshots, ServerClient& client,
                 transport::DoneHandler on_done = nullptr);

// Rows of a table, such as some ids name, each fetched once. The values that come stay with this
// object, which must live until they have.
class RowLookup {
 public:
  // Throws UsageError for an id outside of the table.
  RowLookup(const RemoteTable& table, std::vector<const fluid::Tensor*> ids);
  // Of rows of the table, strictly ascending.
  RowLookup(const RemoteTable& table, std::vector<int64_t> rows);

  // As prefetch_rows.
  void ask(ServerClient& client, transport::DoneHandler on_done = nullptr);
  // A row for each id, in the outputs' tensors.
  void fill(std::span<fluid::Value* const> outputs) const;
  // The rows in their places of a tensor of the whole table. One that has not the table's shape yet
  // becomes zeros first.
  void place(fluid::Tensor& whole) const;

 private:
  void sort_rows();
  const std::byte* value_of(int64_t row) const;

  const RemoteTable& table_;
  std::vector<const fluid::Tensor*> ids_;
  std::vector<int64_t> rows_;  // by place, strictly ascending
  Buffer values_;              // of the rows, one after the other
};

}  // namespace fleet::strategies
