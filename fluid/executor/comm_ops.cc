#include <algorithm>

#include "base/error.h"
#include "fluid/executor/comm_ops_impl.h"

namespace fleet::fluid {
namespace {

[[noreturn]] void throw_kept(std::string what, std::string where, const std::string& table) {
  throw_error(ErrorCode::kPrecondition,
              {.what = std::move(what),
               .where = std::move(where),
               .expected = "lookups of rows of '" + table + "'",
               .got = "all of it",
               .fix = "look rows up by lookup_table, or gather the whole with save_persistables or "
                      "save_inference_model of fleet"});
}

}  // namespace

CommOps::CommOps(const Plan& plan, Scope& scope)
    : plan_(plan), scope_(scope), tokens_(plan.ops().size()) {
  refuse_kept_fetches();
}

// Throws when the op reads another's table in another way: here are zeros.
bool CommOps::looks_up_kept_table(size_t k) {
  const PlanOp& op = plan_.ops()[k];
  // What goes back takes the rows that forward brought, or the table's shape.
  if (op.communication || op.fetches_table || has_role(op.op->role, OpRole::kBackward))
    return false;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const PlanVar& var = plan_.vars()[static_cast<size_t>(op.inputs[i])];
    const auto* keeper = var.in_scope ? scope_.keeper(var.name) : nullptr;
    if (keeper == nullptr) continue;
    if (static_cast<int>(i) != op.table) {
      throw_kept("an op reads a whole table, whose rows are on the servers", op.op->to_string(),
                 var.name);
    }
    kept_tables_[static_cast<int>(k)] = *keeper;
  }
  return kept_tables_.contains(static_cast<int>(k));
}

void CommOps::refuse_kept_fetches() const {
  for (const PlanFetch& fetch : plan_.fetches()) {
    const PlanVar& var = plan_.vars()[static_cast<size_t>(fetch.var)];
    if (!var.in_scope || scope_.keeper(var.name) == nullptr) continue;
    throw_kept("a table is fetched, whose rows are on the servers", "Executor::run", var.name);
  }
}

bool CommOps::add(size_t k, const std::vector<Value*>& inputs, const std::vector<Value*>& outputs) {
  const PlanOp& op = plan_.ops()[k];
  const bool kept = looks_up_kept_table(k);
  const bool remote = op.communication || (kept && op.schema->gives_table_rows);
  const bool calls = remote || op.fetches_table || kept;
  calls_.push_back(calls);
  inputs_.push_back(calls ? inputs : std::vector<Value*>());
  outputs_.push_back(remote ? outputs : std::vector<Value*>());
  return remote;
}

void CommOps::run(CommRuntime* runtime, int k, uint64_t step, int shard) {
  wait_for(k);
  unstarted_.push_back({runtime, k, step, shard});
  go_on();
}

bool CommOps::has_come(int k) const {
  if (arriving_.empty()) return true;
  const auto& read = plan_.ops()[static_cast<size_t>(k)].memory_read;
  return std::all_of(read.begin(), read.end(), [this](int var) {
    const auto found = arriving_.find(var);
    return found == arriving_.end() || found->second->done();
  });
}

void CommOps::wait_for_inputs(const Call& call) {
  if (has_come(call.op)) return;
  if (call.runtime != nullptr) call.runtime->wait_for_leads();
  for (const int var : plan_.ops()[static_cast<size_t>(call.op)].memory_read) {
    if (const auto found = arriving_.find(var); found != arriving_.end()) found->second->wait();
  }
}

void CommOps::go_on() {
  while (!unstarted_.empty() && has_come(unstarted_.front().op)) {
    const Call call = unstarted_.front();
    unstarted_.pop_front();
    start(call);
  }
}

void CommOps::start_all() {
  while (!unstarted_.empty()) {
    const Call call = unstarted_.front();
    unstarted_.pop_front();
    wait_for_inputs(call);
    start(call);
  }
}

void CommOps::start(const Call& asked) {
  const auto [asked_runtime, k, step, shard] = asked;
  const PlanOp& op = plan_.ops()[static_cast<size_t>(k)];
  CommRuntime* runtime = asked_runtime;
  std::shared_ptr<Keeper> keeper;
  if (const auto kept = kept_tables_.find(k); kept != kept_tables_.end()) {
    keeper = kept->second.lock();
    runtime = dynamic_cast<CommRuntime*>(keeper.get());
  }
  if (runtime == nullptr) {
    throw_error(ErrorCode::kPrecondition,
                {.what = "this op needs a communication runtime and none is attached",
                 .where = op.op->to_string(),
                 .expected = "a program from fleet's minimize, or strategies::attach(exe, …)",
                 .got = "a plain Executor, or the runtime of a job that is over",
                 .fix = "call strategies::attach on the executor, or use fleet"});
  }
  const CommCall call = {.program = plan_.program(),
                         .block = plan_.block(),
                         .op = *op.op,
                         .scope = scope_,
                         .inputs = inputs_[static_cast<size_t>(k)],
                         .outputs = outputs_[static_cast<size_t>(k)],
                         .step = step,
                         .shard = shard};
  tokens_[static_cast<size_t>(k)] = runtime->run(call);
}

bool CommOps::is_under_way(int k) const {
  return tokens_[static_cast<size_t>(k)] != nullptr ||
         std::any_of(unstarted_.begin(), unstarted_.end(),
                     [k](const Call& call) { return call.op == k; });
}

// Before any wait, what is to be started is, so that all processes of a job start their ops in one
// order, whenever their devices are done.
void CommOps::wait_for(int k) {
  if (!is_under_way(k)) return;
  start_all();
  auto& token = tokens_[static_cast<size_t>(k)];
  if (token == nullptr) return;
  token->wait();
  token.reset();
}

void CommOps::wait_before(int k) {
  const PlanOp& op = plan_.ops()[static_cast<size_t>(k)];
  for (const int other : op.waits) {
    if (!is_under_way(other)) continue;
    start_all();
    const auto& token = tokens_[static_cast<size_t>(other)];
    const bool led = !op.place.is_cpu() && token != nullptr && token->lead_device();
    if (!led) wait_for(other);
  }
}

void CommOps::wait_for_all() {
  start_all();
  for (int k = 0; k < static_cast<int>(tokens_.size()); ++k) wait_for(k);
}

void CommOps::leave_tables_to(CommRuntime& runtime) {
  const auto& placed = plan_.program().distribution().vars;
  for (const PlanOp& op : plan_.ops()) {
    if (!op.schema->leaves_values_to_servers) continue;
    const std::string& name = op.op->output("Out").front();
    const bool kept = std::any_of(placed.begin(), placed.end(),
                                  [&name](const auto& part) { return part.origin == name; });
    if (kept) scope_.set_keeper(name, runtime.weak_from_this());
  }
}

}  // namespace fleet::fluid
