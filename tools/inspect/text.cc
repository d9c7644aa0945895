#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "base/display.h"
#include "base/strings.h"
#include "tools/inspect/render.h"
#include "tools/text_table.h"

namespace fleet::inspect {
namespace {

constexpr const char* kTitle = "1";
constexpr const char* kWarning = "33";
constexpr const char* kGood = "32";

std::string ink(const TextStyle& style, const char* code, const std::string& text) {
  return style.colour ? str_cat("\x1b[", code, "m", text, "\x1b[0m") : text;
}

std::string size_text(uint64_t bytes) {
  return bytes_text(static_cast<double>(bytes));
}

std::string age_text(double seconds) {
  constexpr std::pair<double, const char*> kUnits[] = {{86400, " d"}, {3600, " h"}, {60, " min"}};
  for (const auto& [unit, name] : kUnits) {
    if (seconds >= 2 * unit) return fixed(std::floor(seconds / unit), 0) + name;
  }
  return fixed(std::floor(seconds), 0) + " s";
}

std::string counted(uint64_t number, const std::string& noun) {
  return str_cat(number, " ", noun, number == 1 ? "" : "s");
}

std::string yes_or_no(bool yes) {
  return yes ? "yes" : "no";
}

std::string type_of(const TensorInfo& tensor) {
  return str_cat(dtype_name(tensor.tensor.dtype), tensor.tensor.shape);
}

// At least one.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines = split(text, '\n');
  if (lines.size() > 1 && lines.back().empty()) lines.pop_back();
  if (lines.empty()) lines.emplace_back();
  return lines;
}

void draw_fields(std::ostream& out, const InfoFields& fields) {
  size_t width = 0;
  for (const auto& [name, value] : fields) width = std::max(width, printable(name).size());
  for (const auto& [name, value] : fields) {
    std::string shown = printable(name);
    // A strategy has many lines.
    for (const std::string& line : lines_of(value)) {
      out << "  " << shown << std::string(width - shown.size() + 3, ' ') << printable(line) << "\n";
      shown.clear();
    }
  }
}

// Every entry of an error in a line of its own.
void draw_damage(std::ostream& out, const Status& damage, const TextStyle& style) {
  const ErrorText& text = damage.text();
  out << "  " << ink(style, kWarning, printable(text.what)) << "\n";
  InfoFields fields;
  const std::pair<const char*, const std::string*> parts[] = {
      {"  in", &text.where}, {"  expected", &text.expected}, {"  found", &text.got}};
  for (const auto& [name, part] : parts) {
    if (!part->empty()) fields.emplace_back(name, *part);
  }
  draw_fields(out, fields);
}

void add_values(const ValueSummary& values, std::vector<std::string>& row) {
  row.insert(row.end(), {str_cat(values.norm), str_cat(values.least), str_cat(values.most),
                         str_cat(values.nonfinite)});
}

void draw_tensors(std::ostream& out, const std::vector<TensorInfo>& tensors) {
  const bool values = !tensors.empty() && tensors.front().values.has_value();
  std::vector<std::string> header = {"tensor", "type", "shape", "bytes", "file"};
  if (values) header.insert(header.end(), {"L2 norm", "min", "max", "not finite"});
  tools::TextTable table(header);
  for (const TensorInfo& info : tensors) {
    std::vector<std::string> row = {
        printable(info.name), std::string(dtype_name(info.tensor.dtype)),
        info.tensor.shape.to_string(), size_text(info.bytes), printable(info.tensor.files())};
    if (info.values) add_values(*info.values, row);
    table.add_row(std::move(row));
  }
  table.print(out);
}

void draw_tables(std::ostream& out, const std::vector<TableInfo>& tables) {
  const bool values = tables.front().values.has_value();
  std::vector<std::string> header = {"growing table", "rows",  "width", "states",
                                     "counted ids",   "bytes", "files"};
  if (values) header.insert(header.end(), {"L2 norm", "min", "max", "not finite"});
  tools::TextTable table(header);
  for (const TableInfo& info : tables) {
    std::vector<std::string> row = {printable(info.name),
                                    str_cat(info.rows),
                                    str_cat(info.width),
                                    printable(info.states.empty() ? "-" : join(info.states, ", ")),
                                    str_cat(info.counted),
                                    size_text(info.bytes),
                                    printable(join(info.files, ", "))};
    if (info.values) add_values(*info.values, row);
    table.add_row(std::move(row));
  }
  table.print(out);
}

bool has_lines(const std::optional<std::string>& text) {
  return text && lines_of(*text).size() > 1;
}

// Lines of a text that another one lacks.
void draw_lines(std::ostream& out, const char* side, const std::optional<std::string>& text,
                const std::optional<std::string>& other) {
  const auto others = lines_of(other.value_or(""));
  for (const std::string& line : lines_of(text.value_or(""))) {
    const bool both = std::find(others.begin(), others.end(), line) != others.end();
    if (!both) out << "  " << side << "  " << printable(line) << "\n";
  }
}

void draw_info(std::ostream& out, const std::vector<InfoDifference>& differences,
               const TextStyle& style) {
  const auto shown = [](const std::optional<std::string>& text) {
    return text ? printable(lines_of(*text).front()) : "-";
  };
  tools::TextTable table({"info", "A", "B"});
  std::ostringstream below;
  size_t rows = 0;
  for (const InfoDifference& difference : differences) {
    if (!has_lines(difference.a) && !has_lines(difference.b)) {
      table.add_row({printable(difference.field), shown(difference.a), shown(difference.b)});
      ++rows;
      continue;
    }
    below << "\n" << ink(style, kTitle, printable(difference.field)) << ", lines that one lacks\n";
    draw_lines(below, "A", difference.a, difference.b);
    draw_lines(below, "B", difference.b, difference.a);
  }
  if (rows > 0) {
    out << "\n";
    table.print(out);
  }
  out << std::move(below).str();
}

void draw_comparison(std::ostream& out, const Comparison& comparison, const TextStyle& style) {
  tools::TextTable others({"tensor", "in A", "in B"});
  tools::TextTable values(
      {"tensor", "type", "elements that differ", "of", "largest difference", "relative"});
  size_t same_type = 0;
  for (const TensorDifference& tensor : comparison.tensors) {
    if (!tensor.values) {
      others.add_row({printable(tensor.name), tensor.a ? type_of(*tensor.a) : "-",
                      tensor.b ? type_of(*tensor.b) : "-"});
      continue;
    }
    ++same_type;
    values.add_row({printable(tensor.name), type_of(*tensor.a), str_cat(tensor.values->elements),
                    str_cat(tensor.a->tensor.shape.numel()), str_cat(tensor.values->absolute),
                    str_cat(tensor.values->relative)});
  }
  if (same_type < comparison.tensors.size()) {
    out << "\n"
        << ink(style, kTitle, "Tensors that one lacks, or of other types or shapes") << "\n";
    others.print(out);
  }
  if (same_type > 0) {
    out << "\n" << ink(style, kTitle, "Tensors of other values") << "\n";
    values.print(out);
  }
}

// "width 2, moment 1".
std::string form_of(const TableInfo& table) {
  std::vector<std::string> parts = {str_cat("width ", table.width)};
  for (const std::string& state : table.states) parts.push_back(printable(state));
  return join(parts, ", ");
}

void draw_tables(std::ostream& out, const std::vector<TableDifference>& tables,
                 const TextStyle& style) {
  tools::TextTable rows({"growing table", "rows in A", "in B", "only in A", "only in B", "others"});
  tools::TextTable forms({"growing table", "A", "B"});
  size_t other_forms = 0;
  for (const TableDifference& table : tables) {
    if (table.a && table.b && !table.rows) {
      ++other_forms;
      forms.add_row({printable(table.name), form_of(*table.a), form_of(*table.b)});
    }
    const auto rows_in = [](const std::optional<TableInfo>& info) {
      return info ? str_cat(info->rows) : std::string("-");
    };
    const auto number = [&table](uint64_t RowDifference::*count) {
      return table.rows ? str_cat((*table.rows).*count) : std::string("-");
    };
    rows.add_row({printable(table.name), rows_in(table.a), rows_in(table.b),
                  number(&RowDifference::only_a), number(&RowDifference::only_b),
                  number(&RowDifference::others)});
  }
  out << "\n"
      << ink(style, kTitle,
             "Growing tables that one lacks, of another width or other states, or of other rows")
      << "\n";
  rows.print(out);
  if (other_forms == 0) return;
  out << "\n" << ink(style, kTitle, "Growing tables of other widths or states") << "\n";
  forms.print(out);
}

// "3 tensors are equal, 1 is not."
std::string equal_text(size_t equal, size_t others, const char* noun) {
  return str_cat(counted(equal, noun), equal == 1 ? " is" : " are", " equal, ", others,
                 others == 1 ? " is" : " are", " not.\n");
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool control = byte < 0x20 || byte == 0x7F;
    shown += control ? "\\x" + hex_digits(byte).substr(14) : std::string(1, c);
  }
  return shown;
}

std::string draw_text(const Listing& listing, const TextStyle& style) {
  std::ostringstream out;
  const size_t count = listing.checkpoints.size();
  out << ink(style, kTitle, printable(listing.folder.string())) << ": "
      << counted(count, "checkpoint") << "\n";
  tools::TextTable table({"checkpoint", "step", "mode", "workers x servers", "shards", "tensors",
                          "bytes", "finite", "age"});
  for (const Checkpoint& one : listing.checkpoints) {
    const std::string name = printable(one.folder.filename().string());
    const auto& info = one.info;
    if (!one.status.ok()) {
      table.add_row({name, str_cat(info.step), "damaged", "", "", "", "", "", age_text(one.age_s)});
      continue;
    }
    table.add_row({name, str_cat(info.step), printable(info.mode),
                   str_cat(info.workers, " x ", info.servers), str_cat(info.logical_shards),
                   str_cat(one.tensors.size()), size_text(one.bytes), yes_or_no(one.finite),
                   age_text(one.age_s)});
  }
  if (count > 0) {
    out << "\n";
    table.print(out);
  }
  for (const Checkpoint& one : listing.checkpoints) {
    if (one.status.ok()) continue;
    out << "\n" << printable(one.folder.filename().string()) << " is damaged:\n";
    draw_damage(out, one.status, style);
  }
  if (!listing.unfinished.empty()) out << "\nUnfinished:\n";
  for (const std::string& name : listing.unfinished) out << "  " << printable(name) << "\n";
  return std::move(out).str();
}

std::string draw_text(const Checkpoint& checkpoint, const TextStyle& style) {
  std::ostringstream out;
  std::set<std::string> files;
  for (const TensorInfo& tensor : checkpoint.tensors) {
    for (const auto& piece : tensor.tensor.pieces) files.insert(piece.file);
  }
  InfoFields fields = fields_of(checkpoint.info);
  fields.emplace_back("bytes", size_text(checkpoint.bytes));
  fields.emplace_back("finite", yes_or_no(checkpoint.finite));
  fields.emplace_back("age", age_text(checkpoint.age_s));
  out << ink(style, kTitle, printable(checkpoint.folder.string())) << "\n\n";
  draw_fields(out, fields);
  out << "\n"
      << ink(style, kTitle, counted(checkpoint.tensors.size(), "tensor")) << " in "
      << counted(files.size(), "file") << "\n";
  if (!checkpoint.tensors.empty()) draw_tensors(out, checkpoint.tensors);
  if (!checkpoint.tables.empty()) {
    out << "\n" << ink(style, kTitle, counted(checkpoint.tables.size(), "growing table")) << "\n";
    draw_tables(out, checkpoint.tables);
  }
  return std::move(out).str();
}

std::string draw_text(const std::vector<Verified>& checkpoints, const TextStyle& style) {
  std::ostringstream out;
  for (const auto& [checkpoint, damage] : checkpoints) {
    out << ink(style, kTitle, printable(checkpoint.folder.string())) << ": ";
    if (damage.empty()) {
      out << ink(style, kGood, "whole") << ", " << counted(checkpoint.tensors.size(), "tensor")
          << ", " << size_text(checkpoint.bytes) << "\n";
      continue;
    }
    out << ink(style, kWarning, "damaged") << "\n";
    for (const Status& one : damage) draw_damage(out, one, style);
  }
  return std::move(out).str();
}

std::string draw_text(const Comparison& comparison, const TextStyle& style) {
  std::ostringstream out;
  out << "A  " << ink(style, kTitle, printable(comparison.a.string())) << "\nB  "
      << ink(style, kTitle, printable(comparison.b.string())) << "\n";
  draw_info(out, comparison.info, style);
  draw_comparison(out, comparison, style);
  if (!comparison.tables.empty()) draw_tables(out, comparison.tables, style);
  out << "\n" << equal_text(comparison.equal, comparison.tensors.size(), "tensor");
  if (comparison.equal_tables + comparison.tables.size() > 0) {
    out << equal_text(comparison.equal_tables, comparison.tables.size(), "growing table");
  }
  return std::move(out).str();
}

}  // namespace fleet::inspect
