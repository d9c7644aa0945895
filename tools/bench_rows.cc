#include "tools/bench_rows.h"

#include <algorithm>
#include <array>
#include <iomanip>
#include <ostream>
#include <sstream>

#include "base/strings.h"
#include "tools/json_fields.h"
#include "tools/text_table.h"

namespace fleet::tools {
namespace {

using Json = nlohmann::json;

constexpr std::array kVerdicts = {BenchVerdict::kMet,    BenchVerdict::kReported,
                                  BenchVerdict::kMissed, BenchVerdict::kInvalid,
                                  BenchVerdict::kFailed, BenchVerdict::kSkipped};

// A field that must be there and may be null.
std::optional<double> nullable_number(const Json& row, const char* key, const std::string& where) {
  if (json_field(row, key, where).is_null()) return std::nullopt;
  return json_number(row, key, where);
}
// Fields that rows of other programs may leave out.
std::optional<double> optional_number(const Json& row, const char* key, const std::string& where) {
  return row.contains(key) ? nullable_number(row, key, where) : std::nullopt;
}
std::string optional_text(const Json& row, const char* key, const std::string& where) {
  return row.contains(key) ? json_text(row, key, where) : "";
}

std::vector<double> placement(const Json& row, const std::string& where) {
  std::vector<double> probes;
  for (const Json& probe : row.value("placement_us", Json::array())) {
    if (!probe.is_number()) bad_json(where, "numbers in \"placement_us\"", probe.dump());
    probes.push_back(probe.get<double>());
  }
  return probes;
}

std::vector<std::string> reasons(const Json& row, const std::string& where) {
  std::vector<std::string> texts;
  for (const Json& reason : row.value("invalid", Json::array())) {
    if (!reason.is_string()) bad_json(where, "texts in \"invalid\"", reason.dump());
    texts.push_back(reason.get<std::string>());
  }
  return texts;
}

std::vector<std::pair<std::string, double>> others(const Json& row, const std::string& where) {
  std::vector<std::pair<std::string, double>> figures;
  const Json object = row.value("others", Json::object());
  for (const auto& [who, figure] : object.items()) {
    if (!figure.is_number()) bad_json(where, "numbers in \"others\"", figure.dump());
    figures.emplace_back(who, figure.get<double>());
  }
  return figures;
}

Json object_of(const std::vector<std::pair<std::string, double>>& figures) {
  Json object = Json::object();
  for (const auto& [who, figure] : figures) object[who] = figure;
  return object;
}

constexpr std::array<const char*, 4> kPeerKinds = {"system", "limit", "fixed", "reference"};

BenchPeer peer_kind(const Json& row, const std::string& where) {
  const std::string text = optional_text(row, "peer_kind", where);
  if (text.empty()) return BenchPeer::kSystem;
  const auto* const found = std::find(kPeerKinds.begin(), kPeerKinds.end(), text);
  if (found == kPeerKinds.end()) bad_json(where, join(kPeerKinds, ", "), text);
  return static_cast<BenchPeer>(found - kPeerKinds.begin());
}

BenchRow parse_row(const Json& row, const std::string& where) {
  if (!row.is_object()) bad_json(where, "an object for each row", row.dump());
  const Json& peer = json_field(row, "peer", where);
  return {.name = json_text(row, "name", where),
          .value = json_number(row, "value", where),
          .unit = json_text(row, "unit", where),
          .lower_is_better = optional_text(row, "better", where) == "lower",
          .peer = peer.is_null() ? "" : json_text(row, "peer", where),
          .peer_kind = peer_kind(row, where),
          .peer_value = nullable_number(row, "peer_value", where),
          .ratio = nullable_number(row, "ratio", where),
          .target = nullable_number(row, "target", where),
          .ratio_min = optional_number(row, "ratio_min", where),
          .ratio_max = optional_number(row, "ratio_max", where),
          .bound = optional_number(row, "bound", where),
          .rounds = json_count(row, "rounds", where),
          .note = optional_text(row, "note", where),
          .invalid = reasons(row, where),
          .error = optional_text(row, "error", where),
          .skipped = optional_text(row, "skipped", where),
          .others = others(row, where),
          .seconds = optional_number(row, "seconds", where).value_or(0),
          .placement_us = placement(row, where),
          .machine = optional_text(row, "machine", where),
          .date = optional_text(row, "date", where)};
}

Json number_or_null(std::optional<double> value) {
  return value ? Json(*value) : Json(nullptr);
}

nlohmann::ordered_json to_json(const BenchRow& row) {
  return {{"name", row.name},
          {"value", row.value},
          {"unit", row.unit},
          {"better", row.lower_is_better ? "lower" : "higher"},
          {"peer", row.peer.empty() ? Json(nullptr) : Json(row.peer)},
          {"peer_kind", kPeerKinds.at(static_cast<size_t>(row.peer_kind))},
          {"peer_value", number_or_null(row.peer_value)},
          {"ratio", number_or_null(row.ratio)},
          {"target", number_or_null(row.target)},
          {"ratio_min", number_or_null(row.ratio_min)},
          {"ratio_max", number_or_null(row.ratio_max)},
          {"bound", number_or_null(row.bound)},
          {"rounds", row.rounds},
          {"verdict", name_of(row.verdict())},
          {"valid", row.invalid.empty()},
          {"invalid", row.invalid},
          {"error", row.error},
          {"skipped", row.skipped},
          {"others", object_of(row.others)},
          {"seconds", row.seconds},
          {"note", row.note},
          {"placement_us", row.placement_us},
          {"machine", row.machine},
          {"date", row.date}};
}

// Why a row's verdict is what it is, and then what else it has to say.
std::string remarks(const BenchRow& row) {
  std::vector<std::string> parts;
  if (!row.error.empty()) parts.push_back(row.error);
  if (!row.skipped.empty()) parts.push_back(row.skipped);
  parts.insert(parts.end(), row.invalid.begin(), row.invalid.end());
  if (row.bound) parts.push_back(str_cat("bound ", significant(row.bound), " ", row.unit));
  if (!row.note.empty()) parts.push_back(row.note);
  return one_line(join(parts, "; "));
}

std::string spread(const BenchRow& row) {
  if (!row.ratio_min || !row.ratio_max) return "";
  return str_cat(significant(row.ratio_min), " to ", significant(row.ratio_max));
}

}  // namespace

BenchVerdict BenchRow::verdict() const {
  if (!error.empty()) return BenchVerdict::kFailed;
  if (!skipped.empty()) return BenchVerdict::kSkipped;
  if (!invalid.empty()) return BenchVerdict::kInvalid;
  const bool short_of_target = target && ratio && *ratio < *target;
  const bool beyond_bound = bound && (lower_is_better ? value > *bound : value < *bound);
  if (short_of_target || beyond_bound) return BenchVerdict::kMissed;
  return (target && ratio) || bound ? BenchVerdict::kMet : BenchVerdict::kReported;
}

const char* name_of(BenchVerdict verdict) {
  switch (verdict) {
    case BenchVerdict::kReported:
      return "reported";
    case BenchVerdict::kMet:
      return "met";
    case BenchVerdict::kMissed:
      return "missed";
    case BenchVerdict::kInvalid:
      return "invalid";
    case BenchVerdict::kFailed:
      return "failed";
    case BenchVerdict::kSkipped:
      return "skipped";
  }
  return "";
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

std::string bench_rows_json(std::span<const BenchRow> rows) {
  auto array = nlohmann::ordered_json::array();
  for (const BenchRow& row : rows) array.push_back(to_json(row));
  return array.dump(2) + "\n";
}

void print_bench_table(std::ostream& out, std::span<const BenchRow> rows) {
  TextTable table({"row", "value", "unit", "peer", "peer value", "ratio", "min to max", "target",
                   "", "placement us", "note"});
  for (const BenchRow& row : rows) {
    table.add_row({row.name, significant(row.value), row.unit, row.peer,
                   significant(row.peer_value), significant(row.ratio), spread(row),
                   significant(row.target), name_of(row.verdict()), join(row.placement_us, " "),
                   remarks(row)});
  }
  table.print(out);
}

std::string bench_last_line(std::span<const BenchRow> rows) {
  std::vector<std::string> parts;
  for (const BenchVerdict verdict : kVerdicts) {
    std::vector<std::string> names;
    for (const BenchRow& row : rows) {
      if (row.verdict() == verdict) names.push_back(row.name);
    }
    if (names.empty()) continue;
    const bool good = verdict == BenchVerdict::kMet || verdict == BenchVerdict::kReported;
    parts.push_back(str_cat(names.size(), " ", name_of(verdict),
                            good ? "" : str_cat(" (", join(names, ", "), ")")));
  }
  return str_cat(rows.size(), rows.size() == 1 ? " row" : " rows", parts.empty() ? "" : ": ",
                 join(parts, ", "));
}

bool has_bench_problem(std::span<const BenchRow> rows) {
  return std::any_of(rows.begin(), rows.end(), [](const BenchRow& row) {
    const BenchVerdict verdict = row.verdict();
    return verdict == BenchVerdict::kMissed || verdict == BenchVerdict::kInvalid ||
           verdict == BenchVerdict::kFailed;
  });
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string significant(std::optional<double> value) {
  if (!value) return "";
  std::ostringstream out;
  const int decimals = *value >= 1000 ? 0 : *value >= 10 ? 1 : 3;
  out << std::fixed << std::setprecision(decimals) << *value;
  return std::move(out).str();
}

}  // namespace fleet::tools
