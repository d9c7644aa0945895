// What travels in a step.
#include <algorithm>
#include <variant>

#include "base/shard_tree.h"
#include "base/strings.h"
#include "fluid/ops/distributed/comm.h"
#include "fluid/ops/nn/sampled.h"
#include "fluid/ops/op_schema.h"
#include "fluid/ops/optimize/dgc.h"
#include "tools/explain/placement.h"
#include "transpiler/training_ops.h"

namespace fleet::explain {
namespace {

using fluid::Block;
using fluid::Operator;
using fluid::Program;
using fluid::VarDesc;
using transpiler::PlacedParam;
using transpiler::PlacedSlice;
using transpiler::ServerPlan;

constexpr double kIdBytes = 8;

double bytes_of(const fluid::Shape& shape, fluid::DType dtype) {
  return static_cast<double>(shape.numel()) * static_cast<double>(fluid::dtype_size(dtype));
}

double bytes_of(const VarDesc& var) {
  return bytes_of(var.shape, var.dtype);
}

int shards_of(const ExplainOptions& options) {
  return options.shards > 0 ? options.shards : options.trainers;
}

// How many sums a trainer makes of its shards (base/shard_tree.h).
double sums_of(const ExplainOptions& options, int trainer) {
  const int shards = shards_of(options);
  return static_cast<double>(
      maximal_nodes(owned_shards(trainer, options.trainers, shards), shards).size());
}

double sums_of_all(const ExplainOptions& options) {
  double sums = 0;
  for (int i = 0; i < options.trainers; ++i) sums += sums_of(options, i);
  return sums;
}

double ids_of(const Block& block, const Operator& op, int64_t batch) {
  const VarDesc* ids = block.find_var(op.input("Ids").front());
  auto count = static_cast<double>(batch);
  for (int i = 1; ids != nullptr && i < ids->shape.rank(); ++i) {
    count *= static_cast<double>(std::max<int64_t>(1, ids->shape[i]));
  }
  return count;
}

double classes_of_nce(const Block& block, const Operator& op, int64_t batch) {
  const auto attrs = fluid::parse_attributes<fluid::NceAttrs>(op.type, op.attrs);
  const VarDesc* label = block.find_var(op.input("Label").front());
  const int64_t labels = label != nullptr && label->shape.rank() == 2 ? label->shape[1] : 1;
  const auto fixed = static_cast<int64_t>(attrs.custom_neg_classes.size());
  return static_cast<double>(fixed > 0 ? batch * labels + fixed
                                       : batch * (labels + attrs.num_neg_samples));
}

// Nodes of a tree of classes on the paths of so many labels; near the root they are few.
double nodes_of_paths(const Block& block, const Operator& op, int64_t batch) {
  const auto attrs = fluid::parse_attributes<fluid::HierarchicalSigmoidAttrs>(op.type, op.attrs);
  const auto& given = op.input("PathTable");
  const VarDesc* paths = given.empty() ? nullptr : block.find_var(given.front());
  if (paths != nullptr && paths->shape.rank() == 2) {
    return static_cast<double>(batch * paths->shape[1]);
  }
  double nodes = 0;
  for (int64_t level = 1; level < attrs.num_classes; level *= 2) {
    nodes += static_cast<double>(std::min(level, batch));
  }
  return nodes;
}

// Rows of a table that a trainer's step looks at, when no row is named twice.
double rows_used(const Program& main, const std::string& table, int64_t batch) {
  const Block& block = main.global_block();
  double rows = 0;
  for (const auto& op : block.ops()) {
    const fluid::OpSchema& row = fluid::schema_of(main, *op);
    if (row.table_slot.empty() || op->input(row.table_slot).front() != table) continue;
    if (op->type == "nce") {
      rows += classes_of_nce(block, *op, batch);
    } else if (op->type == "hierarchical_sigmoid") {
      rows += nodes_of_paths(block, *op, batch);
    } else if (row.gives_table_rows) {
      rows += ids_of(block, *op, batch);
    }
  }
  return rows;
}

// Whether an update moves rows that its step did not look at: decay makes a gradient of all rows.
bool moves_all_rows(const Program& main, const std::string& table) {
  const Block& block = main.global_block();
  return std::any_of(block.ops().begin(), block.ops().end(), [&](const auto& op) {
    const auto& params = op->input("Param");
    const auto& grads = op->input("Grad");
    return !params.empty() && !grads.empty() && params.front() == table &&
           block.var(grads.front()).kind != fluid::VarKind::kSelectedRows;
  });
}

// Bytes to and from the servers, of a step.
class ServerTraffic {
 public:
  ServerTraffic(const ServerPlan& plan, const Program& main, const ExplainOptions& options,
                Explanation& out)
      : plan_(plan), main_(main), options_(options), out_(out) {
    trainers_ = options.trainers;
    sums_ = plan.averages() ? sums_of(options, options.trainer) : 1;
    all_sums_ = plan.averages() ? sums_of_all(options) : trainers_;
    if (plan.form.geo()) every_ = options.config.geo_sgd_need_push_nums;
  }

  void count() {
    for (const PlacedParam& param : plan_.params) {
      for (const PlacedSlice& slice : param.slices) {
        travels_as_rows(param) ? add_sparse(param, slice) : add_dense(param, slice);
      }
    }
    for (const auto& statistic : plan_.statistics) {
      const double bytes = bytes_of(statistic.shape, statistic.dtype);
      add(statistic.server, bytes, bytes);
    }
    for (const auto& table : plan_.tables) add_table(table);
  }

 private:
  // Trainers that train alone know only of tables which rows have changed.
  bool travels_as_rows(const PlacedParam& param) const {
    return param.sparse && (param.remote || !plan_.form.geo());
  }

  // `in`: what each sum of a trainer sends there; `out`: what each trainer gets.
  void add(int server, double in, double out) { add(server, in, out, sums_, all_sums_); }
  // The same of rows, which are spread over a trainer's sums.
  void add_rows(int server, double in, double out) { add(server, in, out, 1, trainers_); }

  void add(int server, double in, double out, double sums, double all_sums) {
    ServerLoad& load = out_.servers[static_cast<size_t>(server)];
    load.bytes_in += in * all_sums / every_;
    load.bytes_out += out * trainers_ / every_;
    out_.traffic.trainer_out += in * sums / every_;
    out_.traffic.trainer_in += out / every_;
  }

  void add_dense(const PlacedParam& param, const PlacedSlice& slice) {
    const double bytes = bytes_of(slice.shape, param.dtype);
    add(slice.server, bytes, bytes);
  }

  // Rows that are touched are spread over the slices by their size. A row of a gradient travels
  // with its number; a table's rows are asked for by number.
  void add_sparse(const PlacedParam& param, const PlacedSlice& slice) {
    out_.traffic.estimated = true;
    const double used = rows_used(main_, param.param, options_.batch);
    const auto rows = static_cast<double>(slice.shape[0]);
    const double share = rows / static_cast<double>(param.shape[0]);
    const double whole = bytes_of(slice.shape, param.dtype);
    const double row = whole / rows;
    const bool all = plan_.form.geo() && moves_all_rows(main_, param.param);
    const double sent = all ? rows : std::min(rows, every_ * used * share);
    const double gradient = sent * (row + kIdBytes);
    if (!param.remote || plan_.form.geo()) return add_rows(slice.server, gradient, whole);
    const double asked = std::min(rows, used * share);
    add_rows(slice.server, gradient + asked * kIdBytes, asked * row);
  }

  void add_table(const PlacedParam& table) {
    out_.traffic.estimated = true;
    const auto servers = static_cast<double>(plan_.endpoints.size());
    const double used = rows_used(main_, table.param, options_.batch);
    const double row = bytes_of(table.shape, table.dtype) / static_cast<double>(table.shape[0]);
    for (const PlacedSlice& slice : table.slices) {
      const double touched = std::min(static_cast<double>(slice.shape[0]), used / servers);
      add_rows(slice.server, touched * (row + 2 * kIdBytes), touched * row);
    }
  }

  const ServerPlan& plan_;
  const Program& main_;
  const ExplainOptions& options_;
  Explanation& out_;
  double trainers_ = 1;
  double sums_ = 1;      // of the trainer that is shown
  double all_sums_ = 1;  // of all trainers
  double every_ = 1;     // steps between two exchanges
};

// What servers send each other; every server's program has the same exchanges.
void count_exchanges(const Program& server_program, Explanation& out) {
  const auto others = static_cast<double>(out.servers.size() - 1);
  for (int32_t i = 1; i < server_program.block_count(); ++i) {
    for (const auto& op : server_program.block(i).ops()) {
      if (op->type != "exchange_rows") continue;
      const auto attrs = fluid::parse_attributes<fluid::ExchangeRowsAttrs>(op->type, op->attrs);
      const VarDesc& whole = server_program.block(i).var(op->output("Out").front());
      const double row =
          bytes_of(whole) / static_cast<double>(whole.shape.rank() == 0 ? 1 : whole.shape[0]);
      for (size_t part = 0; part < attrs.epmap.size(); ++part) {
        const auto server = std::find_if(
            out.servers.begin(), out.servers.end(),
            [&](const ServerLoad& load) { return load.endpoint == attrs.epmap[part]; });
        if (server == out.servers.end()) continue;
        server->exchange_out += row * static_cast<double>(attrs.sections[part]) * others;
      }
    }
  }
}

std::string estimate_of_rows(const ExplainOptions& options) {
  return str_cat("Rows of tables are estimated for ", options.batch,
                 options.batch == 1 ? " row" : " rows", " of data a trainer and step.");
}

void describe(const ServerPlan& plan, const ExplainOptions& options, Traffic& traffic) {
  if (plan.form.geo()) {
    traffic.note =
        str_cat("Trainers exchange changes every ", options.config.geo_sgd_need_push_nums,
                " steps; a step's share is shown.");
  } else if (!plan.form.classic_sync() && !plan.averages() && plan.shards > 1) {
    traffic.at_most = true;
    traffic.note = "At most so much: a runtime that is behind merges gradients and skips receives.";
  } else if (plan.shards > options.trainers) {
    traffic.note =
        str_cat("Trainers add the gradients of neighbouring shards up before they send.");
  }
  if (traffic.estimated) {
    if (!traffic.note.empty()) traffic.note += ' ';
    traffic.note += estimate_of_rows(options);
  }
}

// What ranks make the same among themselves.
struct Reduced {
  double dense = 0;  // bytes that all ranks sum
  double rows = 0;   // bytes of the rows that one rank gives to all others
};

// The table that a gradient belongs to.
std::string param_of(const Block& block, const std::string& gradient) {
  for (const auto& op : block.ops()) {
    const auto& grads = op->input("Grad");
    if (!grads.empty() && grads.front() == gradient) return op->input("Param").front();
  }
  return {};
}

// Row numbers travel as distances, in groups of 7 bits.
double distance_bytes(double height, double rows) {
  double bytes = 1;
  for (double distance = height / std::max(1.0, rows); distance >= 128; distance /= 128) ++bytes;
  return bytes;
}

// What is left once a compressed gradient's ramp is over; false for another gradient.
bool add_compressed(const Block& block, const std::string& name, Reduced& reduced) {
  for (const auto& op : block.ops()) {
    if (op->type != fluid::kCompress || op->output("Grad_out").front() != name) continue;
    const auto attrs = fluid::parse_attributes<fluid::DgcAttrs>(op->type, op->attrs);
    const int64_t elements = block.var(name).shape.numel();
    const auto sent = fluid::dgc_sent(attrs, attrs.rampup_begin_step + attrs.rampup_step, elements);
    const auto count = static_cast<double>(sent.elements);
    const double bytes = sizeof(float) + distance_bytes(static_cast<double>(elements), count);
    if (sent.as_rows) {
      reduced.rows += count * bytes;
    } else {
      reduced.dense += bytes_of(block.var(name));
    }
    return true;
  }
  return false;
}

void add_gradient(const Program& program, const std::string& name, const ExplainOptions& options,
                  Reduced& reduced) {
  const Block& block = program.global_block();
  if (add_compressed(block, name, reduced)) return;
  const VarDesc& var = block.var(name);
  if (var.kind != fluid::VarKind::kSelectedRows) {
    reduced.dense += bytes_of(var);
    return;
  }
  const auto height = static_cast<double>(var.shape[0]);
  const double used = std::min(height, rows_used(program, param_of(block, name), options.batch));
  reduced.rows += used * (bytes_of(var) / height + distance_bytes(height, used));
}

Reduced reduced_in_step(const Program& program, const ExplainOptions& options) {
  const Block& block = program.global_block();
  Reduced reduced;
  for (const auto& op : block.ops()) {
    if (op->type == "c_allreduce_sum") {
      for (const std::string& name : op->input("X")) {
        add_gradient(program, name, options, reduced);
      }
    } else if (op->type == "c_local_sgd") {
      for (const std::string& name : op->input("X")) {
        reduced.dense += bytes_of(block.var(name)) / options.average_every;
      }
    } else if (options.config.mode == "nccl2" && transpiler::is_update_role(*op) &&
               !op->input("Grad").empty()) {
      // The executor sums what updates take.
      add_gradient(program, op->input("Grad").front(), options, reduced);
    }
  }
  return reduced;
}

}  // namespace

bool exchanges_numbers(const Explanation& explanation) {
  return std::any_of(explanation.servers.begin(), explanation.servers.end(),
                     [](const ServerLoad& server) { return server.exchange_out > 0; });
}

void count_server_traffic(const ServerPlan& plan, const Program& main,
                          const Program& server_program, const ExplainOptions& options,
                          Explanation& out) {
  ServerTraffic(plan, main, options, out).count();
  if (out.servers.size() > 1) count_exchanges(server_program, out);
  for (const ServerLoad& server : out.servers) {
    out.traffic.total += server.bytes_in + server.bytes_out + server.exchange_out;
  }
  describe(plan, options, out.traffic);
}

void count_collective_traffic(const Program& trainer_program, const ExplainOptions& options,
                              Explanation& out) {
  const double ranks = options.trainers;
  const Reduced reduced = reduced_in_step(trainer_program, options);
  const double bytes = reduced.dense * (ranks - 1) / ranks;
  const double rows = reduced.rows * (ranks - 1);
  // A rank gives every other its piece of each of its own sums, and then the finished piece.
  const double sums = sums_of(options, options.trainer);
  const double all_sums = sums_of_all(options);
  Traffic& traffic = out.traffic;
  traffic.trainer_out = bytes * (sums + 1) + rows;
  traffic.trainer_in = bytes * ((all_sums - sums) / std::max(1.0, ranks - 1) + 1) + rows;
  traffic.total = bytes * (all_sums + ranks) + rows * ranks;
  traffic.note = options.config.collective_mode == "local_sgd" && options.average_every > 1
                     ? str_cat("Ranks average every ", options.average_every,
                               " steps; a step's share is shown.")
                     : std::string("As a ring would: every rank sends each piece twice.");
  traffic.estimated = rows > 0;
  if (traffic.estimated) traffic.note += ' ' + estimate_of_rows(options);
}

}  // namespace fleet::explain
