#include "strategies/jobs/listening_servers.h"

#include <memory>
#include <string>

#include "base/error.h"
#include "base/strings.h"
#include "transport/link/asio_network.h"

namespace fleet::strategies {
namespace {

// Why the address cannot be reached; empty when it can.
std::string reason_against(transport::AsioNetwork& network, const transport::Address& address,
                           Duration deadline) {
  transport::AsioLoop loop;
  bool over = false;
  std::string reason = "no answer";
  const auto connector = network.connect(loop, address, [&](auto link) {
    over = true;
    reason = link.ok() ? "" : link.status().text().got;
    if (link.ok()) link.value()->close();
  });
  loop.run_until([&over] { return over; }, loop.now() + deadline);
  return reason;
}

}  // namespace

void require_listening(const std::vector<Endpoint>& servers, transport::TransportChoice transport,
                       Duration deadline) {
  transport::AsioNetwork network(transport);
  for (const Endpoint& server : servers) {
    std::vector<std::string> reasons;
    for (const transport::Address& address : network.routes(server)) {
      const std::string reason = reason_against(network, address, deadline);
      if (reason.empty()) {
        reasons.clear();
        break;
      }
      reasons.push_back(str_cat(address.to_string(), ": ", reason));
    }
    if (reasons.empty()) continue;
    throw_error(
        ErrorCode::kPeerLost,
        {.what = "a server does not listen, and the trainer was told not to wait",
         .where = str_cat("server ", server.to_string(), ", get_trainer_program(wait_port)"),
         .expected = "servers that were started before",
         .got = join(reasons, "; "),
         .fix = "start the servers first, or leave wait_port at true"});
  }
}

}  // namespace fleet::strategies
