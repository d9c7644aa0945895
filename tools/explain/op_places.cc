#include "tools/explain/op_places.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/display.h"
#include "base/shard_tree.h"
#include "base/strings.h"
#include "fluid/executor/plan/placed_program.h"
#include "fluid/kernels/device_kernel_list.h"
#include "fluid/ops/op_schema.h"

namespace fleet::explain {
namespace {

using fluid::HostReason;
using fluid::PlacedOp;
using fluid::VarDesc;

// Ops by what they are called where they stand in a program.
using Labels = std::map<std::pair<int32_t, const fluid::Operator*>, std::string>;

Labels labels_of(const ExplainedProgram& program) {
  Labels labels;
  for (const ExplainedOp& op : program.ops) {
    const auto& ops = program.program.block(op.block).ops();
    labels[{op.block, ops[op.position].get()}] = op.label;
  }
  return labels;
}

bool has_runtime_ops(const fluid::Program& program) {
  const auto& ops = program.global_block().ops();
  return std::any_of(ops.begin(), ops.end(), [&program](const auto& op) {
    return schema_of(program, *op).run_by == fluid::RunBy::kRuntime;
  });
}

// Of a variable in a step. What is cut into shards has its rows once, all else once a shard.
class Sizes {
 public:
  Sizes(int64_t batch, int shards) : batch_(static_cast<double>(batch)), shards_(shards) {}

  // Negative where the shape does not tell.
  double of(const VarDesc* var, bool once_a_shard) const {
    if (var == nullptr || var->kind != fluid::VarKind::kLodTensor || !var->typed) return -1;
    auto bytes = static_cast<double>(fluid::dtype_size(var->dtype));
    const bool by_rows = var->shape.rank() > 0 && var->shape[0] < 0;
    for (int i = by_rows ? 1 : 0; i < var->shape.rank(); ++i) {
      if (var->shape[i] < 0) return -1;
      bytes *= static_cast<double>(var->shape[i]);
    }
    if (by_rows) return bytes * batch_;
    return once_a_shard ? bytes * shards_ : bytes;
  }

 private:
  double batch_;
  int shards_;
};

class Counting {
 public:
  Counting(const ExplainedProgram& program, const Sizes& sizes, ProgramPlaces& out)
      : labels_(labels_of(program)), sizes_(sizes), out_(out) {}

  void count(const fluid::PlacedProgram& placed) {
    for (const PlacedOp& op : placed.ops) {
      if (op.op == nullptr) {
        add_copy(op);
      } else if (!schema_of(op.block->program(), *op.op).only_orders) {
        add_op(op);
      }
    }
    for (const VarDesc* var : placed.fed) {
      add_bytes(var, sizes_.of(var, false), out_.fed);
    }
    for (auto& [reason, host] : reasons_) {
      host.types.assign(types_[reason].begin(), types_[reason].end());
      out_.on_host.push_back(std::move(host));
    }
    std::stable_sort(out_.on_host.begin(), out_.on_host.end(),
                     [](const HostOps& a, const HostOps& b) { return a.ops > b.ops; });
  }

 private:
  void add_op(const PlacedOp& op) {
    const bool on_device = op.why_host == HostReason::kNone;
    OpAtPlace row{.block = op.block->index(), .on_device = on_device};
    const auto label = labels_.find({row.block, op.op});
    row.label = label == labels_.end() ? op.op->type : label->second;
    if (on_device) {
      ++out_.on_device;
    } else {
      row.reason = std::string(to_string(op.why_host));
      HostOps& host = reasons_[op.why_host];
      host.reason = row.reason;
      ++host.ops;
      types_[op.why_host].insert(op.op->type);
    }
    out_.ops.push_back(std::move(row));
  }

  void add_copy(const PlacedOp& op) {
    OpAtPlace row{.block = op.block->index(), .copies = true, .on_device = op.to_device};
    if (op.copied != nullptr) row.label = op.copied->name;
    row.bytes = sizes_.of(op.copied, op.once_a_shard);
    if (row.block > 0) out_.estimated = true;
    add_bytes(op.copied, row.bytes, op.to_device ? out_.to_device : out_.to_host);
    out_.ops.push_back(std::move(row));
  }

  void add_bytes(const VarDesc* var, double bytes, double& sum) {
    if (bytes < 0) {
      ++out_.unknown;
      return;
    }
    sum += bytes;
    if (var->lod_level > 0) out_.estimated = true;
  }

  Labels labels_;
  const Sizes& sizes_;
  ProgramPlaces& out_;
  std::map<HostReason, HostOps> reasons_;
  std::map<HostReason, std::set<std::string>> types_;
};

ProgramPlaces places_of(const ExplainedProgram& program, const fluid::KernelTable& kernels,
                        const ExplainOptions& options, int shards) {
  const bool in_job = has_runtime_ops(program.program);
  const bool sums = in_job && options.device_sums && options.config.mode == "collective" &&
                    options.config.collective_mode == "grad_allreduce";
  ProgramPlaces places{.process = program.process, .place = options.place.to_string()};
  const auto placed = placed_program(program.program, kernels, options.place,
                                     {.device_sums = sums, .tables_here = !in_job || sums});
  Counting(program, Sizes(options.batch, shards), places).count(placed);
  return places;
}

int shards_of_trainer(const ExplainOptions& options) {
  const int shards = options.shards > 0 ? options.shards : options.trainers;
  return owned_shards(options.trainer, options.trainers, shards).size();
}

}  // namespace

void place_ops(const ExplainOptions& options, const std::vector<std::string>& unknown,
               Explanation& out) {
  fluid::KernelTable kernels =
      options.kernels == nullptr ? fluid::kernels_to_place_ops() : *options.kernels;
  for (const std::string& type : unknown) {
    kernels.add_last(type, fluid::DeviceKind::kCpu, fluid::DType::kFloat32, {.name = "unknown"});
  }
  out.places.push_back(places_of(out.main.local, kernels, options, 1));
  out.places.push_back(places_of(out.main.trainer, kernels, options, shards_of_trainer(options)));
}

std::vector<std::string> place_sentences(const ProgramPlaces& places) {
  size_t all = places.on_device;
  for (const HostOps& host : places.on_host) all += host.ops;
  std::vector<std::string> sentences = {
      str_cat(places.on_device, " of ", all, " ops run on the device.")};
  for (const HostOps& host : places.on_host) {
    sentences.push_back(
        str_cat("On the host: ", host.ops, ", ", host.reason, " (", join(host.types, ", "), ")."));
  }
  const std::string about = places.estimated ? "about " : "";
  sentences.push_back(str_cat(
      "In a step ", about, bytes_text(places.fed + places.to_device + places.to_host),
      " cross: ", bytes_text(places.fed), " that are fed to the device, copies of ",
      bytes_text(places.to_device), " to it and of ", bytes_text(places.to_host), " to the host."));
  if (places.unknown > 0) {
    sentences.push_back(
        str_cat("Of ", places.unknown, " more, shapes do not tell how much they are."));
  }
  return sentences;
}

std::string copied_bytes(const OpAtPlace& copy) {
  return copy.bytes < 0 ? "as large as the data make it" : bytes_text(copy.bytes);
}

}  // namespace fleet::explain
