#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "base/display.h"
#include "base/strings.h"
#include "tools/explain/op_places.h"
#include "tools/explain/render.h"
#include "tools/explain/side_by_side.h"

namespace fleet::explain {
namespace {

constexpr int kLeastColumns = 80;
constexpr int kBar = 20;

// Characters, not bytes, of UTF-8.
size_t width_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

std::string cut(const std::string& text, size_t width) {
  if (width_of(text) <= width) return text;
  std::string kept;
  size_t count = 0;
  for (const char c : text) {
    const bool begins = (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
    if (begins && count++ == width - 1) break;
    kept += c;
  }
  return kept + "…";
}

std::string padded(const std::string& text, size_t width) {
  const size_t have = width_of(text);
  return have >= width ? text : text + std::string(width - have, ' ');
}

std::vector<std::string> wrapped(const std::string& text, size_t width) {
  std::vector<std::string> lines(1);
  for (const std::string& word : split(text, ' ')) {
    if (!lines.back().empty() && width_of(lines.back()) + 1 + width_of(word) > width) {
      lines.emplace_back();
    }
    if (!lines.back().empty()) lines.back() += ' ';
    lines.back() += word;
  }
  return lines;
}

std::string dims(const std::vector<int64_t>& shape) {
  return str_cat("[", join(shape, ", "), "]");
}

class TextDrawing {
 public:
  TextDrawing(const Explanation& explanation, const TextOptions& options)
      : e_(explanation), options_(options) {
    width_ = static_cast<size_t>(std::max(options.columns, kLeastColumns));
  }

  std::string draw() {
    draw_header();
    draw_warnings();
    draw_traffic();
    draw_placement();
    draw_programs("Programs of every step", e_.main);
    draw_programs("Programs that run once", e_.startup);
    for (const ProgramPlaces& places : e_.places) draw_places(places);
    draw_reasons();
    draw_passes();
    std::string text = std::move(out_).str();
    return options_.unicode ? text : plain(std::move(text));
  }

 private:
  enum class Ink { kTitle, kSoft, kAdded, kMoved, kGone, kWarning };

  std::string ink(Ink kind, const std::string& text) const {
    if (!options_.colour || text.empty()) return text;
    static const std::map<Ink, const char*> kCodes = {{Ink::kTitle, "1"},  {Ink::kSoft, "2"},
                                                      {Ink::kAdded, "32"}, {Ink::kMoved, "36"},
                                                      {Ink::kGone, "2;9"}, {Ink::kWarning, "33"}};
    return str_cat("\x1b[", kCodes.at(kind), "m", text, "\x1b[0m");
  }

  static std::string plain(std::string text) {
    const std::pair<const char*, const char*> signs[] = {
        {"→", "->"}, {"←", "<-"}, {"…", "..."}, {"█", "#"}, {"─", "-"}, {"│", "|"}, {"×", "x"}};
    for (const auto& [from, to] : signs) {
      for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + 1)) {
        text.replace(at, std::string_view(from).size(), to);
      }
    }
    return text;
  }

  void heading(const std::string& text) {
    std::string rule;
    for (size_t i = width_of(text) + 1; i < width_; ++i) rule += "─";
    out_ << "\n" << ink(Ink::kTitle, text) << " " << ink(Ink::kSoft, rule) << "\n";
  }

  void draw_header() {
    out_ << ink(Ink::kTitle, e_.title) << ": " << e_.mode << ", "
         << counted(static_cast<size_t>(e_.trainers), e_.servers.empty() ? "rank" : "trainer");
    if (!e_.servers.empty()) out_ << ", " << counted(e_.servers.size(), "server");
    if (e_.shards != e_.trainers) out_ << ", " << counted(static_cast<size_t>(e_.shards), "shard");
    out_ << "\n";
    for (const std::string& line : wrapped(e_.sentence, width_)) {
      out_ << ink(Ink::kSoft, line) << "\n";
    }
    out_ << "  parameters  " << e_.parameter_elements << " elements, "
         << bytes_text(static_cast<double>(e_.parameter_bytes)) << "\n";
    for (const auto& [name, value] : e_.options) {
      out_ << "  " << name << " = " << value << "\n";
    }
    if (e_.confirmed.empty()) return;
    for (const std::string& line :
         wrapped("The job ran these very programs: " + join(e_.confirmed, ", ") + ".", width_)) {
      out_ << ink(Ink::kMoved, line) << "\n";
    }
  }

  static std::string counted(size_t number, const std::string& noun) {
    return str_cat(number, " ", noun, number == 1 ? "" : "s");
  }

  void draw_warnings() {
    if (e_.warnings.empty()) return;
    heading("Warnings");
    for (const Warning& warning : e_.warnings) {
      const auto what = wrapped(warning.what, width_ - 4);
      for (size_t i = 0; i < what.size(); ++i) {
        out_ << "  " << ink(Ink::kWarning, str_cat(i == 0 ? "! " : "  ", what[i])) << "\n";
      }
      for (const std::string& line : wrapped(warning.advice, width_ - 4)) {
        out_ << "    " << ink(Ink::kSoft, line) << "\n";
      }
    }
  }

  // Cells of rows in columns; the first is aligned left, the others right. `ends` follow the rows,
  // if there is room for all of them.
  void draw_table(const std::vector<std::vector<std::string>>& rows,
                  const std::vector<std::string>& ends = {}, Ink end_ink = Ink::kSoft) {
    std::vector<size_t> widths(rows.front().size(), 0);
    for (const auto& row : rows) {
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
    }
    size_t used = 2 + widths[0];
    for (size_t i = 1; i < widths.size(); ++i) used += 3 + widths[i];
    const bool with_ends =
        !ends.empty() && std::all_of(ends.begin(), ends.end(), [&](const std::string& end) {
          return used + 3 + width_of(end) <= width_;
        });
    for (size_t r = 0; r < rows.size(); ++r) {
      std::string line = "  " + padded(rows[r][0], widths[0]);
      for (size_t i = 1; i < rows[r].size(); ++i) {
        line += "   " + std::string(widths[i] - width_of(rows[r][i]), ' ') + rows[r][i];
      }
      out_ << (r == 0 ? ink(Ink::kSoft, line) : line);
      if (with_ends && r > 0) out_ << "   " << ink(end_ink, ends[r - 1]);
      out_ << "\n";
    }
  }

  static std::string bar(double part) {
    std::string text;
    const auto cells = std::lround(part * kBar);
    for (auto i = cells; i > 0; --i) text += "█";
    return text;
  }

  void draw_traffic() {
    heading("What travels in a step");
    const Traffic& traffic = e_.traffic;
    const std::string about = traffic.at_most ? "at most " : traffic.estimated ? "about " : "";
    out_ << "  " << e_.main.trainer.process << " sends " << about << bytes_text(traffic.trainer_out)
         << " and receives " << about << bytes_text(traffic.trainer_in) << "; all processes send "
         << about << bytes_text(traffic.total) << ".\n";
    for (const std::string& line : wrapped(traffic.note, width_ - 2)) {
      if (!line.empty()) out_ << "  " << ink(Ink::kSoft, line) << "\n";
    }
    if (e_.servers.empty()) return;
    const bool exchanges = exchanges_numbers(e_);
    std::vector<std::vector<std::string>> rows = {
        {"server", "slices", "parameters", "state", "share", "in", "out"}};
    if (exchanges) rows[0].push_back("to servers");
    std::vector<std::string> bars;
    double most = 0;
    for (const ServerLoad& server : e_.servers) most = std::max(most, server.share);
    const size_t shown = std::min(e_.servers.size(), options_.most_rows);
    for (size_t i = 0; i < shown; ++i) {
      const ServerLoad& server = e_.servers[i];
      rows.push_back({str_cat(i, "  ", server.endpoint), str_cat(server.slices),
                      bytes_text(static_cast<double>(server.parameter_bytes)),
                      bytes_text(static_cast<double>(server.state_bytes)),
                      fixed(100 * server.share, 1) + " %", bytes_text(server.bytes_in),
                      bytes_text(server.bytes_out)});
      if (exchanges) rows.back().push_back(bytes_text(server.exchange_out));
      bars.push_back(bar(most == 0 ? 0 : server.share / most));
    }
    draw_table(rows, bars, Ink::kMoved);
    draw_rest(e_.servers.size(), shown, "servers");
    out_ << "  imbalance " << fixed(e_.imbalance, 2) << " ×  "
         << ink(Ink::kSoft, "the largest server's parameters by the mean") << "\n";
  }

  void draw_rest(size_t all, size_t shown, const char* what) {
    if (all > shown) {
      out_ << "  " << ink(Ink::kSoft, str_cat("… ", all - shown, " more ", what)) << "\n";
    }
  }

  void draw_placement() {
    if (e_.placement.empty()) return;
    heading("Where everything lives");
    std::vector<std::vector<std::string>> rows = {
        {"slice", "kind", "shape", "rows", "bytes", "share", "server"}};
    const size_t shown = std::min(e_.placement.size(), options_.most_rows);
    for (size_t i = 0; i < shown; ++i) {
      const PlacedPart& part = e_.placement[i];
      const bool parameter = part.kind == "parameter" || part.kind == "table";
      const double share =
          static_cast<double>(part.bytes) / static_cast<double>(std::max<int64_t>(1, all_placed()));
      rows.push_back({part.slice, part.kind + (part.sparse ? ", sparse" : ""), dims(part.shape),
                      str_cat(part.first_row, " to ", part.first_row + part.rows - 1),
                      bytes_text(static_cast<double>(part.bytes)),
                      parameter ? fixed(100 * share, 1) + " %" : "", str_cat(part.server)});
    }
    draw_table(rows);
    draw_rest(e_.placement.size(), shown, "slices");
  }

  int64_t all_placed() const {
    int64_t bytes = 0;
    for (const ServerLoad& server : e_.servers) bytes += server.parameter_bytes;
    return bytes;
  }

  void draw_places(const ProgramPlaces& places) {
    heading(str_cat("Where ops run: ", places.process, " on ", places.place));
    for (const std::string& sentence : place_sentences(places)) {
      for (const std::string& line : wrapped(sentence, width_ - 2)) out_ << "  " << line << "\n";
    }
    const size_t shown = std::min(places.ops.size(), options_.most_rows);
    for (size_t i = 0; i < shown; ++i) draw_place(places.ops[i]);
    draw_rest(places.ops.size(), shown, "rows");
  }

  void draw_place(const OpAtPlace& op) {
    constexpr size_t kPlaceColumn = 10;
    const size_t most = (width_ - kPlaceColumn) / 2;
    const std::string place =
        op.copies ? (op.on_device ? "→ device" : "→ host") : (op.on_device ? "device" : "host");
    const std::string what = cut(op.copies ? "copy " + op.label : op.label, most);
    const std::string more = cut(op.copies ? copied_bytes(op) : op.reason, most - 3);
    const Ink how = op.copies ? Ink::kMoved : op.on_device ? Ink::kSoft : Ink::kWarning;
    out_ << "  " << ink(how, padded(place, kPlaceColumn));
    out_ << (more.empty() ? what : padded(what, most) + " " + ink(Ink::kSoft, more)) << "\n";
  }

  void draw_programs(const std::string& title, const ProgramSet& programs) {
    heading(title);
    const bool servers = !programs.servers.empty();
    const size_t column = (width_ - 2) / (servers ? 3 : 2) - 1;
    const auto line = [&](const std::string& local, const std::string& trainer,
                          const std::string& server, Ink local_ink, Ink trainer_ink,
                          bool plain_ink) {
      const auto dyed = [&](Ink kind, const std::string& text) {
        return plain_ink ? text : ink(kind, text);
      };
      out_ << "  " << dyed(local_ink, cut(local, column - 1))
           << std::string(column - width_of(cut(local, column - 1)), ' ')
           << dyed(trainer_ink, cut(trainer, column - 1));
      if (servers && !server.empty()) {
        out_ << std::string(column - width_of(cut(trainer, column - 1)), ' ')
             << ink(Ink::kMoved, cut(server, column));
      }
      out_ << "\n";
    };
    line("local", programs.trainer.process, servers ? "servers" : "", Ink::kTitle, Ink::kTitle,
         false);
    const std::vector<Row> rows = side_by_side(programs);
    const size_t shown = std::min(rows.size(), options_.most_rows);
    for (size_t i = 0; i < shown; ++i) draw_row(rows[i], line);
    draw_rest(rows.size(), shown, "rows");
  }

  template <class Line>
  void draw_row(const Row& row, const Line& line) {
    const bool gone = row.local != nullptr && row.trainer == nullptr;
    std::string trainer;
    bool kept = false;
    if (row.trainer != nullptr) {
      kept = row.trainer->origin == Origin::kKept;
      const bool changed = row.trainer->origin == Origin::kChanged;
      trainer = (kept ? "= " : changed ? "~ " : "+ ") + row.trainer->label;
    }
    std::vector<std::string> cells;
    for (const ServerCell& cell : row.servers) cells.push_back(cell_text(cell));
    const std::string local = row.local == nullptr ? "" : row.local->label;
    line(local, trainer, cells.empty() ? "" : cells.front(), gone ? Ink::kGone : Ink::kSoft,
         Ink::kAdded, kept);
    for (size_t i = 1; i < cells.size(); ++i) line("", "", cells[i], Ink::kSoft, Ink::kSoft, true);
  }

  // "0: sum, scale, sgd fc_w.block1"
  static std::string cell_text(const ServerCell& cell) {
    std::vector<std::string> names;
    for (const ExplainedOp* op : cell.ops) {
      names.push_back(op == cell.ops.back() ? op->label : op->type);
    }
    return str_cat(cell.server->server, ": ", join(names, ", "));
  }

  // Each sentence once, for the first op that it is said of.
  void draw_reasons() {
    heading("Why");
    std::map<std::string, size_t> count;
    std::vector<const ExplainedOp*> first;
    const auto take = [&](const ExplainedProgram& program) {
      for (const ExplainedOp& op : program.ops) {
        if (op.why.empty() || op.origin == Origin::kMoved) continue;
        if (count[op.type + op.pass]++ == 0) first.push_back(&op);
      }
    };
    for (const ProgramSet* programs : {&e_.main, &e_.startup}) {
      take(programs->trainer);
      for (const ExplainedProgram& server : programs->servers) take(server);
    }
    size_t names = 0;
    for (const ExplainedOp* op : first) names = std::max(names, width_of(op->type));
    for (const ExplainedOp* op : first) {
      const auto lines = wrapped(op->why, width_ - names - 5);
      const size_t times = count[op->type + op->pass];
      for (size_t i = 0; i < lines.size(); ++i) {
        out_ << "  " << ink(Ink::kAdded, padded(i == 0 ? op->type : "", names)) << "   " << lines[i]
             << "\n";
      }
      out_ << std::string(names + 5, ' ')
           << ink(Ink::kSoft, str_cat(op->pass, times > 1 ? str_cat(", ", times, " times") : ""))
           << "\n";
    }
  }

  void draw_passes() {
    heading("Passes");
    std::vector<std::vector<std::string>> rows = {{"pass", "added", "removed", "changed"}};
    std::vector<std::string> ends;
    for (const ExplainedPass& pass : e_.passes) {
      if (pass.added + pass.removed + pass.changed == 0 || ends.size() == options_.most_rows)
        continue;
      rows.push_back(
          {pass.name, str_cat(pass.added), str_cat(pass.removed), str_cat(pass.changed)});
      ends.push_back(pass.program);
    }
    draw_table(rows, ends);
    draw_rest(e_.passes.size(), ends.size(), "passes that changed no op, or are left out");
  }

  const Explanation& e_;
  const TextOptions& options_;
  size_t width_;
  std::ostringstream out_;
};

}  // namespace

std::string draw_text(const Explanation& explanation, const TextOptions& options) {
  return TextDrawing(explanation, options).draw();
}

}  // namespace fleet::explain
