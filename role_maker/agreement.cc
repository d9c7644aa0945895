#include "role_maker/agreement.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <unistd.h>

#include "base/archive.h"
#include "base/net/own_address.h"
#include "base/net/port_reservation.h"
#include "base/process/random_hex.h"
#include "base/strings.h"
#include "role_maker/variable_reader.h"

namespace fleet::role_maker {
namespace {

struct Introduction {
  std::string job_id;
  std::string proposed_id;
  std::string proposed_secret;
  bool has_secret = false;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(job_id, proposed_id, proposed_secret, has_secret);
  }
};

std::vector<Introduction> introduce(GroupExchange& exchange, const Introduction& mine) {
  const auto bytes = encode(mine);
  auto gathered =
      exchange.all_gather(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  std::vector<Introduction> all;
  for (const auto& text : gathered.value()) {
    all.push_back(
        decode<Introduction>(std::as_bytes(std::span(text)), "a rank's introduction").value());
  }
  return all;
}

void check_job_ids(const std::vector<Introduction>& all) {
  for (size_t i = 1; i < all.size(); ++i) {
    if (all[i].job_id == all[0].job_id) continue;
    fail_environment(
        {.what = "ranks of one job have different job ids",
         .where = "FLEET_JOB_ID",
         .expected = "the same value at every rank",
         .got = str_cat("'", all[0].job_id, "' at rank 0, '", all[i].job_id, "' at rank ", i),
         .fix = "set it once and hand it on with mpirun -x FLEET_JOB_ID, or unset it"});
  }
}

// True when every rank has a secret of its own.
bool check_secrets(const std::vector<Introduction>& all) {
  std::vector<size_t> with;
  std::vector<size_t> without;
  for (size_t i = 0; i < all.size(); ++i) (all[i].has_secret ? with : without).push_back(i);
  if (with.empty() || without.empty()) return without.empty();
  fail_environment(
      {.what = "only some ranks of the job have its secret",
       .where = "FLEET_JOB_SECRET, FLEET_JOB_SECRET_FILE",
       .expected = "at every rank, or at none",
       .got = str_cat("set at rank ", join(with, ","), ", not set at rank ", join(without, ",")),
       .fix = "hand it on with mpirun -x FLEET_JOB_SECRET"});
}

}  // namespace

void agree_on_identity(const Environment& environment, GroupExchange& exchange, ClusterSpec& spec) {
  Introduction mine;
  mine.job_id = spec.job_id.empty() ? environment.get("FLEET_JOB_ID").value_or("") : spec.job_id;
  mine.has_secret = environment.has("FLEET_JOB_SECRET") || environment.has("FLEET_JOB_SECRET_FILE");
  if (exchange.rank() == 0) {
    mine.proposed_id = "mpi-" + random_hex(8);
    mine.proposed_secret = make_job_secret();
  }
  const auto all = introduce(exchange, mine);
  check_job_ids(all);
  if (mine.job_id.empty()) {
    spec.job_id = all[0].proposed_id;
    spec.origins["job_id"] = "made by rank 0";
  } else if (spec.job_id.empty()) {
    spec.job_id = mine.job_id;
    spec.origins["job_id"] = "FLEET_JOB_ID";
  }
  if (!check_secrets(all)) {
    spec.job_secret = all[0].proposed_secret;
    spec.origins["job_secret"] = "made by rank 0";
  }
}

std::vector<std::string> agree_on_endpoints(const Environment& environment, GroupExchange& exchange,
                                            bool offer) {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  const auto names = exchange.all_gather(name.data()).value();
  const bool one_machine =
      std::all_of(names.begin(), names.end(), [&](const auto& n) { return n == names[0]; });
  const std::string interfaces = environment.get("FLEET_SOCKET_IFNAME").value_or("");
  const std::string host = bare_host(environment.get("POD_IP").value_or(
      one_machine && interfaces.empty() ? "127.0.0.1" : machine_address(interfaces)));

  std::string mine;
  PortReservation port;
  if (offer) {
    // On all addresses: the host's need not be of this machine (behind address translation).
    const bool ipv6 = host.find(':') != std::string::npos;
    port = PortReservation::any(ipv6 ? "::" : "0.0.0.0", 1);
    mine = Endpoint{host, port.endpoints().front().port}.to_string();
  }
  // Ports are held until every rank has its own.
  auto endpoints = exchange.all_gather(mine).value();
  exchange.all_gather("").status().throw_if_error();
  return endpoints;
}

}  // namespace fleet::role_maker
