#include "strategies/parameter_server/worker/rows/growing_lookup.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/tables/lookup/instance_shows.h"
#include "strategies/parameter_server/client/request_group.h"
#include "strategies/parameter_server/errors.h"
#include "strategies/parameter_server/worker/remote_places.h"

namespace fleet::strategies {

namespace {

[[noreturn]] void throw_table(const std::string& name, std::string what, std::string expected,
                              std::string got) {
  throw_error(ErrorCode::kInvalidProgram,
              {.what = std::move(what),
               .where = str_cat("growing table '", name, "'"),
               .expected = std::move(expected),
               .got = std::move(got),
               .fix = "transpile all programs of the job from one program, with one transpiler"});
}

RemoteGrowingTables::Table place_of(const std::string& name, const std::vector<uint32_t>& servers,
                                    const ServerClient& client) {
  RemoteGrowingTables::Table table;
  for (const uint32_t server : servers) {
    const RemoteVariable part = client.find(server, name);
    const ParameterEntry& entry = client.parameter_index(part.server).entries[part.variable];
    if (!entry.growing) {
      throw_table(name, "a server has no growing table of this name", "a growing table",
                  str_cat("another variable at server ", server));
    }
    const auto width = static_cast<int64_t>(entry.row_bytes() / sizeof(float));
    if (!table.parts.empty() && width != table.width) {
      throw_table(name, "servers have rows of other widths of a growing table",
                  str_cat("rows of ", table.width, " floats"),
                  str_cat(width, " at server ", server));
    }
    table.parts.push_back(part);
    table.width = width;
  }
  return table;
}

}  // namespace

RemoteGrowingTables growing_tables_of(const fluid::Operator& op, const ServerClient& client,
                                      const std::vector<std::string>& server_names) {
  RemoteGrowingTables tables;
  tables.attrs = fluid::parse_attributes<fluid::LookupRemoteGrowingTablesAttrs>(op.type, op.attrs);
  tables.ids = op.input("Ids");
  tables.names = op.input("Tables");
  for (const std::string& endpoint : tables.attrs.endpoints) {
    tables.servers.push_back(server_of(op, endpoint, server_names));
  }
  for (const std::string& name : tables.names) {
    tables.tables.push_back(place_of(name, tables.servers, client));
  }
  return tables;
}

RemoteGrowingTables one_growing_table(const std::string& name, const ServerClient& client) {
  RemoteGrowingTables one;
  one.servers.resize(client.config().server_num());
  std::iota(one.servers.begin(), one.servers.end(), 0U);
  one.tables = {place_of(name, one.servers, client)};
  one.names = {name};
  one.ids = {name};
  one.attrs = {.endpoints = {},
               .table_of = {0},
               .ids_end_in_one = {0},
               .has_padding = {0},
               .padding_idx = {0},
               .shown = {-1},
               .is_test = true};
  return one;
}

namespace {

void check_shape(const fluid::Shape& ids, const std::string& name) {
  if (ids.rank() > 0 && ids[ids.rank() - 1] == 1) return;
  throw_error(ErrorCode::kShapeMismatch,
              {.what = "ids do not end in a dimension of 1",
               .where = str_cat("lookup_remote_growing_tables, variable '", name, "'"),
               .expected = "[..., 1]",
               .got = ids.to_string(),
               .fix = "feed ids of the shape that the data layer has"});
}

// Of the rows of such ids, without the width.
fluid::Shape rows_shape(const fluid::Shape& ids, bool ends_in_one) {
  return ends_in_one ? fluid::Shape(ids.dims().first(static_cast<size_t>(ids.rank() - 1))) : ids;
}

}  // namespace

GrowingLookup::GrowingLookup(const RemoteGrowingTables& tables,
                             std::vector<const fluid::Tensor*> ids,
                             std::vector<std::shared_ptr<KeptRows>> kept, uint64_t step)
    : tables_(tables),
      ids_(std::move(ids)),
      numbers_(ids_.size()),
      wanted_(tables.tables.size()),
      kept_(std::move(kept)),
      step_(step) {
  const auto& attrs = tables_.attrs;
  std::vector<size_t> most(wanted_.size());
  for (size_t i = 0; i < ids_.size(); ++i) {
    most[static_cast<size_t>(attrs.table_of[i])] += static_cast<size_t>(ids_[i]->numel());
  }
  for (size_t t = 0; t < wanted_.size(); ++t) wanted_[t].unique.begin(most[t]);
  for (size_t i = 0; i < ids_.size(); ++i) {
    if (attrs.ids_end_in_one[i] != 0) check_shape(ids_[i]->shape(), tables_.ids[i]);
    auto& unique = wanted_[static_cast<size_t>(attrs.table_of[i])].unique;
    numbers_[i].reserve(static_cast<size_t>(ids_[i]->numel()));
    for (const int64_t id : ids_[i]->values<int64_t>()) {
      const bool padding = attrs.has_padding[i] != 0 && id == attrs.padding_idx[i];
      numbers_[i].push_back(padding ? kPadding : unique.add(static_cast<uint64_t>(id)));
    }
  }
  for (size_t t = 0; t < wanted_.size(); ++t) {
    divide(wanted_[t], static_cast<size_t>(tables_.tables[t].width),
           kept_.empty() ? nullptr : kept_[t].get());
  }
  for (size_t server = 0; server < tables_.servers.size(); ++server) check_count(server);
}

// Of one server; before anything is asked.
void GrowingLookup::check_count(size_t server) const {
  uint64_t rows = 0;
  for (const Wanted& wanted : wanted_) rows += wanted.parts[server].ids.size();
  if (rows <= kMostRowsOfGet) return;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "a lookup asks a server for too many rows at once",
               .where = str_cat("growing tables ", join(tables_.names, ", "), " on server ",
                                tables_.servers[server]),
               .expected = str_cat(kMostRowsOfGet, " different ids at most"),
               .got = str_cat(rows),
               .fix = "use smaller batches, or more servers"});
}

// Servers have what is asked of them ascending.
void GrowingLookup::divide(Wanted& wanted, size_t width, KeptRows* kept) const {
  const size_t servers = tables_.servers.size();
  const auto unique = wanted.unique.ids();
  std::vector<float> kept_values(kept == nullptr ? 0 : unique.size() * width);
  const std::vector<bool> here = kept == nullptr ? std::vector<bool>(unique.size())
                                                 : kept->find(unique, step_, kept_values.data());
  std::vector<std::vector<std::pair<int64_t, uint32_t>>> parts(servers);
  for (size_t i = 0; i < unique.size(); ++i) {
    if (here[i]) continue;
    parts[fluid::server_of_id(unique[i], servers)].emplace_back(static_cast<int64_t>(unique[i]),
                                                                static_cast<uint32_t>(i));
  }
  wanted.parts.resize(servers);
  wanted.places.resize(unique.size());
  uint32_t place = 0;
  for (size_t server = 0; server < servers; ++server) {
    wanted.parts[server].first = place;
    std::sort(parts[server].begin(), parts[server].end());
    for (const auto& [id, number] : parts[server]) {
      wanted.parts[server].ids.push_back(id);
      wanted.places[number] = place++;
    }
  }
  wanted.values.resize(unique.size() * width);
  for (size_t i = 0; i < unique.size(); ++i) {
    if (!here[i]) continue;
    std::copy_n(kept_values.data() + i * width, width, wanted.values.data() + place * width);
    wanted.places[i] = place++;
  }
}

void GrowingLookup::ask(ServerClient& client, GrowingGet what, bool ahead,
                        transport::DoneHandler on_done) {
  RequestGroup requests(std::move(on_done));
  for (size_t at = 0; at < tables_.servers.size(); ++at) {
    std::vector<ServerClient::RowsWanted> rows;
    for (size_t t = 0; t < wanted_.size(); ++t) {
      const Wanted::Part& part = wanted_[t].parts[at];
      if (part.ids.empty()) continue;
      float* const to =
          wanted_[t].values.data() + part.first * static_cast<size_t>(tables_.tables[t].width);
      rows.push_back(
          {tables_.tables[t].parts[at].variable, part.ids, reinterpret_cast<std::byte*>(to),
           what == GrowingGet::kReads ? std::vector<float>() : shows_of(wanted_[t], part)});
    }
    if (rows.empty()) continue;
    client.get_growing_rows(tables_.servers[at], std::move(rows), what, ahead,
                            [&requests] { return requests.add(); });
  }
  requests.begun();
}

void GrowingLookup::add_shows(std::span<const fluid::Tensor* const> ids,
                              std::span<const fluid::Tensor* const> shows,
                              std::span<const fluid::Tensor* const> clicks) {
  const auto& attrs = tables_.attrs;
  for (Wanted& wanted : wanted_) wanted.shows.clear();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (attrs.shown[i] < 0) continue;
    const auto of = static_cast<size_t>(attrs.shown[i]);
    const auto table = static_cast<size_t>(attrs.table_of[i]);
    Wanted& wanted = wanted_[table];
    wanted.shows.resize(2 * wanted.unique.ids().size());
    const fluid::tables::InstanceShows given(*shows[of], *clicks[of],
                                             str_cat("growing table '", tables_.names[table], "'"));
    given.for_each(*ids[i], [&](size_t at, float show, float click) {
      const uint32_t number = numbers_[i][at];
      if (number == kPadding) return;
      wanted.shows[2 * number] += show;
      wanted.shows[2 * number + 1] += click;
    });
  }
}

std::vector<float> GrowingLookup::shows_of(const Wanted& wanted, const Wanted::Part& part) {
  if (wanted.shows.empty()) return {};
  std::vector<float> shows(2 * part.ids.size());
  for (size_t number = 0; number < wanted.places.size(); ++number) {
    const size_t place = wanted.places[number] - part.first;
    if (wanted.places[number] < part.first || place >= part.ids.size()) continue;
    shows[2 * place] = wanted.shows[2 * number];
    shows[2 * place + 1] = wanted.shows[2 * number + 1];
  }
  return shows;
}

void GrowingLookup::keep() {
  for (size_t t = 0; t < kept_.size(); ++t) {
    if (kept_[t] == nullptr) continue;
    const auto width = static_cast<size_t>(tables_.tables[t].width);
    for (const Wanted::Part& part : wanted_[t].parts) {
      const std::span ids(reinterpret_cast<const uint64_t*>(part.ids.data()), part.ids.size());
      kept_[t]->keep(ids, step_, wanted_[t].values.data() + part.first * width);
    }
  }
}

bool GrowingLookup::is_of(std::span<const fluid::Tensor* const> ids) const {
  return std::equal(ids.begin(), ids.end(), ids_.begin(), ids_.end(),
                    [](const fluid::Tensor* a, const fluid::Tensor* b) {
                      if (!(a->shape() == b->shape())) return false;
                      const auto left = a->values<int64_t>();
                      const auto right = b->values<int64_t>();
                      return std::equal(left.begin(), left.end(), right.begin(), right.end());
                    });
}

void GrowingLookup::fill(std::span<const fluid::Tensor* const> all,
                         std::span<fluid::Value* const> outputs) const {
  const auto& attrs = tables_.attrs;
  for (size_t i = 0; i < all.size(); ++i) {
    const fluid::Tensor& ids = *all[i];
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
