// Rows of growing tables that live on servers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fluid/core/value.h"
#include "fluid/ops/distributed/table_ops.h"
#include "fluid/program/program.h"
#include "fluid/tables/lookup/unique_ids.h"
#include "strategies/parameter_server/client/server_client.h"
#include "strategies/parameter_server/worker/rows/kept_rows.h"

namespace fleet::strategies {

// What a lookup_remote_growing_tables op asks for.
struct RemoteGrowingTables {
  struct Table {
    std::vector<RemoteVariable> parts;  // as the servers
    int64_t width = 0;
  };
  std::vector<uint32_t> servers;  // by endpoint of the op
  std::vector<Table> tables;
  std::vector<std::string> names;  // of the tables
  std::vector<std::string> ids;    // names of the variables
  fluid::LookupRemoteGrowingTablesAttrs attrs;
};

// One table, where all servers keep it, for a lookup of ids of any shape. Throws UsageError when a
// server does not.
RemoteGrowingTables one_growing_table(const std::string& name, const ServerClient& client);
// Throws ProgramError when the op does not fit the job, UsageError when a server does not keep what
// it names.
RemoteGrowingTables growing_tables_of(const fluid::Operator& op, const ServerClient& client,
                                      const std::vector<std::string>& server_names);

// The rows of some ids, each id of a table asked for once, of all tables of a server together. The
// values that come stay with this object, which must live until they have.
class GrowingLookup {
 public:
  // One tensor of ids for each output of the op. Throws UsageError for ids of another shape, or too
  // many of them. `kept`: by table, rows that are here at `step`, or null; or
  // empty.
  GrowingLookup(const RemoteGrowingTables& tables, std::vector<const fluid::Tensor*> ids,
                std::vector<std::shared_ptr<KeptRows>> kept = {}, uint64_t step = 0);

  bool is_test() const { return tables_.attrs.is_test; }
  // Ids of some slots were shown and clicked so often, which their servers are told when they are
  // asked to make rows. By number of attrs.shown; `ids` are the lookup's, or equal ones. UsageError
  // where they do not fit.
  void add_shows(std::span<const fluid::Tensor* const> ids,
                 std::span<const fluid::Tensor* const> shows,
                 std::span<const fluid::Tensor* const> clicks);
  // Asks all servers at once. On the thread of the client's loop; `on_done` runs once, when the
  // rows are here or with the first failure; inside the call when no row is wanted. `ahead` as of
  // ServerClient::get_growing_rows.
  void ask(ServerClient& client, GrowingGet what, bool ahead, transport::DoneHandler on_done);
  // Rows that came are here from now on.
  void keep();
  // Whether these ids are the lookup's own.
  bool is_of(std::span<const fluid::Tensor* const> ids) const;
  // A row for each id, in the outputs' tensors; `ids` are the lookup's, or equal ones.
  void fill(std::span<const fluid::Tensor* const> ids,
            std::span<fluid::Value* const> outputs) const;

 private:
  static constexpr uint32_t kPadding = 0xffffffff;

  struct Wanted {
    struct Part {
      std::vector<int64_t> ids;  // ascending
      size_t first = 0;          // the place of its first row among those of all servers
    };
    fluid::tables::UniqueIds unique;
    std::vector<Part> parts;       // by server
    std::vector<uint32_t> places;  // of unique ids: rows of all servers, then kept ones
    std::vector<float> values;
    std::vector<float> shows;  // and clicks, by unique id; empty: none are told
  };
  // Of the rows of a part.
  static std::vector<float> shows_of(const Wanted& wanted, const Wanted::Part& part);
  void divide(Wanted& wanted, size_t width, KeptRows* kept) const;
  void check_count(size_t server) const;

  const RemoteGrowingTables& tables_;
  std::vector<const fluid::Tensor*> ids_;
  std::vector<std::vector<uint32_t>> numbers_;  // of each tensor's ids, among the unique ones
  std::vector<Wanted> wanted_;                  // by table
  std::vector<std::shared_ptr<KeptRows>> kept_;
  uint64_t step_ = 0;
};

}  // namespace fleet::strategies
