#include "transport/link/link.h"

#include <array>
#include <unistd.h>

#include "base/strings.h"

namespace fleet::transport {
namespace {

constexpr std::string_view kRefused = "connection refused";

}  // namespace

Result<Endpoint> Endpoint::parse(std::string_view text) {
  const auto wrong = [text](std::string got) {
    return Status(ErrorCode::kInvalidArgument, {.what = "an endpoint cannot be read",
                                                .where = std::string(text),
                                                .expected = "host:port, such as 127.0.0.1:6174",
                                                .got = std::move(got),
                                                .fix = {}});
  };
  const std::string_view trimmed = trim(text);
  const size_t colon = trimmed.rfind(':');
  if (colon == std::string_view::npos) return wrong("no port");
  std::string_view host = trimmed.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return wrong("an IPv6 address without brackets");
  }
  if (host.empty()) return wrong("no host");
  const auto port = parse_int(trimmed.substr(colon + 1));
  if (!port || *port < 0 || *port > 65535) {
    return wrong(str_cat("port '", trimmed.substr(colon + 1), "'"));
  }
  return Endpoint{std::string(host), static_cast<uint16_t>(*port)};
}

std::string Endpoint::to_string() const {
  return host.find(':') == std::string::npos ? str_cat(host, ':', port)
                                             : str_cat('[', host, "]:", port);
}

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
