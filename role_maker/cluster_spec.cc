#include "role_maker/cluster_spec.h"

#include <iomanip>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"

namespace fleet::role_maker {
namespace {

[[noreturn]] void fail(ErrorText text) {
  throw_error(ErrorCode::kEnvironment, std::move(text));
}

void check_endpoints(const std::vector<std::string>& endpoints, std::string_view field) {
  std::set<std::string> seen;
  for (const auto& endpoint : endpoints) {
    if (!seen.insert(parse_endpoint(endpoint, field).to_string()).second) {
      fail({.what = "an endpoint occurs twice",
            .where = std::string(field),
            .expected = "a different host:port for each process",
            .got = join(endpoints, ","),
            .fix = str_cat("give each process its own port instead of ", endpoint)});
    }
  }
}

void check_count(const ClusterSpec& spec, std::string_view field, size_t got, int expected) {
  if (got == static_cast<size_t>(expected)) return;
  fail({.what = "the number of endpoints does not fit the number of processes",
        .where = std::string(field),
        .expected = str_cat(expected, " endpoints"),
        .got = str_cat(got, " in a ", to_string(spec.mode), " job"),
        .fix = "list one endpoint for each process"});
}

void check_index(const ClusterSpec& spec) {
  const int count = spec.is_worker() ? spec.worker_num : spec.server_num;
  if (spec.index >= 0 && spec.index < count) return;
  fail({.what = str_cat("the index of this ", to_string(spec.role), " is out of range"),
        .where = "index",
        .expected = str_cat("0 to ", count - 1),
        .got = str_cat(spec.index),
        .fix = "number the processes of a role from 0 without gaps"});
}

std::string origin_of(const ClusterSpec& spec, const std::string& field) {
  const auto found = spec.origins.find(field);
  return found == spec.origins.end() ? "default" : found->second;
}

}  // namespace

std::string_view to_string(Role role) {
  return role == Role::kWorker ? "worker" : "server";
}

std::string_view to_string(Mode mode) {
  switch (mode) {
    case Mode::kLocal:
      return "local";
    case Mode::kParameterServer:
      return "parameter_server";
    case Mode::kCollective:
      return "collective";
  }
  return "?";
}

std::string_view to_string(Contract contract) {
  switch (contract) {
    case Contract::kNone:
      return "none";
    case Contract::kArguments:
      return "arguments";
    case Contract::kPaddle:
      return "paddle";
    case Contract::kTorchrun:
      return "torchrun";
    case Contract::kOpenMpi:
      return "open_mpi";
    case Contract::kSlurm:
      return "slurm";
    case Contract::kMpiSymetric:
      return "mpi_symetric";
  }
  return "?";
}

std::string ClusterSpec::current_endpoint() const {
  const auto& endpoints = is_worker() ? worker_endpoints : server_endpoints;
  const auto at = static_cast<size_t>(index);
  return index >= 0 && at < endpoints.size() ? endpoints[at] : std::string();
}

std::string ClusterSpec::process_name() const {
  return str_cat(role_maker::to_string(role), '/', index);
}

void ClusterSpec::validate() const {
  if (worker_num < 1) {
    fail({.what = "a job needs at least one worker",
          .where = "worker_num",
          .expected = "1 or more",
          .got = str_cat(worker_num),
          .fix = "set the number of workers"});
  }
  check_endpoints(worker_endpoints, "worker_endpoints");
  check_endpoints(server_endpoints, "server_endpoints");
  const bool has_servers = mode == Mode::kParameterServer;
  if (has_servers != (server_num > 0) || (is_server() && !has_servers)) {
    fail({.what =
              str_cat("the number of servers does not fit a ", role_maker::to_string(mode), " job"),
          .where = "server_num",
          .expected = has_servers ? "1 or more" : "0",
          .got = str_cat(server_num, ", this process is a ", role_maker::to_string(role)),
          .fix = "list the servers' endpoints in a parameter-server job, and nowhere else"});
  }
  if (mode == Mode::kLocal && worker_num != 1) {
    fail({.what = "a local job has more than one worker",
          .where = "worker_num",
          .expected = "1",
          .got = str_cat(worker_num),
          .fix = "choose the parameter_server or the collective mode"});
  }
  check_count(*this, "server_endpoints", server_endpoints.size(), server_num);
  if (!worker_endpoints.empty()) {
    check_count(*this, "worker_endpoints", worker_endpoints.size(), worker_num);
  }
  check_index(*this);
  if (is_distributed() && job_id.empty()) {
    fail({.what = "a distributed job has no job id",
          .where = "job_id",
          .expected = "a name that all its processes share",
          .got = "nothing",
          .fix = "set FLEET_JOB_ID, or use derived_job_id()"});
  }
}

std::string ClusterSpec::to_string() const {
  std::ostringstream out;
  const auto line = [&](const char* field, const std::string& value) {
    out << std::left << std::setw(22) << field << std::setw(32) << value << ' '
        << origin_of(*this, field) << '\n';
  };
  line("mode", std::string(role_maker::to_string(mode)));
  line("role", std::string(role_maker::to_string(role)));
  line("index", str_cat(index));
  line("worker_num", str_cat(worker_num));
  line("server_num", str_cat(server_num));
  line("worker_endpoints", join(worker_endpoints, ","));
  line("server_endpoints", join(server_endpoints, ","));
  if (!rendezvous.empty()) line("rendezvous", rendezvous);
  line("job_id", job_id);
  line("job_secret", job_secret.empty() ? "" : "(hidden)");
  line("contract", std::string(role_maker::to_string(contract)));
  return std::move(out).str();
}

std::string derived_job_id(const ClusterSpec& spec) {
  const std::string text =
      str_cat(role_maker::to_string(spec.mode), '|', spec.worker_num, '|', spec.server_num, '|',
              join(spec.worker_endpoints, ","), '|', join(spec.server_endpoints, ","),
              spec.rendezvous.empty() ? "" : "|", spec.rendezvous);
  return str_cat("job-", hex_digits(fnv1a(text)));
}

Endpoint parse_endpoint(std::string_view text, std::string_view where) {
  return Endpoint::parse(text, where, ErrorCode::kEnvironment).value();
}

}  // namespace fleet::role_maker
