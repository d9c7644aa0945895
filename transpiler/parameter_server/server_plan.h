// The facts of one transpilation for parameter servers: which slice of which parameter is where,
// and which form the programs take. Every program of the job is made from the same plan.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fluid/ops/distributed/names.h"
#include "fluid/ops/op_schema.h"
#include "fluid/program/program.h"
#include "transpiler/config.h"
#include "transpiler/training_ops.h"

namespace fleet::transpiler {

// How trainers and servers talk, as the fields of the configuration decide.
struct ServerForm {
  fluid::ServerMode mode = fluid::ServerMode::kSync;
  bool runtime_split = false;  // whole variables in send and recv
  bool send_barrier = false;
  // Trainers report their steps to the schedule on the servers, which count from here on
  // (transpiler/parameter_server/async_counter.h).
  std::optional<int64_t> first_count = {};
  bool whole_norms = true;  // DistributeTranspilerConfig::whole_norms
  int geo_push_nums = 0;    // DistributeTranspilerConfig::geo_sgd_need_push_nums
  DcAsgdForm dc_asgd = {};  // without a name: none

  // sync_mode: barriers around every step.
  bool classic_sync() const { return is_synchronous(mode) && !runtime_split; }
  // Trainers keep their optimizer and exchange deltas.
  bool geo() const { return mode == fluid::ServerMode::kGeo; }
  // Updates of averaged gradients may need numbers from other servers
  // (transpiler/parameter_server/update_phases.h).
  bool exchanges() const { return is_synchronous(mode); }
};

struct PlacedSlice {
  std::string param;  // "w.block1"; the parameter's own name when it is not cut
  std::string grad;   // on the server, without shard: "w@GRAD.block1"
  fluid::Shape shape;
  int64_t offset = 0;  // in elements
  int block_id = 0;
  int server = 0;
};

struct PlacedParam {
  std::string param;
  std::string grad;
  fluid::Shape shape;
  fluid::DType dtype = fluid::DType::kFloat32;
  size_t updated = 0;  // position in TrainingOps::params, of a distributed table in ::tables
  bool sliced = false;
  bool sparse = false;  // the gradient is selected rows
  bool remote = false;  // a table: trainers look rows up instead of receiving it
  // A recv op of a trainer's startup takes its value from the servers. Under GEO, as in the
  // paddle, there is none for tables that sparse lookup_table or nce ops look up: the runtime
  // takes their values when training starts.
  bool received = true;
  // A distributed table: slice i, on server i, has the rows whose number, modulo the servers, is i,
  // and may have rows behind the table's last one. It is called as the table, and its gradient as
  // the server has it.
  bool interleaved = false;
  // A growing table, which is placed as a distributed one: each server has the rows of some of its
  // buckets (fluid/ops/distributed/table_ops.h).
  bool growing = false;
  std::vector<PlacedSlice> slices;
};

// A variable that the forward part keeps (a moving mean) and servers average over the shards.
struct PlacedStatistic {
  std::string name;
  fluid::Shape shape;
  fluid::DType dtype = fluid::DType::kFloat32;
  int server = 0;
};

// "m@STATISTIC": what a shard made of statistic m.
std::string statistic_name(const std::string& name);

struct ServerPlan {
  ServerForm form;
  std::vector<std::string> endpoints;
  int shards = 1;  // contributors of a step
  std::vector<PlacedParam> params;
  // The order in which parameters were dispatched to servers and are sent, positions in `params`.
  std::vector<size_t> dispatch_order;
  std::vector<PlacedStatistic> statistics;
  std::vector<PlacedParam> tables;  // distributed ones, as TrainingOps::tables
  // Tables that trainers look up and nobody trains, to which their startup gives no values.
  std::set<std::string, std::less<>> empty_tables;
  // Overview of every slice and of the state that belongs to it.
  std::vector<fluid::DistributedVar> overview;

  // Servers keep one gradient per shard and average them.
  bool averages() const { return is_synchronous(form.mode) && shards > 1; }
};

// All that is updated: parameters, then tables.
size_t updated_count(const ServerPlan& plan);
const PlacedParam& updated_at(const ServerPlan& plan, size_t position);
const UpdatedParam& update_of(const TrainingOps& ops, const PlacedParam& param);

// Whether the op takes norms of whole variables that servers with slices can give it
// (OpSchema::norms and split_update).
bool takes_whole_norms(const fluid::OpSchema& row);
// Whether a parameter stays with one server, which has the whole: that of an update which does not
// claim to take parts (OpSchema::updates_parts). Such are Dpsgd, which adds noise for the whole,
// norms of the whole where servers exchange none, and ops of a user's own that claim nothing.
bool stays_whole(const fluid::Program& program, const UpdatedParam& param,
                 const DistributeTranspilerConfig& config);

// One slice of one parameter.
struct SliceRef {
  const PlacedParam* param;
  const PlacedSlice* slice;
};

// The slices on one server, in the order in which they were dispatched.
std::vector<SliceRef> slices_on(const ServerPlan& plan, int server);
// The same slices in the order of their update ops.
std::vector<SliceRef> updates_on(const ServerPlan& plan, const TrainingOps& ops, int server);

// `dispatch_order`: a permutation of the positions in TrainingOps::params, or empty for their own
// order. Throws UsageError for a list of servers that is empty or names one twice and for an order
// that is no permutation, ProgramError for state that cannot be cut along with its parameter.
ServerPlan plan_servers(const fluid::Program& program, const TrainingOps& ops,
                        const DistributeTranspilerConfig& config,
                        std::vector<std::string> endpoints, int shards,
                        std::vector<size_t> dispatch_order = {});

// Records in a program what all programs of the job have in common.
void record_job(fluid::Program& program, const ServerPlan& plan);
// Records in a server's program what it is a part of.
void record_server(fluid::Program& program, const ServerPlan& plan, int server);

using fluid::shard_suffix;

// How a variable of an update chain follows its parameter's slice to a server.
enum class StateKind {
  kParam,         // the parameter itself
  kGrad,          // its gradient
  kLearningRate,  // shared by all slices of a server
  kSliced,        // has the parameter's shape: cut the same way
  kWhole,         // a scalar: one per slice
};

StateKind state_kind(const TrainingOps& ops, const PlacedParam& param, const fluid::VarDesc& var);

// The name of a piece of state on the server of a slice: its own, or with ".block<i>" when several
// slices of the parameter share the server.
std::string state_name(const PlacedParam& param, const PlacedSlice& slice,
                       const std::string& origin);

}  // namespace fleet::transpiler
