#include "transport/link/link.h"

#include <array>
#include <unistd.h>

#include "base/strings.h"

namespace fleet::transport {
namespace {

constexpr std::string_view kRefused = "connection refused";

}  // namespace

std::string PeerProcess::to_string() const {
  return str_cat("user ", uid, ", process ", pid);
}

Status check_same_user(const Link& link, std::string_view what, std::string fix) {
  if (link.kind() != LinkKind::kUnix) return {};
  const auto peer = link.peer_process();
  if (peer && peer->uid == ::geteuid()) return {};
  return Status(ErrorCode::kAuthentication,
                {.what = str_cat("another user's process ", what),
                 .where = link.peer_name(),
                 .expected = str_cat("user ", ::geteuid()),
                 .got = peer ? peer->to_string() : std::string("a process that cannot be asked"),
                 .fix = std::move(fix)});
}

void Link::read_later(MutableBytes into, ReadHandler handler) {
  wait_readable(
      [this, into, handler = std::move(handler)] { handler(read_some(std::span(&into, 1))); });
}

Status connection_refused(std::string where) {
  return Status(ErrorCode::kPeerLost, {.what = "cannot connect",
                                       .where = std::move(where),
                                       .expected = "a process that listens there",
                                       .got = std::string(kRefused),
                                       .fix = {}});
}

bool is_connection_refused(const Status& status) {
  return status.code() == ErrorCode::kPeerLost && status.text().got == kRefused;
}

std::string_view link_kind_name(LinkKind kind) {
  switch (kind) {
    case LinkKind::kTcp:
      return "tcp";
    case LinkKind::kUnix:
      return "unix";
    case LinkKind::kMemory:
      return "memory";
  }
  return "unknown";
}

std::string Address::to_string() const {
  return kind == LinkKind::kUnix ? str_cat("unix fleet-", endpoint.port)
                                 : str_cat(link_kind_name(kind), ' ', endpoint.to_string());
}

Result<TransportChoice> parse_transport_choice(std::string_view text) {
  if (text == "auto") return TransportChoice::kAuto;
  if (text == "tcp") return TransportChoice::kTcp;
  if (text == "unix") return TransportChoice::kUnix;
  const std::array<std::string, 3> names = {"auto", "tcp", "unix"};
  return Status(ErrorCode::kInvalidArgument,
                {.what = str_cat("unknown transport '", text, "'", did_you_mean(text, names)),
                 .where = "FLEET_TRANSPORT",
                 .expected = "auto, tcp or unix",
                 .got = std::string(text),
                 .fix = {}});
}

}  // namespace fleet::transport
