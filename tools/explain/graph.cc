#include <algorithm>
#include <map>

#include "base/strings.h"
#include "fluid/program/graphviz.h"
#include "tools/explain/render.h"

namespace fleet::explain {
namespace {

using fluid::GraphvizWriter;

GraphvizWriter::Annotate notes_of(const ExplainedProgram& program) {
  std::map<std::pair<int32_t, size_t>, GraphvizWriter::OpNote> notes;
  for (const ExplainedOp& op : program.ops) {
    if (op.origin == Origin::kKept) continue;
    notes[{op.block, op.position}] = {.line = op.pass, .emphasis = op.origin == Origin::kAdded};
  }
  return [notes = std::move(notes)](int32_t block, size_t position) {
    const auto found = notes.find({block, position});
    return found == notes.end() ? GraphvizWriter::OpNote() : found->second;
  };
}

const ExplainedOp* find_op(const ExplainedProgram& program, const std::string& type) {
  for (const ExplainedOp& op : program.ops) {
    if (op.type == type) return &op;
  }
  return nullptr;
}

bool goes_to(const fluid::Operator& op, const std::string& endpoint) {
  const fluid::Attribute* map = op.attr("epmap");
  const auto* endpoints = map == nullptr ? nullptr : std::get_if<std::vector<std::string>>(map);
  if (endpoints == nullptr) return false;
  return std::find(endpoints->begin(), endpoints->end(), endpoint) != endpoints->end();
}

// Sends lead to a server's listen_and_serv, and from there to receives.
void connect(const ExplainedProgram& trainer, const ExplainedProgram& server, size_t number,
             GraphvizWriter& writer) {
  const ExplainedOp* listen = find_op(server, "listen_and_serv");
  if (listen == nullptr) return;
  const std::string there = GraphvizWriter::node(number, listen->block, listen->position);
  const std::string& endpoint = server.program.distribution().ps_endpoint;
  for (const ExplainedOp& op : trainer.ops) {
    const bool out = op.type == "send" || op.type == "prefetch";
    if (!out && op.type != "recv") continue;
    const fluid::Operator& source = trainer.program.block(op.block).op(op.position);
    if (!goes_to(source, endpoint)) continue;
    const std::string here = GraphvizWriter::node(0, op.block, op.position);
    const size_t wanted = out ? 1 : 0;
    const std::string what = wanted < source.role_var.size() ? source.role_var[wanted] : op.type;
    out ? writer.add_edge(here, there, what) : writer.add_edge(there, here, what);
  }
}

}  // namespace

std::string draw_graph(const Explanation& explanation) {
  GraphvizWriter writer;
  const ExplainedProgram& trainer = explanation.main.trainer;
  writer.add_program(trainer.program, trainer.process, notes_of(trainer));
  for (const ExplainedProgram& server : explanation.main.servers) {
    const std::string title =
        str_cat(server.process, "\n", server.program.distribution().ps_endpoint);
    const size_t number = writer.add_program(server.program, title, notes_of(server));
    connect(trainer, server, number, writer);
  }
  return writer.text();
}

}  // namespace fleet::explain
