#include "tools/explain/side_by_side.h"

#include <algorithm>
#include <map>
#include <utility>

namespace fleet::explain {
namespace {

// The trainer's own ops follow the op before them. What it receives comes after the updates, which
// by then have run elsewhere.
std::vector<Row> pair_up(const ProgramSet& programs) {
  std::map<int, const ExplainedOp*> kept;  // by position in the local program
  for (const ExplainedOp& op : programs.trainer.ops) {
    if (op.local >= 0) kept.emplace(op.local, &op);
  }
  std::vector<Row> rows;
  auto next = programs.trainer.ops.begin();
  const auto take_own = [&](bool receives) {
    while (next != programs.trainer.ops.end() && next->local < 0) {
      if (next->type == "recv" && !receives) break;
      rows.push_back({.trainer = &*next++});
    }
  };
  take_own(false);
  for (const ExplainedOp& op : programs.local.ops) {
    const auto found = op.block == 0 ? kept.find(op.local) : kept.end();
    if (found == kept.end()) {
      rows.push_back({.local = &op});
      continue;
    }
    take_own(true);
    rows.push_back({.local = &op, .trainer = found->second});
    ++next;
    take_own(false);
  }
  take_own(true);
  return rows;
}

std::vector<ServerCell> cells_of(const ExplainedProgram& server) {
  std::vector<ServerCell> cells;
  for (const ExplainedOp& op : server.ops) {
    if (cells.empty() || cells.back().block != op.block) {
      cells.push_back({.server = &server, .block = op.block});
    }
    cells.back().ops.push_back(&op);
  }
  return cells;
}

// A startup program is one block, of which each op stands beside its own.
std::vector<ServerCell> cells_by_op(const ExplainedProgram& server) {
  std::vector<ServerCell> cells;
  for (const ExplainedOp& op : server.ops) {
    cells.push_back({.server = &server, .block = op.block, .ops = {&op}});
  }
  return cells;
}

bool serves(const ExplainedProgram& server) {
  return std::any_of(server.ops.begin(), server.ops.end(),
                     [](const ExplainedOp& op) { return op.type == "listen_and_serv"; });
}

int anchor_of(const ServerCell& cell) {
  for (const ExplainedOp* op : cell.ops) {
    if (op->local >= 0) return op->local;
  }
  return -1;
}

}  // namespace

std::vector<Row> side_by_side(const ProgramSet& programs) {
  std::vector<Row> rows = pair_up(programs);
  std::map<int, size_t> row_of;
  for (size_t i = 0; i < rows.size(); ++i) {
    const ExplainedOp* local = rows[i].local;
    if (local != nullptr && local->block == 0) row_of.emplace(local->local, i);
  }
  // What no op of the local program became, once for all servers: the n-th of each.
  std::vector<Row> own;
  for (const ExplainedProgram& server : programs.servers) {
    size_t number = 0;
    for (ServerCell& cell : serves(server) ? cells_of(server) : cells_by_op(server)) {
      const auto found = row_of.find(anchor_of(cell));
      if (found != row_of.end()) {
        rows[found->second].servers.push_back(std::move(cell));
        continue;
      }
      if (number == own.size()) own.emplace_back();
      own[number++].servers.push_back(std::move(cell));
    }
  }
  for (Row& row : own) rows.push_back(std::move(row));
  return rows;
}

}  // namespace fleet::explain
