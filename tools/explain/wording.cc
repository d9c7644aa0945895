#include "tools/explain/wording.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "base/strings.h"
#include "fluid/ops/distributed/names.h"

namespace fleet::explain {
namespace {

using fluid::Operator;
using Names = std::vector<std::string>;

// Why a pass adds an op of this type; without a pass: whichever pass does. {param} is the parameter
// that the op belongs to, {object} that or what it makes, {var} what it reads first, {out} what it
// makes, {servers} where it goes, {shards} and {ranks} are numbers.
struct Reason {
  std::string_view type;
  std::string_view pass;
  std::string_view sentence;
};

constexpr Reason kReasons[] = {
    // Trainers of jobs with servers.
    {"send", "insert_sends",
     "The gradient of {param} goes to {servers}, while the rest of backward runs."},
    {"send", "send_statistics",
     "What this shard made of {param} goes to {servers}, to be averaged over the shards."},
    {"send", "send_table_gradients", "Each server gets the rows that it has, and no others."},
    {"send", "append_counter_send",
     "The schedule runs on the servers: it hears that this trainer made a step."},
    {"send", "append_step_notice",
     "Sends nothing itself: the runtime hears that a step is over, and which rows changed."},
    {"send", "append_start_notice",
     "Sends nothing itself: the runtime takes what was received as its first snapshot."},
    {"assign", "send_statistics", "A copy under this shard's own name, so that it can be sent."},
    {"split_byref", "", "Cuts {var} into the rows that each server keeps, without a copy."},
    {"split_selected_rows", "", "Each slice of the table gets the gradient rows that it has."},
    {"split_ids", "", "Ids by server: row r lives on server r modulo the servers."},
    {"prefetch", "", "Fetches the rows of these ids from the servers that have them."},
    {"merge_ids", "", "Puts the fetched rows back into the order of the ids."},
    {"distributed_lookup_table", "",
     "Looks the rows up on the servers: the table itself is on no trainer."},
    {"send_barrier", "", "Tells every server that this trainer has sent all of its step."},
    {"recv", "append_initial_receives", "Training starts from what the servers have."},
    {"recv", "", "Brings {object} back from {servers}, updated."},
    {"fetch_barrier", "append_initial_receives", "All parameters are here; training may begin."},
    {"fetch_barrier", "", "All parameters of the step are here; the next one may begin."},
    {"concat", "", "Joins the received slices to the whole parameter."},
    {"fake_init", "", "The table lives on the servers; here it has its shape only."},
    // Servers.
    {"sum", "add_optimize_blocks", "Adds up what all {shards} shards sent, in a fixed order."},
    {"scale", "add_optimize_blocks", "The sum divided by {shards} shards is their mean."},
    {"assign", "add_optimize_blocks", "The mean over the shards is the new value."},
    {"sum", "add_sum_blocks", "A trainer's change of the slice is added to it."},
    {"listen_and_serv", "",
     "Waits for trainers, runs the block of each gradient that is complete, and answers with the "
     "new values."},
    {"squared_row_sums", "",
     "A norm of the whole parameter, begun by rows: so that slicing cannot change a bit."},
    {"exchange_rows", "",
     "This update needs numbers of all slices: servers exchange a few for each row."},
    {"interleave_rows", "", "The servers' parts of a table, as the table has its rows."},
    {"lamb_direction", "", "The first half of lamb, before the norms of the whole are known."},
    {"lamb_apply", "", "The second half of lamb, with the norms of the whole."},
    {"ref_by_trainer_id", "", "Picks the values that the sender of this gradient last received."},
    {"dc_compensate", "",
     "Corrects a late gradient by how far the slice moved since its sender received it."},
    {"lookup_sparse_table", "", "Looks up the rows that trainers ask for."},
    {"save", "", "Saves the tables of this server, for a checkpoint."},
    // Schedules of asynchronous jobs.
    {"sum", "sum_trainer_counters", "The schedule counts the steps of all trainers."},
    {"fill_constant", "stop_counting",
     "The schedule stays at one step, as in Paddle's jobs with a communicator."},
    // Jobs without servers.
    {"scale", "scale_loss_gradient",
     "The loss gradient times 1/{shards}: the sum over shards becomes their mean."},
    {"c_allreduce_sum", "insert_all_reduces",
     "Sums {var} over {ranks} ranks, while the rest of backward runs."},
    {"c_allreduce_sum", "fuse_all_reduces", "Sums several small gradients over all ranks at once."},
    {"c_allreduce_sum", "insert_change_sums", "Sums the change of {var} over {ranks} ranks."},
    {"elementwise_sub", "insert_change_sums",
     "How far {out} is from its value after the last average."},
    {"scale", "append_averages", "The sum divided by {ranks} ranks is the mean change."},
    {"elementwise_sub", "append_averages", "{out} takes the mean change of all ranks."},
    {"assign", "append_averages", "The next average counts from here."},
    {"assign", "take_snapshots", "Changes count from the first parameters."},
    {"c_allreduce_sum", "", "Sums {var} over {ranks} ranks."},
    {"c_allreduce_max", "", "The largest values of {var} of {ranks} ranks."},
    {"c_allreduce_min", "", "The smallest values of {var} of {ranks} ranks."},
    {"c_allreduce_prod", "", "Multiplies {var} over {ranks} ranks."},
    {"c_allgather", "", "The rows of {var} of {ranks} ranks, by rank."},
    {"c_reducescatter", "", "This rank's rows of {var}, summed over {ranks} ranks."},
    {"c_local_sgd", "", "When the job's schedule says so, the ranks average their parameters."},
    {"c_sync_calc_stream", "", "On a GPU: what follows sees the finished value."},
    {"c_sync_comm_stream", "", "On a GPU: what follows sees finished communication."},
    {"c_gen_nccl_id", "", "Rank 0 makes the id of a communicator and gives it to the others."},
    {"gen_nccl_id", "", "Rank 0 makes the ids of all communicators and gives them to the others."},
    {"c_comm_init", "", "Joins the communicator of {ranks} ranks."},
    {"c_comm_init_all", "", "A communicator among the devices of this process."},
    {"c_broadcast", "", "All ranks start from rank 0's {var}."},
};

constexpr size_t kMostNames = 2;
constexpr size_t kMostServers = 4;

std::string few(const Names& names) {
  if (names.size() <= kMostNames) return join(names, ", ");
  return str_cat(names.front(), " and ", names.size() - 1, " more");
}

// Of the pairs of parameters and gradients that an op belongs to.
Names gradients_of(const Operator& op) {
  Names gradients;
  for (size_t i = 1; i < op.role_var.size(); i += 2) gradients.push_back(op.role_var[i]);
  return gradients;
}

// The variable that an op is about: what it updates, makes, or reads.
std::string object_of(const Operator& op) {
  if (const Names& params = op.input("Param"); !params.empty()) return params.front();
  const bool backward = fluid::has_role(op.role, fluid::OpRole::kBackward);
  if (backward && !op.role_var.empty()) return "→ " + few(gradients_of(op));
  const Names outputs = op.output_names();
  return outputs.empty() ? few(op.input_names()) : "→ " + few(outputs);
}

std::string or_empty(const Names& names) {
  return names.empty() ? std::string() : names.front();
}

// The longest of the type's and pass's own, or the type's; empty when there is none.
std::string_view reason_for(std::string_view type, std::string_view pass) {
  for (const Reason& reason : kReasons) {
    if (reason.type == type && (reason.pass == pass || reason.pass.empty())) return reason.sentence;
  }
  return {};
}

Names endpoints_of(const Operator& op) {
  const fluid::Attribute* map = op.attr("epmap");
  const auto* endpoints = map == nullptr ? nullptr : std::get_if<Names>(map);
  return endpoints == nullptr ? Names() : *endpoints;
}

}  // namespace

Wording::Wording(const std::vector<std::string>& endpoints, int shards, int ranks)
    : shards_(shards), ranks_(ranks) {
  for (size_t i = 0; i < endpoints.size(); ++i) servers_.emplace(endpoints[i], i);
}

std::string Wording::servers_of(const Operator& op) const {
  std::set<size_t> numbers;
  for (const std::string& endpoint : endpoints_of(op)) {
    const auto found = servers_.find(endpoint);
    if (found != servers_.end()) numbers.insert(found->second);
  }
  if (numbers.empty()) return {};
  if (numbers.size() > kMostServers) {
    return str_cat(numbers.size() == servers_.size() ? "all " : "", numbers.size(), " servers");
  }
  return (numbers.size() == 1 ? "server " : "servers ") + join(numbers, ", ");
}

std::string Wording::label(const Operator& op) const {
  const std::string servers = servers_of(op);
  if (op.type == "send" || op.type == "prefetch") {
    const Names gradients = gradients_of(op);
    const std::string object =
        gradients.empty() ? few(op.input("X")) : fluid::without_shard(gradients.front());
    const std::string what = str_cat(op.type, " ", object);
    return servers.empty() ? what : what + " → " + servers;
  }
  if (op.type == "recv") {
    const std::string what = op.role_var.empty() ? few(op.output("Out")) : op.role_var.front();
    return servers.empty() ? "recv " + what : str_cat("recv ", what, " ← ", servers);
  }
  if (op.type == "split_byref") {
    return str_cat("split_byref ", or_empty(op.input("X")), " → ", op.output("Out").size(),
                   " slices");
  }
  if (op.type == "send_barrier" || op.type == "fetch_barrier" || op.type == "listen_and_serv") {
    return op.type;
  }
  const std::string object = object_of(op);
  return object.empty() ? op.type : str_cat(op.type, " ", object);
}

std::string Wording::filled(std::string_view pattern, const Operator& op) const {
  std::string text;
  while (!pattern.empty()) {
    const size_t open = pattern.find('{');
    text += pattern.substr(0, open);
    if (open == std::string_view::npos) break;
    const size_t close = pattern.find('}', open);
    const std::string_view name = pattern.substr(open + 1, close - open - 1);
    if (name == "param") text += or_empty(op.role_var);
    if (name == "var") text += or_empty(op.input("X"));
    if (name == "out") text += or_empty(op.output("Out"));
    if (name == "object") text += or_empty(op.role_var.empty() ? op.output("Out") : op.role_var);
    if (name == "servers") text += servers_of(op);
    if (name == "shards") text += str_cat(shards_);
    if (name == "ranks") text += str_cat(ranks_);
    pattern.remove_prefix(close + 1);
  }
  return text;
}

std::string Wording::why(const Operator& op, const OpStory& story) const {
  switch (story.origin) {
    case Origin::kKept:
      return {};
    case Origin::kChanged:
    case Origin::kAdded:
      break;
    case Origin::kMoved:
      if (fluid::has_role(op.role, fluid::OpRole::kLrSched)) {
        return "The schedule runs once a step, where the updates are.";
      }
      if (story.pass == "append_initialisers") {
        return "Initialises what lives here; a slice gets the bits that it has in the whole.";
      }
      return str_cat("The optimizer's own op, on what of ", or_empty(op.role_var), " lives here.");
  }
  const std::string_view sentence =
      story.origin == Origin::kAdded ? reason_for(op.type, story.pass) : std::string_view();
  return sentence.empty() ? story.purpose : filled(sentence, op);
}

}  // namespace fleet::explain
