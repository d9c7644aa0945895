#include "strategies/parameter_server/worker/growing_lookup.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "strategies/parameter_server/client/request_group.h"
#include "strategies/parameter_server/errors.h"
#include "strategies/parameter_server/worker/remote_places.h"

namespace fleet::strategies {

RemoteGrowingTables growing_tables_of(const fluid::Operator& op, const ServerClient& client,
                                      const std::vector<std::string>& server_names) {
  RemoteGrowingTables tables;
  tables.attrs = fluid::parse_attributes<fluid::LookupRemoteGrowingTablesAttrs>(op.type, op.attrs);
  for (const std::string& name : op.input("Tables")) {
    RemoteGrowingTables::Table& table = tables.tables.emplace_back();
    for (const std::string& endpoint : tables.attrs.endpoints) {
      const RemoteVariable part = client.find(server_of(op, endpoint, server_names), name);
      const ParameterEntry& entry = client.parameter_index(part.server).entries[part.variable];
      if (!entry.growing) {
        throw_worker_op(op, "a server has no growing table of this name", "a growing table", name);
      }
      const auto width = static_cast<int64_t>(entry.row_bytes() / sizeof(float));
      if (!table.parts.empty() && width != table.width) {
        throw_worker_op(op, "servers have rows of other widths of a growing table",
                        str_cat("rows of ", table.width, " floats of '", name, "'"),
                        str_cat(width, " at server ", part.server));
      }
      table.parts.push_back(part);
      table.width = width;
    }
  }
  return tables;
}

namespace {

// Of the rows of such ids, without the width.
fluid::Shape rows_shape(const fluid::Shape& ids, bool ends_in_one) {
  if (!ends_in_one) return ids;
  const int rank = ids.rank() - 1;
  if (rank >= 0 && ids[rank] == 1) return fluid::Shape(ids.dims().first(static_cast<size_t>(rank)));
  throw_error(ErrorCode::kShapeMismatch, {.what = "ids do not end in a dimension of 1",
                                          .where = "lookup_remote_growing_tables",
                                          .expected = "[..., 1]",
                                          .got = ids.to_string(),
                                          .fix = "feed ids of the shape that the data layer has"});
}

}  // namespace

GrowingLookup::GrowingLookup(const RemoteGrowingTables& tables,
                             std::vector<const fluid::Tensor*> ids)
    : tables_(tables), ids_(std::move(ids)), numbers_(ids_.size()), wanted_(tables.tables.size()) {
  const auto& attrs = tables_.attrs;
  std::vector<size_t> most(wanted_.size());
  for (size_t i = 0; i < ids_.size(); ++i) {
    most[static_cast<size_t>(attrs.table_of[i])] += static_cast<size_t>(ids_[i]->numel());
  }
  for (size_t t = 0; t < wanted_.size(); ++t) wanted_[t].unique.begin(most[t]);
  for (size_t i = 0; i < ids_.size(); ++i) {
    auto& unique = wanted_[static_cast<size_t>(attrs.table_of[i])].unique;
    numbers_[i].reserve(static_cast<size_t>(ids_[i]->numel()));
    for (const int64_t id : ids_[i]->values<int64_t>()) {
      const bool padding = attrs.has_padding[i] != 0 && id == attrs.padding_idx[i];
      numbers_[i].push_back(padding ? kPadding : unique.add(static_cast<uint64_t>(id)));
    }
  }
  for (Wanted& wanted : wanted_) divide(wanted);
}

// Servers have what is asked of them ascending.
void GrowingLookup::divide(Wanted& wanted) const {
  const size_t servers = tables_.attrs.endpoints.size();
  const auto unique = wanted.unique.ids();
  std::vector<std::vector<std::pair<int64_t, uint32_t>>> parts(servers);
  for (size_t i = 0; i < unique.size(); ++i) {
    parts[fluid::server_of_id(unique[i], servers)].emplace_back(static_cast<int64_t>(unique[i]),
                                                                static_cast<uint32_t>(i));
  }
  wanted.ids.resize(servers);
  wanted.places.resize(unique.size());
  uint32_t place = 0;
  for (size_t server = 0; server < servers; ++server) {
    std::sort(parts[server].begin(), parts[server].end());
    for (const auto& [id, number] : parts[server]) {
      wanted.ids[server].push_back(id);
      wanted.places[number] = place++;
    }
  }
}

void GrowingLookup::ask(ServerClient& client, transport::DoneHandler on_done) {
  RequestGroup requests(std::move(on_done));
  for (size_t t = 0; t < wanted_.size(); ++t) {
    Wanted& wanted = wanted_[t];
    const auto width = static_cast<size_t>(tables_.tables[t].width);
    wanted.values.resize(wanted.places.size() * width);
    size_t first = 0;
    for (size_t server = 0; server < wanted.ids.size(); ++server) {
      std::vector<int64_t>& ids = wanted.ids[server];
      float* const memory = wanted.values.data() + first * width;
      first += ids.size();
      if (ids.empty()) continue;
      client.get_growing_rows(tables_.tables[t].parts[server], std::move(ids),
                              reinterpret_cast<std::byte*>(memory), !tables_.attrs.is_test,
                              requests.add());
    }
  }
  requests.begun();
}

void GrowingLookup::fill(std::span<fluid::Value* const> outputs) const {
  const auto& attrs = tables_.attrs;
  for (size_t i = 0; i < ids_.size(); ++i) {
    const fluid::Tensor& ids = *ids_[i];
    const auto table = static_cast<size_t>(attrs.table_of[i]);
    const Wanted& wanted = wanted_[table];
    const auto width = static_cast<size_t>(tables_.tables[table].width);
    fluid::Shape shape = rows_shape(ids.shape(), attrs.ids_end_in_one[i] != 0);
    shape.push_back(static_cast<int64_t>(width));
    if (!std::holds_alternative<fluid::Tensor>(*outputs[i])) *outputs[i] = fluid::Tensor();
    fluid::Tensor& out = *std::get_if<fluid::Tensor>(outputs[i]);
    out.reset(fluid::DType::kFloat32, shape);
    out.share_lod(ids);
    auto* to = out.data<float>();
    for (const uint32_t number : numbers_[i]) {
      if (number == kPadding) {
        std::fill_n(to, width, 0.0f);
      } else {
        std::memcpy(to, wanted.values.data() + wanted.places[number] * width,
                    width * sizeof(float));
      }
      to += width;
    }
  }
}

}  // namespace fleet::strategies
