#include "tools/bench_rows.h"

#include <iomanip>
#include <ostream>
#include <sstream>

#include "base/strings.h"
#include "tools/json_fields.h"
#include "tools/text_table.h"

namespace fleet::tools {
namespace {

using Json = nlohmann::json;

std::optional<double> optional_number(const Json& row, const char* key, const std::string& where) {
  if (json_field(row, key, where).is_null()) return std::nullopt;
  return json_number(row, key, where);
}

std::vector<double> placement(const Json& row, const std::string& where) {
  std::vector<double> probes;
  for (const Json& probe : row.value("placement_us", Json::array())) {
    if (!probe.is_number()) bad_json(where, "numbers in \"placement_us\"", probe.dump());
    probes.push_back(probe.get<double>());
  }
  return probes;
}

BenchRow parse_row(const Json& row, const std::string& where) {
  if (!row.is_object()) bad_json(where, "an object for each row", row.dump());
  const Json& peer = json_field(row, "peer", where);
  return {.name = json_text(row, "name", where),
          .value = json_number(row, "value", where),
          .unit = json_text(row, "unit", where),
          .peer = peer.is_null() ? "" : json_text(row, "peer", where),
          .peer_value = optional_number(row, "peer_value", where),
          .ratio = optional_number(row, "ratio", where),
          .target = optional_number(row, "target", where),
          .rounds = json_count(row, "rounds", where),
          .note = row.contains("note") ? json_text(row, "note", where) : "",
          .valid = row.value("valid", Json(true)) == Json(true),
          .placement_us = placement(row, where)};
}

std::string significant(std::optional<double> value) {
  if (!value) return "";
  std::ostringstream out;
  const int decimals = *value >= 1000 ? 0 : *value >= 10 ? 1 : 3;
  out << std::fixed << std::setprecision(decimals) << *value;
  return std::move(out).str();
}

std::string verdict(const BenchRow& row) {
  if (!row.valid) return "invalid";
  const auto met = row.met();
  if (!met) return "";
  return *met ? "met" : "missed";
}

Json number_or_null(std::optional<double> value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace

std::optional<bool> BenchRow::met() const {
  if (!ratio || !target || !valid) return std::nullopt;
  return *ratio >= *target;
}

std::vector<BenchRow> parse_bench_rows(const std::string& text, const std::string& where) {
  const Json rows = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!rows.is_array()) bad_json(where, "a JSON array of rows", "something else");
  std::vector<BenchRow> result;
  for (const Json& row : rows) result.push_back(parse_row(row, where));
  return result;
}

std::vector<BenchRow> read_bench_rows(const std::filesystem::path& file) {
  return parse_bench_rows(read_text(file), file.string());
}

std::string bench_summary_json(std::span<const BenchRow> rows) {
  auto summary = nlohmann::ordered_json::array();
  for (const BenchRow& row : rows) {
    nlohmann::ordered_json object = {{"name", row.name},
                                     {"value", row.value},
                                     {"unit", row.unit},
                                     {"peer", row.peer.empty() ? Json(nullptr) : Json(row.peer)},
                                     {"peer_value", number_or_null(row.peer_value)},
                                     {"ratio", number_or_null(row.ratio)},
                                     {"target", number_or_null(row.target)},
                                     {"rounds", row.rounds},
                                     {"valid", row.valid},
                                     {"note", row.note},
                                     {"placement_us", row.placement_us}};
    summary.push_back(std::move(object));
  }
  return summary.dump(2) + "\n";
}

void print_bench_table(std::ostream& out, std::span<const BenchRow> rows) {
  TextTable table({"row", "value", "unit", "peer", "peer value", "ratio", "target", "",
                   "placement us", "note"});
  for (const BenchRow& row : rows) {
    table.add_row({row.name, significant(row.value), row.unit, row.peer,
                   significant(row.peer_value), significant(row.ratio), significant(row.target),
                   verdict(row), join(row.placement_us, " "), row.note});
  }
  table.print(out);
}

}  // namespace fleet::tools
