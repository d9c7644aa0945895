#include "base/net/endpoint.h"

#include <arpa/inet.h>
#include <utility>

#include "base/strings.h"

namespace fleet {
namespace {

constexpr std::string_view kNotInNames = " \t\r\n,;/[]@";

bool in_brackets(std::string_view host) {
  return host.size() >= 2 && host.front() == '[' && host.back() == ']';
}

// "fe80::1%eth0" is one, too.
bool is_ipv6(std::string_view host) {
  in6_addr ignored{};
  return inet_pton(AF_INET6, std::string(host.substr(0, host.find('%'))).c_str(), &ignored) == 1;
}

// What is wrong with the host as it is written; empty when nothing is.
std::string fault_of_host(std::string_view host) {
  if (host.empty()) return "no host";
  if (in_brackets(host)) {
    const std::string_view inside = host.substr(1, host.size() - 2);
    return is_ipv6(inside) ? "" : str_cat('\'', inside, "' in brackets, which is no IPv6 address");
  }
  if (host.find(':') != std::string_view::npos) return "an IPv6 address without brackets";
  if (host.find_first_of(kNotInNames) != std::string_view::npos) {
    return str_cat("host '", host, '\'');
  }
  return "";
}

}  // namespace

Result<Endpoint> Endpoint::parse(std::string_view text, std::string_view where, ErrorCode code) {
  const std::string_view trimmed = trim(text);
  const auto wrong = [&](std::string_view fault) {
    return Status(code, {.what = "an endpoint cannot be read",
                         .where = std::string(where),
                         .expected = "host:port with a port from 1 to 65535, such as "
                                     "127.0.0.1:6170 or [::1]:6170",
                         .got = str_cat('\'', trimmed, "': ", fault),
                         .fix = str_cat("correct this entry of ", where)});
  };
  const size_t colon = trimmed.rfind(':');
  // The last colon of "[::1]" is not the one before a port.
  if (colon == std::string_view::npos || trimmed.ends_with(']')) return wrong("no port");
  const std::string_view host = trimmed.substr(0, colon);
  if (const std::string fault = fault_of_host(host); !fault.empty()) return wrong(fault);
  const auto port = parse_int(trimmed.substr(colon + 1));
  if (!port || *port < 1 || *port > 65535) {
    return wrong(str_cat("port '", trimmed.substr(colon + 1), '\''));
  }
  return Endpoint{bare_host(host), static_cast<uint16_t>(*port)};
}

std::string Endpoint::to_string() const {
  return host.find(':') == std::string::npos ? str_cat(host, ':', port)
                                             : str_cat('[', host, "]:", port);
}

std::vector<std::string> to_strings(const std::vector<Endpoint>& endpoints) {
  std::vector<std::string> texts;
  texts.reserve(endpoints.size());
  for (const Endpoint& endpoint : endpoints) texts.push_back(endpoint.to_string());
  return texts;
}

std::string bare_host(std::string_view text) {
  return std::string(in_brackets(text) ? text.substr(1, text.size() - 2) : text);
}

}  // namespace fleet
