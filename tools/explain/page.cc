#include <algorithm>
#include <map>
#include <sstream>

#include "base/display.h"
#include "base/strings.h"
#include "tools/explain/op_places.h"
#include "tools/explain/page_parts.h"
#include "tools/explain/render.h"
#include "tools/explain/side_by_side.h"

namespace fleet::explain {
namespace {

constexpr size_t kColours = 8;
constexpr size_t kMostBars = 32;

std::string bytes(int64_t count) {
  return bytes_text(static_cast<double>(count));
}

std::string role_class(const std::string& role) {
  for (const char* name : {"lrsched", "optimize", "backward"}) {
    if (role.find(name) != std::string::npos) return name;
  }
  const bool talks =
      role.find("rpc") != std::string::npos || role.find("dist") != std::string::npos;
  return talks ? "rpc" : "forward";
}

// How many bytes, of at most so many, end a character.
size_t whole_characters(const std::string& text, size_t most) {
  if (text.size() <= most) return text.size();
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0U) == 0x80U) --most;
  return most;
}

class Page {
 public:
  Page(const Explanation& explanation, const PageOptions& options)
      : e_(explanation), options_(options) {}

  std::string draw() {
    out_ << "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         << "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         << "<link rel=\"icon\" href=\"data:,\">\n<title>" << escape_markup(e_.title)
         << " – fleet-explain</title>\n"
         << page_style(e_.main.servers.size()) << "</head>\n<body>\n<main>\n";
    draw_top();
    draw_notes();
    if (!e_.servers.empty()) {
      draw_placement();
      draw_traffic();
    }
    draw_programs("Every step", "main", e_.main,
                  e_.servers.empty()
                      ? "The local program, and what the transpiler made of it for a rank. Open an "
                        "op to see why it is there."
                      : "The local program, what the transpiler made of it for a trainer, and what "
                        "servers do. Open an op to see why it is there.");
    draw_programs("Once, before training", "startup", e_.startup,
                  "Startup programs initialise parameters and meet the other processes.");
    for (const ProgramPlaces& places : e_.places) draw_places(places);
    draw_passes();
    out_ << "<footer>Written by fleet-explain. Bytes are payload of tensors, in decimal units; "
            "frames and their headers come on top.</footer>\n</main>\n</body>\n</html>\n";
    return std::move(out_).str();
  }

 private:
  static std::string counted(int64_t number, const std::string& noun) {
    return str_cat(number, " ", noun, number == 1 ? "" : "s");
  }

  void tile(const std::string& name, const std::string& value, const std::string& more = "") {
    out_ << "<div class=\"tile\"><dt>" << escape_markup(name) << "</dt><dd>"
         << escape_markup(value);
    if (!more.empty()) out_ << "<small>" << escape_markup(more) << "</small>";
    out_ << "</dd></div>\n";
  }

  void draw_top() {
    const bool servers = !e_.servers.empty();
    out_ << "<header>\n<div class=\"top\">\n<div>\n<div class=\"kicker\">fleet-explain</div>\n<h1>"
         << escape_markup(e_.title) << "</h1>\n<p class=\"lead\"><b>" << escape_markup(e_.mode)
         << ", " << counted(e_.trainers, servers ? "trainer" : "rank");
    if (servers) out_ << ", " << counted(static_cast<int64_t>(e_.servers.size()), "server");
    out_ << ".</b> " << escape_markup(e_.sentence) << "</p>\n<p>";
    for (const auto& [name, value] : e_.options) {
      out_ << "<span class=\"chip mono\">" << escape_markup(str_cat(name, " = ", value))
           << "</span>";
    }
    out_ << "</p>\n</div>\n" << page_picture(e_) << "</div>\n<dl class=\"tiles\">\n";
    const Traffic& traffic = e_.traffic;
    const std::string about = traffic.at_most     ? "at most, per step"
                              : traffic.estimated ? "about, per step"
                                                  : "per step";
    tile("Parameters", bytes(e_.parameter_bytes), str_cat(e_.parameter_elements, " elements"));
    tile("Logical shards", str_cat(e_.shards), "contribute to a step");
    tile(e_.main.trainer.process + " sends", bytes_text(traffic.trainer_out), about);
    tile(e_.main.trainer.process + " receives", bytes_text(traffic.trainer_in), about);
    tile("All processes send", bytes_text(traffic.total), about);
    if (servers) tile("Imbalance", fixed(e_.imbalance, 2) + " ×", "largest server by the mean");
    out_ << "</dl>\n</header>\n";
  }

  void draw_notes() {
    for (const Warning& warning : e_.warnings) {
      out_ << "<div class=\"note\"><b>" << escape_markup(warning.what) << "</b>"
           << escape_markup(warning.advice) << "</div>\n";
    }
    if (!e_.confirmed.empty()) {
      out_ << "<div class=\"note good\">The job ran these very programs: "
           << escape_markup(join(e_.confirmed, ", ")) << ".</div>\n";
    }
  }

  void heading(const std::string& title, const std::string& words) {
    out_ << "<section>\n<h2>" << escape_markup(title) << "</h2>\n<p class=\"soft lead\">"
         << escape_markup(words) << "</p>\n";
  }

  // Parameters by colour, in the order of their first slice.
  std::map<std::string, size_t> colours() const {
    std::map<std::string, size_t> found;
    for (const PlacedPart& part : e_.placement)
      found.emplace(part.variable, found.size() % kColours);
    return found;
  }

  static bool is_parameter(const PlacedPart& part) {
    return part.kind == "parameter" || part.kind == "table";
  }

  void draw_placement() {
    heading("Where parameters live", "Each bar is a server, each part of it a slice.");
    std::vector<std::vector<const PlacedPart*>> by_server(e_.servers.size());
    for (const PlacedPart& part : e_.placement) {
      if (is_parameter(part)) by_server[static_cast<size_t>(part.server)].push_back(&part);
    }
    int64_t most = 1;
    for (const ServerLoad& server : e_.servers) most = std::max(most, server.parameter_bytes);
    const auto colour = colours();
    out_ << "<div class=\"bars\">\n";
    size_t left_out = 0;
    size_t drawn = 0;
    for (size_t i = 0; i < e_.servers.size(); ++i) {
      const ServerLoad& server = e_.servers[i];
      if (drawn == kMostBars || (e_.servers.size() > kMostBars && by_server[i].empty())) {
        ++left_out;
        continue;
      }
      ++drawn;
      const double width =
          100 * static_cast<double>(server.parameter_bytes) / static_cast<double>(most);
      out_ << "<div class=\"bar\"><div><b>server " << i << "</b> <span class=\"soft mono\">"
           << escape_markup(server.endpoint)
           << "</span></div><div class=\"track\" style=\"width:" << fixed(width, 2) << "%\">";
      for (const PlacedPart* part : by_server[i]) {
        out_ << "<i style=\"flex:" << part->bytes << ";background:var(--c"
             << colour.at(part->variable) << ")\" title=\""
             << escape_markup(str_cat(part->slice, ": rows ", part->first_row, " to ",
                                      part->first_row + part->rows - 1, ", ", bytes(part->bytes)))
             << "\"></i>";
      }
      out_ << "</div><div class=\"end\">" << bytes(server.parameter_bytes) << ", "
           << fixed(100 * server.share, 1) << " %</div></div>\n";
    }
    out_ << "</div>\n";
    if (left_out > 0) {
      out_ << "<p class=\"soft\">… and " << counted(static_cast<int64_t>(left_out), "server")
           << ", listed below.</p>\n";
    }
    draw_key(colour);
    draw_slices();
    out_ << "</section>\n";
  }

  void draw_key(const std::map<std::string, size_t>& colour) {
    constexpr size_t kMostNames = 12;
    out_ << "<div class=\"key\">";
    size_t names = 0;
    std::string last;
    for (const PlacedPart& part : e_.placement) {
      if (!is_parameter(part) || part.variable == last) continue;
      last = part.variable;
      if (++names > kMostNames) continue;
      out_ << "<span class=\"mono\" style=\"--swatch:var(--c" << colour.at(last) << ")\">"
           << escape_markup(last) << "</span>";
    }
    if (names > kMostNames) out_ << "and " << names - kMostNames << " more";
    out_ << "</div>\n";
  }

  void draw_slices() {
    out_ << "<details class=\"more\"><summary>All " << e_.placement.size()
         << " slices and what belongs to them</summary>\n<div class=\"scroll\"><table>\n"
         << "<tr><th>slice</th><th>kind</th><th>shape</th><th>rows</th><th>bytes</th>"
            "<th>server</th></tr>\n";
    const size_t shown = std::min(e_.placement.size(), options_.most_rows);
    for (size_t i = 0; i < shown; ++i) {
      const PlacedPart& part = e_.placement[i];
      out_ << "<tr><td class=\"mono\">" << escape_markup(part.slice) << "</td><td>" << part.kind
           << (part.sparse ? ", sparse" : "") << "</td><td>" << join(part.shape, " × ")
           << "</td><td>" << part.first_row << " – " << part.first_row + part.rows - 1
           << "</td><td>" << bytes(part.bytes) << "</td><td>" << part.server << "</td></tr>\n";
    }
    out_ << "</table></div>\n";
    draw_rest(e_.placement.size(), shown);
    out_ << "</details>\n";
  }

  void draw_rest(size_t all, size_t shown) {
    if (all > shown) {
      out_ << "<p class=\"soft\">… and " << all - shown << " more; --all shows them.</p>\n";
    }
  }

  void draw_traffic() {
    const bool exchanges = exchanges_numbers(e_);
    heading("What travels in a step",
            e_.traffic.note.empty() ? "Payload bytes to and from each server." : e_.traffic.note);
    out_ << "<div class=\"scroll\"><table>\n<tr><th>server</th><th>in</th><th>out</th>"
         << (exchanges ? "<th>to other servers</th>" : "")
         << "<th>slices</th><th>parameters</th><th>state</th></tr>\n";
    const size_t shown = std::min(e_.servers.size(), options_.most_rows);
    for (size_t i = 0; i < shown; ++i) {
      const ServerLoad& server = e_.servers[i];
      out_ << "<tr><td>server " << i << "</td><td>" << bytes_text(server.bytes_in) << "</td><td>"
           << bytes_text(server.bytes_out) << "</td><td>"
           << (exchanges ? bytes_text(server.exchange_out) + "</td><td>" : "") << server.slices
           << "</td><td>" << bytes(server.parameter_bytes) << "</td><td>"
           << bytes(server.state_bytes) << "</td></tr>\n";
    }
    out_ << "</table></div>\n";
    draw_rest(e_.servers.size(), shown);
    out_ << "</section>\n";
  }

  void draw_programs(const std::string& title, const std::string& id, const ProgramSet& programs,
                     const std::string& words) {
    heading(title, words);
    out_ << "<div class=\"key\"><span style=\"--swatch:var(--added)\">added</span>"
            "<span style=\"--swatch:var(--changed)\">changed</span>"
            "<span style=\"--swatch:var(--moved)\">moved to a server</span>"
            "<span style=\"--swatch:var(--grey)\">forward</span>"
            "<span style=\"--swatch:var(--blue)\">backward</span>"
            "<span style=\"--swatch:var(--green)\">update</span>"
            "<span style=\"--swatch:var(--orange)\">communication</span>"
            "<span style=\"--swatch:var(--violet)\">schedule</span></div>\n";
    draw_controls(id, programs);
    out_ << "<div class=\"rows\" style=\"--columns:" << (programs.servers.empty() ? 2 : 3)
         << "\">\n<div class=\"row head\"><div>local</div><div>" << programs.trainer.process
         << "</div>";
    for (const ExplainedProgram& server : programs.servers) {
      out_ << "<div class=\"of s" << server.server << "\">" << server.process << "</div>";
    }
    out_ << "</div>\n";
    const std::vector<Row> rows = side_by_side(programs);
    const size_t shown = std::min(rows.size(), options_.most_rows);
    for (size_t i = 0; i < shown; ++i) draw_row(rows[i], programs);
    out_ << "</div>\n";
    draw_rest(rows.size(), shown);
    out_ << "</section>\n";
  }

  void draw_controls(const std::string& id, const ProgramSet& programs) {
    for (const ExplainedProgram& server : programs.servers) {
      out_ << "<input class=\"pick\" type=\"radio\" name=\"" << id << "-server\" id=\"" << id
           << "-server-" << server.server << "\"" << (server.server == 0 ? " checked" : "")
           << ">\n";
    }
    out_ << "<input class=\"pick\" type=\"checkbox\" id=\"" << id << "-changes\">\n";
    if (programs.servers.size() > 1) {
      out_ << "<div class=\"controls\">";
      for (const ExplainedProgram& server : programs.servers) {
        out_ << "<label for=\"" << id << "-server-" << server.server << "\">" << server.process
             << "</label>";
      }
      out_ << "</div>\n";
    }
    out_ << "<div class=\"controls\"><label for=\"" << id
         << "-changes\">only what changed</label></div>\n";
  }

  void draw_op(const ExplainedOp& op, const char* more) {
    const size_t gap = op.label.find(' ');
    out_ << "<details class=\"op " << role_class(op.role) << " " << more << "\"><summary>";
    if (!op.pass.empty()) out_ << "<span class=\"pass\">" << op.pass << "</span>";
    out_ << "<b>" << escape_markup(op.label.substr(0, gap)) << "</b>";
    if (gap != std::string::npos) {
      out_ << " <span class=\"mono\">" << escape_markup(op.label.substr(gap + 1)) << "</span>";
    }
    out_ << "</summary>";
    if (!op.why.empty()) out_ << "<p>" << escape_markup(op.why) << "</p>";
    const size_t shown = whole_characters(op.text, options_.most_text);
    out_ << "<code>" << escape_markup(op.text.substr(0, shown)) << "</code>";
    if (shown < op.text.size()) {
      out_ << "<p class=\"soft\">… and "
           << counted(static_cast<int64_t>(op.text.size() - shown), "more byte")
           << "; --all shows them.</p>";
    }
    out_ << "</details>";
  }

  void draw_row(const Row& row, const ProgramSet& programs) {
    const bool kept = row.trainer != nullptr && row.trainer->origin == Origin::kKept;
    const bool still = kept && row.local != nullptr && row.servers.empty();
    out_ << "<div class=\"row" << (still ? " still" : "") << "\"><div class=\"at-local\" "
         << (row.local == nullptr ? "" : "data-at=\"local\"") << ">";
    if (row.local != nullptr) draw_op(*row.local, row.trainer == nullptr ? "gone" : "kept");
    out_ << "</div><div" << (kept ? " class=\"same\"" : "");
    if (row.trainer != nullptr) out_ << " data-at=\"" << programs.trainer.process << "\"";
    out_ << ">";
    if (row.trainer != nullptr) {
      draw_op(*row.trainer, std::string(to_string(row.trainer->origin)).c_str());
    }
    out_ << "</div>";
    for (const ExplainedProgram& server : programs.servers) draw_cells(row, server);
    out_ << "</div>\n";
  }

  void draw_cells(const Row& row, const ExplainedProgram& server) {
    const bool any = std::any_of(row.servers.begin(), row.servers.end(),
                                 [&](const auto& cell) { return cell.server == &server; });
    out_ << "<div class=\"of s" << server.server << "\"";
    if (any) out_ << " data-at=\"" << server.process << "\"";
    out_ << ">";
    for (const ServerCell& cell : row.servers) {
      if (cell.server != &server) continue;
      if (cell.block > 0) out_ << "<div class=\"block\">block " << cell.block << "</div>";
      for (const ExplainedOp* op : cell.ops) {
        draw_op(*op, std::string(to_string(op->origin)).c_str());
      }
    }
    out_ << "</div>";
  }

  void draw_places(const ProgramPlaces& places) {
    heading(str_cat("Where ops run: ", places.process, " on ", places.place),
            "An op that has a kernel on the device runs there, and what others read and write is "
            "copied.");
    out_ << "<ul>\n";
    for (const std::string& sentence : place_sentences(places)) {
      out_ << "<li>" << escape_markup(sentence) << "</li>\n";
    }
    out_ << "</ul>\n<details class=\"more\"><summary>All " << places.ops.size()
         << " ops and copies</summary>\n<div class=\"scroll\"><table>\n"
            "<tr><th>place</th><th class=\"left\">op, or variable that is copied</th>"
            "<th class=\"left\">why, or how much</th></tr>\n";
    const size_t shown = std::min(places.ops.size(), options_.most_rows);
    for (size_t i = 0; i < shown; ++i) draw_place(places.ops[i]);
    out_ << "</table></div>\n";
    draw_rest(places.ops.size(), shown);
    out_ << "</details>\n</section>\n";
  }

  void draw_place(const OpAtPlace& op) {
    out_ << "<tr class=\""
         << (op.copies      ? "moved"
             : op.on_device ? "kept"
                            : "changed")
         << "\"><td>" << (op.copies ? "→ " : "") << (op.on_device ? "device" : "host")
         << "</td><td class=\"left mono\">" << escape_markup(op.label) << "</td><td class=\"left\">"
         << escape_markup(op.copies ? copied_bytes(op) : op.reason) << "</td></tr>\n";
  }

  void draw_passes() {
    heading("The passes", "What the transpiler did, in order. Every result was verified.");
    out_ << "<details class=\"more\"><summary>All " << e_.passes.size()
         << " passes</summary>\n<div class=\"scroll\"><table>\n<tr><th>program</th>"
            "<th class=\"left\">pass</th><th class=\"left\">purpose</th><th>added</th>"
            "<th>removed</th><th>changed</th></tr>\n";
    const size_t shown = std::min(e_.passes.size(), options_.most_rows);
    for (size_t i = 0; i < shown; ++i) {
      const ExplainedPass& pass = e_.passes[i];
      out_ << "<tr><td>" << escape_markup(pass.program) << "</td><td class=\"left mono\">"
           << pass.name << "</td><td class=\"left\">" << escape_markup(pass.purpose) << "</td><td>"
           << pass.added << "</td><td>" << pass.removed << "</td><td>" << pass.changed
           << "</td></tr>\n";
    }
    out_ << "</table></div>\n";
    draw_rest(e_.passes.size(), shown);
    out_ << "</details>\n</section>\n";
  }

  const Explanation& e_;
  const PageOptions& options_;
  std::ostringstream out_;
};

}  // namespace

std::string draw_page(const Explanation& explanation, const PageOptions& options) {
  return Page(explanation, options).draw();
}

}  // namespace fleet::explain
