#include "strategies/parameter_server/worker/remote_places.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/distributed/comm.h"
#include "fluid/ops/distributed/names.h"
#include "strategies/parameter_server/errors.h"

namespace fleet::strategies {
namespace {

using Names = std::vector<std::string>;

struct Named {
  const Names& variables;  // of the op's slot
  const Names& remote;     // names on the servers, when the op's variable is cut at run time
  const Names& epmap;
};

template <class Find>
std::vector<RemoteTensor> places(const fluid::Operator& op, const Named& named,
                                 const ServerClient& client, const Names& server_names,
                                 const Find& find) {
  const bool split = !named.remote.empty();
  const Names& names = split ? named.remote : named.variables;
  if (named.epmap.size() != names.size() || (split && named.variables.size() != 1)) {
    throw_worker_op(op, "every variable belongs to one server", str_cat(names.size(), " endpoints"),
                    str_cat(named.epmap.size()));
  }
  std::vector<RemoteTensor> tensors;
  uint64_t offset = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const RemoteVariable remote = find(server_of(op, named.epmap[i], server_names), names[i]);
    const ParameterEntry& entry = client.parameter_index(remote.server).entries[remote.variable];
    if (!split || i == 0) {
      RemoteTensor& tensor = tensors.emplace_back();
      tensor.name = named.variables[split ? 0 : i];
      tensor.dtype = entry.dtype;
      tensor.shape = fluid::Shape(split ? entry.origin_shape : entry.shape);
      tensor.rows = entry.rows;
      tensor.growing = entry.growing;
      offset = 0;
    }
    tensors.back().parts.push_back({remote, offset, entry.bytes(), entry.row_stride});
    offset += entry.bytes();
  }
  if (split && offset != tensors.back().bytes()) {
    throw_worker_op(op, "the parts do not make up the variable",
                    str_cat(tensors.back().bytes(), " bytes"), str_cat(offset, " bytes"));
  }
  return tensors;
}

}  // namespace

uint32_t server_of(const fluid::Operator& op, const std::string& endpoint,
                   const std::vector<std::string>& server_names) {
  const auto found = std::find(server_names.begin(), server_names.end(), endpoint);
  if (found == server_names.end()) {
    throw_worker_op(op, "the program names a server that is not in the job",
                    str_cat("one of ", join(server_names, ", ")), endpoint);
  }
  return static_cast<uint32_t>(found - server_names.begin());
}

std::vector<RemoteTensor> places_of_send(const fluid::Operator& op, const ServerClient& client,
                                         const std::vector<std::string>& server_names) {
  const auto attrs = fluid::parse_attributes<fluid::SendAttrs>(op.type, op.attrs);
  return places(op, {op.input("X"), attrs.send_varnames, attrs.epmap}, client, server_names,
                // Contributions carry the shard, the server's gradient does not.
                [&](uint32_t server, const std::string& name) {
                  return client.find_gradient(server, fluid::without_shard(name));
                });
}

std::vector<RemoteTensor> places_of_recv(const fluid::Operator& op, const ServerClient& client,
                                         const std::vector<std::string>& server_names) {
  const auto attrs = fluid::parse_attributes<fluid::RecvAttrs>(op.type, op.attrs);
  return places(
      op, {op.output("Out"), attrs.recv_varnames, attrs.epmap}, client, server_names,
      [&](uint32_t server, const std::string& name) { return client.find(server, name); });
}

RemoteTensor places_of_origin(const std::string& origin, const ServerClient& client,
                              Copies copies) {
  RemoteTensor tensor;
  tensor.name = origin;
  uint64_t covered = 0;
  for (uint32_t server = 0; server < client.config().server_num(); ++server) {
    const auto& entries = client.parameter_index(server).entries;
    for (uint32_t i = 0; i < entries.size(); ++i) {
      const ParameterEntry& entry = entries[i];
      if (entry.origin != origin || entry.growing) continue;
      tensor.dtype = entry.dtype;
      tensor.shape = fluid::Shape(entry.origin_shape);
      tensor.rows = entry.rows;
      const bool whole = !tensor.parts.empty() && covered == tensor.bytes();
      if (whole && copies == Copies::kFirst) continue;
      const auto offset = static_cast<uint64_t>(entry.offset) * fluid::dtype_size(entry.dtype);
      tensor.parts.push_back({{server, i}, offset, entry.bytes(), entry.row_stride});
      if (!whole) covered += entry.bytes_in_origin();
    }
  }
  if (!tensor.parts.empty() && covered != tensor.bytes()) {
    throw_error(ErrorCode::kInternal, {.what = "the servers keep only a part of a variable",
                                       .where = origin,
                                       .expected = str_cat(tensor.bytes(), " bytes"),
                                       .got = str_cat(covered, " bytes"),
                                       .fix = "use server programs of one transpilation"});
  }
  return tensor;
}

RemoteTensor rows_at(const std::string& name, RemoteVariable part, const ServerClient& client) {
  const ParameterEntry& entry = client.parameter_index(part.server).entries[part.variable];
  return {.name = name,
          .dtype = entry.dtype,
          .shape = fluid::Shape(entry.shape),
          .parts = {{part, 0, entry.bytes(), entry.row_stride}},
          .rows = true,
          .growing = true};
}

// All servers have all of them.
std::vector<std::string> growing_tables(const ServerClient& client) {
  std::vector<std::string> names;
  for (const ParameterEntry& entry : client.parameter_index(0).entries) {
    if (entry.growing) names.push_back(entry.name);
  }
  return names;
}

std::vector<RemoteTensor> trained_variables(const ServerClient& client) {
  std::set<std::string> origins;
  for (uint32_t server = 0; server < client.config().server_num(); ++server) {
    const ParameterIndex& parameter_index = client.parameter_index(server);
    for (uint32_t i = 0; i < parameter_index.trained; ++i) {
      const ParameterEntry& entry = parameter_index.entries[i];
      if (!entry.growing) origins.insert(entry.origin);
    }
  }
  std::vector<RemoteTensor> tensors;
  tensors.reserve(origins.size());
  for (const auto& origin : origins) tensors.push_back(places_of_origin(origin, client));
  return tensors;
}

}  // namespace fleet::strategies
