#include "strategies/parameter_server/worker/rows/remote_lookup.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/distributed/names.h"
#include "fluid/ops/distributed/table_ops.h"
#include "strategies/parameter_server/client/request_group.h"
#include "strategies/parameter_server/errors.h"
#include "strategies/parameter_server/worker/remote_places.h"

namespace fleet::strategies {

namespace {

// One server for each name.
void check_endpoints(const fluid::Operator& op, size_t names, size_t endpoints) {
  if (names == endpoints) return;
  throw_worker_op(op, "every part of a table belongs to one server", str_cat(names, " endpoints"),
                  str_cat(endpoints));
}

RemoteTable table_of(const fluid::Operator& op, const std::vector<std::string>& names,
                     const std::vector<std::string>& endpoints, const ServerClient& client,
                     const std::vector<std::string>& server_names) {
  check_endpoints(op, names.size(), endpoints.size());
  RemoteTable table;
  table.where = op.to_string();
  for (size_t i = 0; i < names.size(); ++i) {
    const uint32_t server = server_of(op, endpoints[i], server_names);
    const RemoteVariable remote = client.find(server, names[i]);
    const ParameterEntry& entry = client.parameter_index(server).entries[remote.variable];
    table.parts.push_back({remote, table.height, entry.height()});
    table.height += entry.height();
    table.dtype = entry.dtype;
    table.row_bytes = entry.row_bytes();
  }
  table.width = static_cast<int64_t>(table.row_bytes / fluid::dtype_size(table.dtype));
  return table;
}

std::vector<std::string> names_in(const fluid::Operator& op, std::string_view attribute) {
  const fluid::Attribute* attr = op.attr(attribute);
  const auto* names = attr == nullptr ? nullptr : std::get_if<std::vector<std::string>>(attr);
  return names == nullptr ? std::vector<std::string>() : *names;
}

// A table by the name that it has in the user's program.
RemoteTable table_of_origin(const fluid::Operator& op, const std::string& name,
                            const ServerClient& client) {
  RemoteTable table;
  table.where = op.to_string();
  const RemoteTensor whole = places_of_origin(name, client);
  if (whole.parts.empty()) {
    throw_worker_op(op, "no server keeps the table that this op looks up", "a table of the job",
                    name);
  }
  std::map<int64_t, RemoteTable::Part> parts;  // by first row
  for (const RemotePart& part : whole.parts) {
    const auto& entry = client.parameter_index(part.remote.server).entries[part.remote.variable];
    parts[entry.first_row()] = {part.remote, 0, entry.height()};
    table.stride = entry.row_stride;
    table.row_bytes = entry.row_bytes();
  }
  int64_t first = 0;
  for (auto& [row, part] : parts) {
    part.first = first;
    first += part.rows;
    table.parts.push_back(part);
  }
  table.dtype = whole.dtype;
  table.height = whole.shape[0];
  table.width = static_cast<int64_t>(table.row_bytes / fluid::dtype_size(table.dtype));
  return table;
}

}  // namespace

RemoteTable table_of_lookup(const fluid::Operator& op, const ServerClient& client,
                            const std::vector<std::string>& server_names) {
  const auto attrs = fluid::parse_attributes<fluid::DistributedLookupTableAttrs>(op.type, op.attrs);
  RemoteTable table = table_of(op, attrs.table_names, attrs.endpoints, client, server_names);
  table.padding = attrs.padding_idx;
  table.last_dim_is_one = attrs.lookup_table_version == "lookup_table";
  return table;
}

std::optional<RemoteTable> table_of_op(const fluid::Operator& op, const ServerClient& client,
                                       const std::vector<std::string>& server_names) {
  const auto names = names_in(op, fluid::kTableNames);
  if (names.empty()) return std::nullopt;
  return table_of(op, names, names_in(op, "epmap"), client, server_names);
}

std::optional<RemoteTable> table_by_name(const fluid::Operator& op, const fluid::OpSchema& row,
                                         const ServerClient& client) {
  if (row.table_slot.empty() || !names_in(op, fluid::kTableNames).empty()) return std::nullopt;
  RemoteTable table = table_of_origin(op, op.input(row.table_slot).front(), client);
  if (!row.gives_table_rows) return table;
  table.padding = fluid::padding_of(op);
  table.last_dim_is_one = row.ids_end_in_one;
  return table;
}

RemotePrefetch prefetch_of(const fluid::Operator& op, const ServerClient& client,
                           const std::vector<std::string>& server_names) {
  const auto attrs = fluid::parse_attributes<fluid::PrefetchAttrs>(op.type, op.attrs);
  check_endpoints(op, op.input("X").size(), attrs.epmap.size());
  RemotePrefetch prefetch;
  for (size_t i = 0; i < op.input("X").size(); ++i) {
    const std::string& name = op.input("X")[i];
    const uint32_t server = server_of(op, attrs.epmap[i], server_names);
    const auto& entries = client.parameter_index(server).entries;
    const auto entry = std::find_if(entries.begin(), entries.end(),
                                    [&](const auto& each) { return each.lookup == name; });
    if (entry == entries.end()) {
      throw_error(ErrorCode::kUnknownName,
                  {.what = "a server has no table for a prefetch",
                   .where = op.to_string(),
                   .expected = str_cat("a table that server ", server, " looks up for ", name),
                   .got = "none",
                   .fix = "transpile every role of the job from the same program"});
    }
    const auto variable = static_cast<uint32_t>(entry - entries.begin());
    prefetch.parts.push_back({{server, variable}, entry->row_stride});
    prefetch.dtype = entry->dtype;
    prefetch.width = static_cast<int64_t>(entry->row_bytes() / fluid::dtype_size(entry->dtype));
  }
  return prefetch;
}

void prefetch_rows(const RemotePrefetch& prefetch, std::span<fluid::Value* const> ids,
                   std::span<fluid::Value* const> outputs, ServerClient& client,
                   transport::DoneHandler on_done) {
  RequestGroup requests(std::move(on_done));
  for (size_t i = 0; i < prefetch.parts.size(); ++i) {
    const auto* wanted = std::get_if<fluid::Tensor>(ids[i]);
    std::vector<int64_t> rows;
    for (const int64_t id : wanted->values<int64_t>()) {
      rows.push_back(id / prefetch.parts[i].stride);
    }
    if (!std::holds_alternative<fluid::Tensor>(*outputs[i])) *outputs[i] = fluid::Tensor();
    fluid::Tensor& out = *std::get_if<fluid::Tensor>(outputs[i]);
    out.reset(prefetch.dtype, {static_cast<int64_t>(rows.size()), prefetch.width});
    if (rows.empty()) continue;
    client.get_rows(prefetch.parts[i].remote, std::move(rows), out.raw(), requests.add());
  }
  requests.begun();
}

std::vector<RemoteSnapshot> snapshots_of(const fluid::Operator& op,
                                         const std::vector<std::string>& server_names) {
  const auto attrs = fluid::parse_attributes<fluid::CheckpointNotifyAttrs>(op.type, op.attrs);
  std::vector<RemoteSnapshot> snapshots;
  for (size_t i = 0; i < attrs.epmap.size(); ++i) {
    snapshots.push_back(
        {server_of(op, attrs.epmap[i], server_names),
         {.table = attrs.lookup_table, .folder = attrs.dir, .number = static_cast<uint32_t>(i)}});
  }
  return snapshots;
}

void save_tables(const std::vector<RemoteSnapshot>& snapshots, ServerClient& client,
                 transport::DoneHandler on_done) {
  RequestGroup requests(std::move(on_done));
  for (const auto& [server, snapshot] : snapshots) {
    client.save_table(server, snapshot, requests.add());
  }
  requests.begun();
}

RowLookup::RowLookup(const RemoteTable& table, std::vector<const fluid::Tensor*> ids)
    : table_(table), ids_(std::move(ids)) {
  for (const fluid::Tensor* tensor : ids_) {
    for (const int64_t id : tensor->values<int64_t>()) {
      if (table.padding >= 0 && id == table.padding) continue;
      if (id < 0 || id >= table.height) {
        throw_error(ErrorCode::kInvalidArgument,
                    {.what = "an id is outside of the table",
                     .where = table.where,
                     .expected = str_cat("ids in [0, ", table.height, ")"),
                     .got = str_cat(id),
                     .fix = "enlarge the table, or map unknown words to an id of their own"});
      }
      rows_.push_back(id);
    }
  }
  std::sort(rows_.begin(), rows_.end());
  rows_.erase(std::unique(rows_.begin(), rows_.end()), rows_.end());
  sort_rows();
}

RowLookup::RowLookup(const RemoteTable& table, std::vector<int64_t> rows)
    : table_(table), rows_(std::move(rows)) {
  sort_rows();
}

void RowLookup::sort_rows() {
  const auto before = [this](int64_t a, int64_t b) {
    return table_.place_of(a) < table_.place_of(b);
  };
  if (table_.stride > 1) std::sort(rows_.begin(), rows_.end(), before);
  values_ = Buffer(rows_.size() * table_.row_bytes);
}

const std::byte* RowLookup::value_of(int64_t row) const {
  const auto before = [this](int64_t a, int64_t place) { return table_.place_of(a) < place; };
  const auto found = std::lower_bound(rows_.begin(), rows_.end(), table_.place_of(row), before);
  return values_.data() + static_cast<uint64_t>(found - rows_.begin()) * table_.row_bytes;
}

void RowLookup::ask(ServerClient& client, transport::DoneHandler on_done) {
  RequestGroup requests(std::move(on_done));
  auto begin = rows_.begin();
  for (const auto& part : table_.parts) {
    const auto end = std::find_if(begin, rows_.end(), [&](int64_t row) {
      return table_.place_of(row) >= part.first + part.rows;
    });
    std::vector<int64_t> rows(begin, end);
    for (int64_t& row : rows) row = table_.place_of(row) - part.first;
    const auto at = static_cast<uint64_t>(begin - rows_.begin());
    begin = end;
    if (rows.empty()) continue;
    client.get_rows(part.remote, std::move(rows), values_.data() + at * table_.row_bytes,
                    requests.add());
  }
  requests.begun();
}

void RowLookup::fill(std::span<fluid::Value* const> outputs) const {
  for (size_t i = 0; i < ids_.size(); ++i) {
    const fluid::Tensor& ids = *ids_[i];
    const int rank = ids.shape().rank() - (table_.last_dim_is_one ? 1 : 0);
    fluid::Shape shape(ids.shape().dims().first(static_cast<size_t>(std::max(rank, 0))));
    shape.push_back(table_.width);
    if (!std::holds_alternative<fluid::Tensor>(*outputs[i])) *outputs[i] = fluid::Tensor();
    fluid::Tensor& out = *std::get_if<fluid::Tensor>(outputs[i]);
    out.reset(table_.dtype, shape);
    out.share_lod(ids);
    std::byte* to = out.raw();
    for (const int64_t id : ids.values<int64_t>()) {
      if (table_.padding >= 0 && id == table_.padding) {
        std::memset(to, 0, table_.row_bytes);
      } else {
        std::memcpy(to, value_of(id), table_.row_bytes);
      }
      to += table_.row_bytes;
    }
  }
}

void RowLookup::place(fluid::Tensor& whole) const {
  const fluid::Shape shape{table_.height, table_.width};
  if (!whole.initialized() || whole.dtype() != table_.dtype || !(whole.shape() == shape)) {
    whole.reset(table_.dtype, shape);
    std::memset(whole.raw(), 0, whole.bytes());
  }
  for (size_t i = 0; i < rows_.size(); ++i) {
    std::memcpy(whole.raw() + static_cast<uint64_t>(rows_[i]) * table_.row_bytes,
                values_.data() + i * table_.row_bytes, table_.row_bytes);
  }
}

}  // namespace fleet::strategies
