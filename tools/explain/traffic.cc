// What travels in a step.
#include <algorithm>
#include <variant>

#include "base/shard_tree.h"
#include "base/strings.h"
#include "fluid/ops/distributed/comm.h"
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

// Ids that one trainer looks up in a table in a step, repeated ones counted every time.
double ids_of(const Program& main, const std::string& table, int64_t batch) {
  double ids = 0;
  for (const auto& op : main.global_block().ops()) {
    const auto& weights = op->input("W");
    if (op->role != fluid::OpRole::kForward || weights.empty() || weights.front() != table) {
      continue;
    }
    const auto& inputs = op->input("Ids");
    const VarDesc* var = inputs.empty() ? nullptr : main.global_block().find_var(inputs.front());
    double count = static_cast<double>(batch);
    for (int i = 1; var != nullptr && i < var->shape.rank(); ++i) {
      count *= static_cast<double>(std::max<int64_t>(1, var->shape[i]));
    }
    ids += count;
  }
  return std::max(ids, static_cast<double>(batch));
}

// Bytes to and from the servers, of a step.
class ServerTraffic {
 public:
  ServerTraffic(const ServerPlan& plan, const Program& main, const ExplainOptions& options,
                Explanation& out)
      : plan_(plan), main_(main), options_(options), out_(out) {
    trainers_ = options.trainers;
    sums_ = plan.form.averages ? sums_of(options, options.trainer) : 1;
    all_sums_ = plan.form.averages ? sums_of_all(options) : trainers_;
    if (plan.form.geo) every_ = options.config.geo_sgd_need_push_nums;
  }

  void count() {
    for (const PlacedParam& param : plan_.params) {
      for (const PlacedSlice& slice : param.slices) {
        param.sparse ? add_sparse(param, slice) : add_dense(param, slice);
      }
    }
    for (const auto& statistic : plan_.statistics) {
      const double bytes = bytes_of(statistic.shape, statistic.dtype);
      add(statistic.server, bytes, bytes);
    }
    for (const auto& table : plan_.tables) add_table(table);
    if (plan_.form.counts_per_trainer) {
      for (size_t i = 0; i < plan_.endpoints.size(); ++i) {
        add(static_cast<int>(i), kIdBytes, 0);
      }
    }
  }

 private:
  // `in`: what each sum of a trainer sends there; `out`: what each trainer gets.
  void add(int server, double in, double out) {
    ServerLoad& load = out_.servers[static_cast<size_t>(server)];
    load.bytes_in += in * all_sums_ / every_;
    load.bytes_out += out * trainers_ / every_;
    out_.traffic.trainer_out += in * sums_ / every_;
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
    const auto rows = static_cast<double>(slice.shape[0]);
    const double share = rows / static_cast<double>(param.shape[0]);
    const double touched =
        std::min(rows, every_ * ids_of(main_, param.param, options_.batch) * share);
    const double row = bytes_of(slice.shape, param.dtype) / rows;
    const double gradient = touched * (row + kIdBytes);
    if (!param.remote) return add(slice.server, gradient, bytes_of(slice.shape, param.dtype));
    const double asked = plan_.form.geo ? 0 : touched * kIdBytes;
    add(slice.server, gradient + asked, touched * row);
  }

  void add_table(const transpiler::PlacedTable& table) {
    out_.traffic.estimated = true;
    const auto servers = static_cast<double>(plan_.endpoints.size());
    const double touched = std::min(static_cast<double>(table.rows),
                                    ids_of(main_, table.param, options_.batch) / servers);
    const double row = bytes_of(table.shape, table.dtype) / static_cast<double>(table.shape[0]);
    for (size_t i = 0; i < plan_.endpoints.size(); ++i) {
      add(static_cast<int>(i), touched * (row + 2 * kIdBytes), touched * row);
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

void describe(const ServerPlan& plan, const ExplainOptions& options, Traffic& traffic) {
  if (plan.form.geo) {
    traffic.note =
        str_cat("Trainers exchange changes every ", options.config.geo_sgd_need_push_nums,
                " steps; a step's share is shown.");
  } else if (!plan.form.classic_sync && !plan.form.averages && plan.shards > 1) {
    traffic.at_most = true;
    traffic.note = "At most so much: a runtime that is behind merges gradients and skips receives.";
  } else if (plan.shards > options.trainers) {
    traffic.note =
        str_cat("Trainers add the gradients of neighbouring shards up before they send.");
  }
  if (traffic.estimated) {
    if (!traffic.note.empty()) traffic.note += ' ';
    traffic.note += str_cat("Rows of tables are estimated for ", options.batch,
                            options.batch == 1 ? " row" : " rows", " of data a trainer and step.");
  }
}

// What all ranks sum in a step.
double reduced_bytes(const Program& program, const ExplainOptions& options) {
  const Block& block = program.global_block();
  double bytes = 0;
  for (const auto& op : block.ops()) {
    const bool scheduled = op->type == "c_local_sgd";
    if (op->type != "c_allreduce_sum" && !scheduled) continue;
    for (const std::string& name : op->input("X")) {
      bytes += bytes_of(block.var(name)) / (scheduled ? options.average_every : 1);
    }
  }
  if (options.config.mode != "nccl2") return bytes;
  // The executor sums what updates take.
  for (const auto& op : block.ops()) {
    if (!transpiler::is_update_role(*op) || op->input("Grad").empty()) continue;
    const VarDesc* param = block.find_var(op->input("Param").front());
    if (param != nullptr) bytes += bytes_of(*param);
  }
  return bytes;
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
  const double bytes = reduced_bytes(trainer_program, options) * (ranks - 1) / ranks;
  // A rank gives every other its piece of each of its own sums, and then the finished piece.
  const double sums = sums_of(options, options.trainer);
  const double all_sums = sums_of_all(options);
  out.traffic.trainer_out = bytes * (sums + 1);
  out.traffic.trainer_in = bytes * ((all_sums - sums) / std::max(1.0, ranks - 1) + 1);
  out.traffic.total = bytes * (all_sums + ranks);
  out.traffic.note = options.config.collective_mode == "local_sgd" && options.average_every > 1
                         ? str_cat("Ranks average every ", options.average_every,
                                   " steps; a step's share is shown.")
                         : std::string("As a ring would: every rank sends each piece twice.");
}

}  // namespace fleet::explain
