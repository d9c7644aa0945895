#include "launch/hosts/messages.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace fleet::launch {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 5> kOrders = {"begin", "save", "end", "over", "ping"};
constexpr std::array<std::string_view, 7> kReports = {"ready",  "line",  "done", "failure",
                                                      "signal", "ended", "pong"};

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The line as an object whose "kind" is one of `kinds`; calls `read` with it and the kind's number.
template <class Message, size_t N, class Read>
std::optional<Message> parse(std::string_view line, const std::array<std::string_view, N>& kinds,
                             const Read& read) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  try {
    const auto found = std::find(kinds.begin(), kinds.end(), json.at("kind").get<std::string>());
    if (found == kinds.end()) return std::nullopt;
    Message message;
    message.kind = static_cast<typename Message::Kind>(found - kinds.begin());
    read(json, message);
    return message;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

template <class Value>
void get(const Json& json, const char* name, Value& value) {
  value = json.value(name, value);
}

}  // namespace

std::string to_line(const Order& order) {
  return text_of({{"kind", kOrders.at(static_cast<size_t>(order.kind))},
                  {"restarts", order.attempt.restarts},
                  {"job_id", order.attempt.job_id},
                  {"secret", order.attempt.secret},
                  {"log_heading", order.attempt.log_heading},
                  {"reason", order.reason},
                  {"exit_code", order.exit_code}});
}

std::string to_line(const Report& report) {
  return text_of({{"kind", kReports.at(static_cast<size_t>(report.kind))},
                  {"workers", report.workers},
                  {"server", report.role == Role::kServer},
                  {"index", report.index},
                  {"line", report.line},
                  {"reason", report.reason},
                  {"why_final", report.why_final},
                  {"sure", report.sure},
                  {"ago_s", std::chrono::duration<double>(report.ago).count()},
                  {"signal", report.signal},
                  {"saved", report.saved}});
}

std::optional<Order> parse_order(std::string_view line) {
  return parse<Order>(line, kOrders, [](const Json& json, Order& order) {
    get(json, "restarts", order.attempt.restarts);
    get(json, "job_id", order.attempt.job_id);
    get(json, "secret", order.attempt.secret);
    get(json, "log_heading", order.attempt.log_heading);
    get(json, "reason", order.reason);
    get(json, "exit_code", order.exit_code);
  });
}

std::optional<Report> parse_report(std::string_view line) {
  return parse<Report>(line, kReports, [](const Json& json, Report& report) {
    get(json, "workers", report.workers);
    report.role = json.value("server", false) ? Role::kServer : Role::kWorker;
    get(json, "index", report.index);
    get(json, "line", report.line);
    get(json, "reason", report.reason);
    get(json, "why_final", report.why_final);
    get(json, "sure", report.sure);
    const std::chrono::duration<double> ago(json.value("ago_s", 0.0));
    report.ago = std::chrono::duration_cast<Duration>(ago);
    get(json, "signal", report.signal);
    get(json, "saved", report.saved);
  });
}

}  // namespace fleet::launch
