#include "fluid/program/graphviz.h"

#include <map>
#include <utility>

#include "base/strings.h"
#include "fluid/program/live_blocks.h"

namespace fleet::fluid {
namespace {

// Text between the quotes of a Graphviz string.
std::string dot_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

const char* colour_of(OpRole role) {
  if (has_role(role, OpRole::kRpc) || has_role(role, OpRole::kDist)) return "#ffd8a8";
  if (has_role(role, OpRole::kLrSched)) return "#eebefa";
  if (has_role(role, OpRole::kOptimize)) return "#b2f2bb";
  if (has_role(role, OpRole::kBackward)) return "#d0ebff";
  return "#f1f3f5";
}

std::string var_label(const Block& block, const std::string& name) {
  const VarDesc* var = block.find_var_recursive(name);
  if (var == nullptr || !var->typed) return name;
  return str_cat(name, "\n", dtype_name(var->dtype), " ", var->shape);
}

// Draws the blocks of one program. Variables are known by name: blocks see those of their parents.
class ProgramGraph {
 public:
  ProgramGraph(const Program& program, size_t number, const GraphvizWriter::Annotate& annotate,
               std::string& out)
      : program_(program), number_(number), annotate_(annotate), out_(out) {}

  void draw(const std::string& title) {
    out_ += str_cat("  subgraph cluster_p", number_, " {\n    label=", dot_text(title), ";\n");
    for (const int32_t index : live_blocks(program_)) draw_block(index);
    out_ += "  }\n";
  }

 private:
  void draw_block(int32_t index) {
    const Block& block = program_.block(index);
    const bool inner = index > 0;
    if (inner) {
      out_ += str_cat("    subgraph cluster_p", number_, "_b", index,
                      " {\n    style=rounded; label=", dot_text(str_cat("block ", index)), ";\n");
    }
    std::string edges;
    for (size_t i = 0; i < block.op_count(); ++i) edges += draw_op(block, i);
    if (inner) out_ += "    }\n";
    out_ += edges;
  }

  // Draws the op, and returns the edges that lead to it.
  std::string draw_op(const Block& block, size_t position) {
    const Operator& op = block.op(position);
    const std::string node = GraphvizWriter::node(number_, block.index(), position);
    const auto note = annotate_ ? annotate_(block.index(), position) : GraphvizWriter::OpNote{};
    const std::string label = note.line.empty() ? op.type : op.type + "\n" + note.line;
    out_ += str_cat("    ", node, " [label=", dot_text(label), ", fillcolor=\"", colour_of(op.role),
                    "\"", note.emphasis ? ", penwidth=2.5" : "",
                    ", tooltip=", dot_text(op.to_string()), "];\n");
    std::string edges;
    for (const std::string& name : op.input_names()) {
      edges += str_cat("    ", source_of(block, name), " -> ", node,
                       " [label=", dot_text(made_by_.contains(name) ? var_label(block, name) : ""),
                       "];\n");
    }
    for (const std::string& name : op.output_names()) made_by_[name] = node;
    for (const auto& [name, value] : op.attrs) {
      if (const auto* ref = std::get_if<BlockRef>(&value)) edges += block_edge(node, *ref);
      if (const auto* refs = std::get_if<std::vector<BlockRef>>(&value)) {
        for (const BlockRef& ref : *refs) edges += block_edge(node, ref);
      }
    }
    return edges;
  }

  std::string block_edge(const std::string& node, BlockRef ref) const {
    if (ref.index <= 0 || ref.index >= program_.block_count()) return {};
    if (program_.block(ref.index).op_count() == 0) return {};
    return str_cat("    ", node, " -> ", GraphvizWriter::node(number_, ref.index, 0),
                   " [style=dashed, lhead=cluster_p", number_, "_b", ref.index, "];\n");
  }

  // The op that made a variable last, or the ellipse of one that was there before.
  std::string source_of(const Block& block, const std::string& name) {
    const auto made = made_by_.find(name);
    if (made != made_by_.end()) return made->second;
    const auto [found, is_new] =
        ellipses_.emplace(name, str_cat("p", number_, "_v", ellipses_.size()));
    if (is_new) {
      out_ += str_cat("    ", found->second, " [label=", dot_text(var_label(block, name)),
                      ", shape=ellipse, fillcolor=white];\n");
    }
    return found->second;
  }

  const Program& program_;
  size_t number_;
  const GraphvizWriter::Annotate& annotate_;
  std::string& out_;
  std::map<std::string, std::string> made_by_;
  std::map<std::string, std::string> ellipses_;
};

}  // namespace

std::string GraphvizWriter::node(size_t program, int32_t block, size_t position) {
  return str_cat("p", program, "_b", block, "_", position);
}

size_t GraphvizWriter::add_program(const Program& program, const std::string& title,
                                   const Annotate& annotate) {
  ProgramGraph(program, programs_, annotate, body_).draw(title);
  return programs_++;
}

void GraphvizWriter::add_edge(const std::string& from, const std::string& to,
                              const std::string& label) {
  body_ += str_cat("  ", from, " -> ", to, " [label=", dot_text(label),
                   ", color=\"#e8590c\", fontcolor=\"#e8590c\", penwidth=2];\n");
}

std::string GraphvizWriter::text() const {
  return str_cat("digraph programs {\n  compound=true;\n",
                 "  node [shape=box, style=\"filled,rounded\", fontname=\"Helvetica\"];\n",
                 "  edge [fontname=\"Helvetica\", fontsize=10, color=\"#868e96\"];\n", body_,
                 "}\n");
}

std::string to_graphviz(const Program& program) {
  GraphvizWriter writer;
  writer.add_program(program, str_cat(program.global_block().op_count(), " ops"));
  return writer.text();
}

}  // namespace fleet::fluid
