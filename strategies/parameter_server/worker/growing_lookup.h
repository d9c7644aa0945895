// Rows of growing tables that live on servers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fluid/core/value.h"
#include "fluid/ops/distributed/table_ops.h"
#include "fluid/program/program.h"
#include "fluid/tables/lookup/unique_ids.h"
#include "strategies/parameter_server/client/server_client.h"

namespace fleet::strategies {

// What a lookup_remote_growing_tables op asks for.
struct RemoteGrowingTables {
  struct Table {
    std::vector<RemoteVariable> parts;  // by server
    int64_t width = 0;
  };
  std::vector<Table> tables;
  fluid::LookupRemoteGrowingTablesAttrs attrs;
};

// Throws ProgramError when the op does not fit the job, UsageError when a server does not keep what
// it names.
RemoteGrowingTables growing_tables_of(const fluid::Operator& op, const ServerClient& client,
                                      const std::vector<std::string>& server_names);

// The rows of some ids, each id of a table asked for once. The values that come stay with this
// object, which must live until they have.
class GrowingLookup {
 public:
  // One tensor of ids for each output of the op.
  GrowingLookup(const RemoteGrowingTables& tables, std::vector<const fluid::Tensor*> ids);

  // Asks all servers at once. On the thread of the client's loop; `on_done` runs once, when the
  // rows are here or with the first failure; inside the call when no row is wanted.
  void ask(ServerClient& client, transport::DoneHandler on_done);
  // A row for each id, in the outputs' tensors.
  void fill(std::span<fluid::Value* const> outputs) const;

 private:
  static constexpr uint32_t kPadding = 0xffffffff;

  struct Wanted {
    fluid::tables::UniqueIds unique;
    std::vector<std::vector<int64_t>> ids;  // by server, ascending
    std::vector<uint32_t> places;           // of unique ids, among the rows of all servers
    std::vector<float> values;
  };
  void divide(Wanted& wanted) const;

  const RemoteGrowingTables& tables_;
  std::vector<const fluid::Tensor*> ids_;
  std::vector<std::vector<uint32_t>> numbers_;  // of each tensor's ids, among the unique ones
  std::vector<Wanted> wanted_;                  // by table
};

}  // namespace fleet::strategies
