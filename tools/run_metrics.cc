#include "tools/run_metrics.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "base/display.h"
#include "base/strings.h"
#include "tools/json_fields.h"
#include "tools/text_table.h"

namespace fleet::tools {
namespace {

using Json = nlohmann::json;

std::vector<LossPoint> curve(const Json& object, const std::string& where) {
  const Json& rows = json_field(object, "loss", where);
  if (!rows.is_array()) bad_json(where, "an array for \"loss\"", rows.type_name());
  std::vector<LossPoint> points;
  for (const Json& row : rows) {
    if (!row.is_array() || row.size() != 2 || !row[0].is_number() || !row[1].is_number()) {
      bad_json(where, "[step, loss] for each point of \"loss\"", row.dump());
    }
    const LossPoint point{row[0].get<double>(), row[1].get<double>()};
    if (!points.empty() && point.step <= points.back().step) {
      bad_json(where, "growing steps in \"loss\"", shortest(point.step));
    }
    points.push_back(point);
  }
  return points;
}

std::optional<double> number_if_there(const Json& object, const char* key,
                                      const std::string& where) {
  if (!object.contains(key)) return std::nullopt;
  return json_number(object, key, where);
}

// A table's number, and what it is called in the file.
struct TableNumber {
  const char* key;
  double TableMetrics::*number;
};
constexpr TableNumber kTableNumbers[] = {
    {"rows", &TableMetrics::rows},         {"bytes", &TableMetrics::bytes},
    {"hits", &TableMetrics::hits},         {"misses", &TableMetrics::misses},
    {"admitted", &TableMetrics::admitted}, {"refused", &TableMetrics::refused},
    {"evicted", &TableMetrics::evicted},
};

std::vector<TableMetrics> tables_of(const Json& object, const std::string& where) {
  std::vector<TableMetrics> tables;
  if (!object.contains("tables")) return tables;
  const Json& entries = object["tables"];
  if (!entries.is_object()) bad_json(where, "an object for \"tables\"", entries.type_name());
  for (const auto& [name, numbers] : entries.items()) {
    if (!numbers.is_object()) bad_json(where, "an object for each table", numbers.type_name());
    TableMetrics& table = tables.emplace_back();
    table.name = name;
    for (const TableNumber& one : kTableNumbers) {
      table.*one.number = json_number(numbers, one.key, where);
    }
  }
  return tables;
}

std::string share(std::optional<double> value) {
  return value ? fixed(*value * 100, 2) + " %" : "";
}

}  // namespace

RunMetrics parse_metrics(const std::string& text, const std::string& where) {
  const Json object = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) bad_json(where, "a JSON object", "something else");
  return {.mode = json_text(object, "mode", where),
          .processes = json_count(object, "processes", where),
          .cores = json_count(object, "cores", where),
          .steps = json_count(object, "steps", where),
          .steps_per_s = json_number(object, "steps_per_s", where),
          .first_loss = json_number(object, "first_loss", where),
          .last_loss = json_number(object, "last_loss", where),
          .accuracy = number_if_there(object, "accuracy", where),
          .auc = number_if_there(object, "auc", where),
          .seconds_to_first_step = json_number(object, "seconds_to_first_step", where),
          .loss = curve(object, where),
          .tables = tables_of(object, where)};
}

RunMetrics read_metrics(const std::filesystem::path& file) {
  return parse_metrics(read_text(file), file.string());
}

std::string summary_json(std::span<const RunMetrics> runs) {
  auto summary = nlohmann::ordered_json::array();
  for (const RunMetrics& run : runs) {
    summary.push_back({{"mode", run.mode},
                       {"processes", run.processes},
                       {"cores", run.cores},
                       {"steps", run.steps},
                       {"steps_per_s", run.steps_per_s},
                       {"first_loss", run.first_loss},
                       {"last_loss", run.last_loss},
                       {"seconds_to_first_step", run.seconds_to_first_step}});
    auto& object = summary.back();
    if (run.accuracy) object["accuracy"] = *run.accuracy;
    if (run.auc) object["auc"] = *run.auc;
    for (const TableMetrics& table : run.tables) {
      for (const TableNumber& one : kTableNumbers) {
        object["tables"][table.name][one.key] = table.*one.number;
      }
    }
  }
  return summary.dump(2) + "\n";
}

std::optional<CurveDifference> largest_difference(std::span<const RunMetrics> runs) {
  std::optional<CurveDifference> largest;
  for (std::size_t a = 0; a < runs.size(); ++a) {
    std::map<double, double> at_step;
    for (const LossPoint& point : runs[a].loss) at_step[point.step] = point.loss;
    for (std::size_t b = a + 1; b < runs.size(); ++b) {
      for (const LossPoint& point : runs[b].loss) {
        const auto same = at_step.find(point.step);
        if (same == at_step.end()) continue;
        const double value = std::abs(same->second - point.loss);
        if (!largest || value > largest->value) {
          largest = CurveDifference{value, point.step, runs[a].mode, runs[b].mode};
        }
      }
    }
  }
  return largest;
}

ThinnedCurve thin(std::span<const LossPoint> points, std::size_t most) {
  ThinnedCurve result;
  result.steps_per_point = std::max<std::size_t>(1, (points.size() + most - 1) / most);
  for (std::size_t begin = 0; begin < points.size(); begin += result.steps_per_point) {
    const std::size_t size = std::min(result.steps_per_point, points.size() - begin);
    LossPoint mean;
    for (const LossPoint& point : points.subspan(begin, size)) {
      mean.step += point.step / static_cast<double>(size);
      mean.loss += point.loss / static_cast<double>(size);
    }
    result.points.push_back(mean);
  }
  return result;
}

bool shares_cores(const RunMetrics& run) {
  return run.processes > run.cores;
}

std::string mode_label(const RunMetrics& run) {
  std::string label = run.mode;
  std::replace(label.begin(), label.end(), '_', ' ');
  return label;
}

std::string score_of(const RunMetrics& run) {
  if (run.accuracy) return str_cat(", ", fixed(*run.accuracy * 100, 1), " % test accuracy");
  if (run.auc) return str_cat(", test AUC ", fixed(*run.auc, 4));
  return "";
}

void print_runs_table(std::ostream& out, std::span<const RunMetrics> runs) {
  const auto any = [runs](const auto& score) {
    return std::any_of(runs.begin(), runs.end(),
                       [&](const RunMetrics& run) { return (run.*score).has_value(); });
  };
  const bool accuracy = any(&RunMetrics::accuracy);
  const bool auc = any(&RunMetrics::auc);
  std::vector<std::string> titles = {"mode",    "processes",  "cores",
                                     "steps/s", "first loss", "last loss"};
  if (accuracy) titles.emplace_back("test accuracy");
  if (auc) titles.emplace_back("test AUC");
  TextTable table(titles);
  for (const RunMetrics& run : runs) {
    std::vector<std::string> row = {mode_label(run),          str_cat(run.processes),
                                    str_cat(run.cores),       fixed(run.steps_per_s, 0),
                                    fixed(run.first_loss, 6), fixed(run.last_loss, 6)};
    if (accuracy) row.push_back(share(run.accuracy));
    if (auc) row.push_back(run.auc ? fixed(*run.auc, 6) : "");
    table.add_row(row);
  }
  table.print(out);
}

void print_growing_tables(std::ostream& out, std::span<const RunMetrics> runs) {
  const bool any = std::any_of(runs.begin(), runs.end(),
                               [](const RunMetrics& run) { return !run.tables.empty(); });
  if (!any) return;
  TextTable table(
      {"growing table", "mode", "rows", "MB", "hits", "misses", "admitted", "refused", "evicted"});
  for (const RunMetrics& run : runs) {
    for (const TableMetrics& one : run.tables) {
      table.add_row({one.name, mode_label(run), fixed(one.rows, 0), fixed(1e-6 * one.bytes, 1),
                     fixed(one.hits, 0), fixed(one.misses, 0), fixed(one.admitted, 0),
                     fixed(one.refused, 0), fixed(one.evicted, 0)});
    }
  }
  out << "\n";
  table.print(out);
}

}  // namespace fleet::tools
