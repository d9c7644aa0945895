#include "tools/explain/placement.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/strings.h"

namespace fleet::explain {
namespace {

using transpiler::PlacedParam;
using transpiler::PlacedSlice;
using transpiler::ServerPlan;

constexpr double kDominates = 0.5;  // of all parameter bytes
constexpr double kUneven = 1.5;     // the largest server by the mean
// A parameter of fewer bytes is no reason to warn.
constexpr int64_t kSmall = 64 * 1024;

std::string kind_of(const std::string& vtype) {
  if (vtype == "Optimizer") return "optimizer";
  if (vtype == "Statistic") return "statistic";
  if (vtype == "RemotePrefetch" || vtype == "DistributedTable") return "table";
  return "parameter";
}

int64_t product(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t dim : shape) elements *= dim;
  return elements;
}

PlacedPart part_of(const fluid::DistributedVar& row, const fluid::Program& main, int server) {
  const fluid::VarDesc* var = main.global_block().find_var(row.origin);
  const fluid::DType dtype = var == nullptr ? fluid::DType::kFloat32 : var->dtype;
  PlacedPart part{.variable = row.origin,
                  .slice = row.slice,
                  .kind = kind_of(row.vtype),
                  .dtype = std::string(fluid::dtype_name(dtype)),
                  .shape = row.slice_shape,
                  .server = server};
  const int64_t elements = product(row.slice_shape);
  part.rows = row.slice_shape.empty() ? 1 : row.slice_shape.front();
  part.first_row = elements == 0 ? 0 : row.offset / std::max<int64_t>(1, elements / part.rows);
  part.bytes = elements * static_cast<int64_t>(fluid::dtype_size(dtype));
  return part;
}

std::string server_name(const Explanation& explanation, size_t server) {
  return str_cat("server ", server, " (", explanation.servers[server].endpoint, ")");
}

// What would let more servers take part.
std::string advice_to_cut(const ServerPlan& plan, const ExplainOptions& options) {
  if (!options.config.slice_var_up) return "set slice_var_up, or use fewer servers";
  int64_t largest = 0;
  for (const PlacedParam& param : plan.params) {
    if (!param.sliced) largest = std::max(largest, param.shape.numel());
  }
  const bool could_be_cut = options.config.min_block_size > 8192 && largest >= 2 * 8192;
  return could_be_cut ? str_cat("lower min_block_size (now ", options.config.min_block_size,
                                "), or use fewer servers")
                      : std::string("use fewer servers");
}

void warn_of_idle_servers(const ServerPlan& plan, const ExplainOptions& options,
                          const Explanation& explanation, std::vector<Warning>& out) {
  std::vector<std::string> idle;
  for (size_t i = 0; i < explanation.servers.size(); ++i) {
    const ServerLoad& server = explanation.servers[i];
    if (server.slices == 0) idle.push_back(server_name(explanation, i));
  }
  if (idle.empty()) return;
  const size_t shown = std::min<size_t>(idle.size(), 3);
  std::string names = join(std::vector<std::string>(idle.begin(), idle.begin() + shown), ", ");
  if (idle.size() > shown) names += str_cat(" and ", idle.size() - shown, " more");
  out.push_back({str_cat(names, idle.size() == 1 ? " has" : " have", " no work"),
                 advice_to_cut(plan, options)});
}

// How far a parameter could be cut: by its rows, and by min_block_size.
std::string advice_for(const PlacedParam& param, const ServerPlan& plan,
                       const ExplainOptions& options) {
  const auto servers = static_cast<int64_t>(plan.endpoints.size());
  if (!options.config.slice_var_up) return "set slice_var_up, so that servers share it";
  const int64_t by_size = param.shape.numel() / options.config.min_block_size;
  if (by_size < servers && options.config.min_block_size > 8192) {
    return str_cat("min_block_size is ", options.config.min_block_size, ", which allows it only ",
                   std::max<int64_t>(1, by_size), " of ", servers, " slices: lower it");
  }
  if (param.shape.rank() == 0 || param.shape[0] < servers) {
    return "slices are whole rows and it has fewer rows than there are servers: transpose it, or "
           "use fewer servers";
  }
  return "its update needs the whole of it, so that it is not cut";
}

void warn_of_large_slices(const ServerPlan& plan, const ExplainOptions& options,
                          const Explanation& explanation, std::vector<Warning>& out) {
  const auto servers = static_cast<double>(plan.endpoints.size());
  if (plan.endpoints.size() < 2) return;
  for (const PlacedParam& param : plan.params) {
    for (const PlacedSlice& slice : param.slices) {
      const int64_t bytes =
          slice.shape.numel() * static_cast<int64_t>(fluid::dtype_size(param.dtype));
      const double share =
          static_cast<double>(bytes) / static_cast<double>(explanation.parameter_bytes);
      if (bytes < kSmall || share <= kDominates || share <= kUneven / servers) continue;
      out.push_back({str_cat("one slice dominates: ", slice.param, " is ",
                             static_cast<int>(100 * share), " % of all parameters, on ",
                             server_name(explanation, static_cast<size_t>(slice.server))),
                     advice_for(param, plan, options)});
    }
  }
}

// Parameters that min_block_size keeps from more servers than it must, where this makes them
// uneven.
void warn_of_block_size(const ServerPlan& plan, const ExplainOptions& options,
                        const Explanation& explanation, std::vector<Warning>& out) {
  if (!options.config.slice_var_up || options.config.min_block_size <= 8192) return;
  if (explanation.imbalance < kUneven) return;
  const auto servers = static_cast<int64_t>(plan.endpoints.size());
  std::vector<std::string> held;
  for (const PlacedParam& param : plan.params) {
    const int64_t elements = param.shape.numel();
    const int64_t now = std::max<int64_t>(1, elements / options.config.min_block_size);
    const int64_t could = std::min(servers, elements / 8192);
    if (now < could && !param.slices.empty()) held.push_back(param.param);
  }
  if (held.empty()) return;
  const std::string first = held.front();
  out.push_back(
      {str_cat("min_block_size ", options.config.min_block_size, " is too large for ", servers,
               " servers: it keeps ", first,
               held.size() > 1 ? str_cat(" and ", held.size() - 1, " more") : std::string(),
               " from being shared by all of them"),
       "lower min_block_size; 8192 is the least"});
}

void warn_of_imbalance(const ExplainOptions& options, const Explanation& explanation,
                       std::vector<Warning>& out) {
  if (!out.empty() || explanation.imbalance < kUneven) return;
  const auto largest = std::max_element(
      explanation.servers.begin(), explanation.servers.end(),
      [](const auto& a, const auto& b) { return a.parameter_bytes < b.parameter_bytes; });
  if (largest->parameter_bytes < kSmall) return;
  const auto index = static_cast<size_t>(largest - explanation.servers.begin());
  out.push_back(
      {str_cat(server_name(explanation, index), " has ", static_cast<int>(100 * largest->share),
               " % of all parameters, and every step waits for it"),
       options.config.split_method == "HashName"
           ? "split_method RoundRobin dispatches slices evenly by number"
           : "another number of servers may divide the slices better"});
}

}  // namespace

void place(const ServerPlan& plan, const fluid::Program& main, Explanation& out) {
  std::map<std::string, int> servers;
  for (const std::string& endpoint : plan.endpoints) {
    servers[endpoint] = static_cast<int>(out.servers.size());
    out.servers.push_back({.endpoint = endpoint});
  }
  std::set<std::string> sparse;
  for (const PlacedParam& param : plan.params) {
    if (param.sparse) sparse.insert(param.param);
  }
  int64_t total = 0;
  for (const fluid::DistributedVar& row : plan.overview) {
    PlacedPart part = part_of(row, main, servers.at(row.endpoint));
    part.sparse = part.kind == "table" || sparse.contains(part.variable);
    ServerLoad& server = out.servers[static_cast<size_t>(part.server)];
    if (part.kind == "parameter" || part.kind == "table") {
      ++server.slices;
      server.parameter_bytes += part.bytes;
      total += part.bytes;
    } else {
      if (part.kind == "statistic") ++server.slices;
      server.state_bytes += part.bytes;
    }
    out.placement.push_back(std::move(part));
  }
  int64_t most = 0;
  for (ServerLoad& server : out.servers) {
    server.share =
        total == 0 ? 0 : static_cast<double>(server.parameter_bytes) / static_cast<double>(total);
    most = std::max(most, server.parameter_bytes);
  }
  if (total > 0) {
    out.imbalance = static_cast<double>(most) * static_cast<double>(out.servers.size()) /
                    static_cast<double>(total);
  }
}

std::vector<Warning> find_warnings(const ServerPlan& plan, const ExplainOptions& options,
                                   const Explanation& explanation) {
  std::vector<Warning> warnings;
  warn_of_idle_servers(plan, options, explanation, warnings);
  warn_of_large_slices(plan, options, explanation, warnings);
  warn_of_block_size(plan, options, explanation, warnings);
  warn_of_imbalance(options, explanation, warnings);
  return warnings;
}

}  // namespace fleet::explain
