#include "strategies/parameter_server/worker/worker_runtime.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/kernels/table_rows.h"
#include "fluid/tables/lookup/shared_table.h"
#include "strategies/parameter_server/errors.h"
#include "strategies/parameter_server/worker/remote_places.h"
#include "strategies/parameter_server/worker/remote_values.h"

namespace fleet::strategies {

using transport::Phase;

WorkerRuntime::WorkerRuntime(const ParameterServerConfig& config, const AsyncOptions& options,
                             transport::TransportChoice transport, fluid::Program origin,
                             std::vector<std::string> server_names, Logger logger)
    : WorkerRuntime(
          config.index,
          make_exchange(config, options, loops_of_process(options, transport), std::move(logger)),
          std::move(origin), std::move(server_names)) {
  if (server_names_.empty()) {
    for (const auto& endpoint : config.servers) server_names_.push_back(endpoint.to_string());
  }
}

WorkerRuntime::WorkerRuntime(uint32_t index, std::unique_ptr<Exchange> exchange,
                             fluid::Program origin, std::vector<std::string> server_names)
    : index_(index),
      origin_(std::move(origin)),
      server_names_(std::move(server_names)),
      exchange_(std::move(exchange)) {}

void WorkerRuntime::stop_worker() {
  if (!exchange_->stopped()) exchange_->stop();
}

void WorkerRuntime::enter_thread(uint32_t thread, fluid::Scope& scope, const fluid::Scope& parent) {
  if (!exchange_->has_trainer_threads()) StrategyRuntime::enter_thread(thread, scope, parent);
  exchange_->enter_thread(thread, scope, parent);
}

// ---- ops

std::unique_ptr<fluid::CommToken> WorkerRuntime::run(const fluid::CommCall& call) {
  if (exchange_->stopped()) throw_left(call.op);
  const BoundOp& bound = bind(call);
  switch (bound.kind) {
    case BoundOp::Kind::kSend:
      finish_making();
      return exchange_->send(call, bound);
    case BoundOp::Kind::kSendBarrier:
      ask_ahead(call);
      exchange_->send_barrier();
      break;
    case BoundOp::Kind::kReceive:
      return exchange_->receive(call, bound);
    case BoundOp::Kind::kFetchBarrier:
      exchange_->fetch_barrier();
      break;
    case BoundOp::Kind::kLookup:
      look_up(call, bound);
      break;
    case BoundOp::Kind::kRows:
      receive_rows(call, bound);
      break;
    case BoundOp::Kind::kPrefetch:
      exchange_->request(
          Phase::kReceiving, call.op.type, [&](ServerClient& client, transport::DoneHandler done) {
            prefetch_rows(bound.prefetch, call.inputs, call.outputs, client, std::move(done));
          });
      break;
    case BoundOp::Kind::kGrowingLookup:
      look_up_growing(call, bound);
      break;
    case BoundOp::Kind::kSaveTable:
      exchange_->drain();
      exchange_->request(Phase::kSaving, call.op.type,
                         [&](ServerClient& client, transport::DoneHandler done) {
                           save_tables(bound.snapshots, client, std::move(done));
                         });
      break;
    case BoundOp::Kind::kNothing:
      break;
  }
  return nullptr;
}

const BoundOp& WorkerRuntime::bind(const fluid::CommCall& call) {
  const std::lock_guard lock(mutex_);
  BoundBlock& program = bound_[call.program.id()];
  if (const auto found = program.find(&call.op); found != program.end()) return found->second;
  const ServerClient& client = exchange_->ready();
  BoundBlock block = bind_ops(call.block, client, server_names_, exchange_->sends_gradients());
  exchange_->prepare(call.block, block);
  program.merge(block);
  if (const auto found = program.find(&call.op); found != program.end()) return found->second;
  return program
      .emplace(&call.op, bind_by_name(call.op, fluid::schema_of(call.program, call.op), client))
      .first->second;
}

void WorkerRuntime::fetch_rows(const fluid::CommCall& call, RowLookup& lookup) {
  exchange_->request(Phase::kReceiving, call.op.type,
                     [&](ServerClient& client, transport::DoneHandler done) {
                       lookup.ask(client, std::move(done));
                     });
}

namespace {

// The op's inputs of a slot, in the call's order.
std::vector<const fluid::Tensor*> tensors_of(const fluid::CommCall& call, std::string_view wanted) {
  std::vector<const fluid::Tensor*> tensors;
  size_t at = 0;
  for (const auto& [slot, names] : call.op.inputs) {
    for (size_t i = 0; i < names.size(); ++i, ++at) {
      if (slot == wanted) tensors.push_back(&dense(*call.inputs[at]));
    }
  }
  return tensors;
}

}  // namespace

void WorkerRuntime::look_up(const fluid::CommCall& call, const BoundOp& bound) {
  RowLookup lookup(bound.table, tensors_of(call, "Ids"));
  fetch_rows(call, lookup);
  lookup.fill(call.outputs);
}

void WorkerRuntime::look_up_growing(const fluid::CommCall& call, const BoundOp& bound) {
  const std::vector<const fluid::Tensor*> ids = tensors_of(call, "Ids");
  const std::vector<const fluid::Tensor*> shows = tensors_of(call, "Shows");
  const std::vector<const fluid::Tensor*> clicks = tensors_of(call, "Clicks");
  if (auto ahead = take_asked(call, ids)) {
    ahead->lookup->fill(ids, call.outputs);
    ahead->lookup->add_shows(ids, shows, clicks);
    ++lookups_ahead_;
    ahead->request =
        exchange_->begin_request([&](ServerClient& client, transport::DoneHandler done) {
          ahead->lookup->ask(client, GrowingGet::kMakesRowsOnly, false, std::move(done));
        });
    making_.push_back(std::move(ahead));
    return;
  }
  GrowingLookup lookup(bound.growing, ids, kept_rows(call, bound.growing), runs_);
  lookup.add_shows(ids, shows, clicks);
  const bool makes_rows = !lookup.is_test() && exchange_->sends_gradients();
  const GrowingGet what = makes_rows ? GrowingGet::kMakesRows : GrowingGet::kReads;
  exchange_->request(Phase::kReceiving, call.op.type,
                     [&](ServerClient& client, transport::DoneHandler done) {
                       lookup.ask(client, what, false, std::move(done));
                     });
  if (!lookup.is_test()) lookup.keep();
  lookup.fill(ids, call.outputs);
}

// Servers hear of every lookup that tells shows.
std::vector<std::shared_ptr<KeptRows>> WorkerRuntime::kept_rows(const fluid::CommCall& call,
                                                                const RemoteGrowingTables& tables) {
  auto kept = exchange_->kept_rows(call.scope, tables);
  for (size_t i = 0; i < tables.attrs.shown.size() && !kept.empty(); ++i) {
    if (tables.attrs.shown[i] >= 0) kept[static_cast<size_t>(tables.attrs.table_of[i])] = nullptr;
  }
  return kept;
}

// ---- lookups of the next step

void WorkerRuntime::will_feed(const fluid::Program& program, NextFeed feed) {
  if (!exchange_->asks_ahead()) return;
  for (const auto& op : program.global_block().ops()) {
    if (op->type != "lookup_remote_growing_tables") continue;
    std::vector<fluid::Tensor> ids;
    for (const std::string& name : op->input("Ids")) {
      const auto fed = std::find_if(feed.begin(), feed.end(),
                                    [&name](const auto& each) { return each.first == name; });
      if (fed != feed.end()) ids.push_back(fed->second);
    }
    if (ids.size() != op->input("Ids").size()) ids.clear();
    next_[{program.id(), op.get()}].ids = std::move(ids);
  }
}

// Asks what the next step's lookups read, which is answered when this step is over. Rows are made
// when that step begins: whoever saves in between is to find those that one machine has then.
void WorkerRuntime::ask_ahead(const fluid::CommCall& call) {
  for (auto& [key, next] : next_) {
    if (key.first != call.program.id() || next.ids.empty()) continue;
    auto ahead = std::make_unique<AheadLookup>();
    ahead->ids = std::exchange(next.ids, {});
    std::vector<const fluid::Tensor*> ids;
    for (const fluid::Tensor& each : ahead->ids) ids.push_back(&each);
    const BoundOp* bound = bound_op(key);
    if (bound == nullptr || bound->growing.attrs.is_test) continue;
    try {
      ahead->lookup = std::make_unique<GrowingLookup>(bound->growing, std::move(ids));
    } catch (const Error&) {
      continue;  // the next step says it
    }
    ahead->step = exchange_->steps() + 1;
    if (next.asked != nullptr) finish(*next.asked);
    next.asked = std::move(ahead);
    next.asked->request = exchange_->begin_request(
        [&asked = *next.asked](ServerClient& client, transport::DoneHandler done) {
          asked.lookup->ask(client, GrowingGet::kReads, true, std::move(done));
        });
  }
}

const BoundOp* WorkerRuntime::bound_op(const LookupOp& op) {
  const std::lock_guard lock(mutex_);
  const BoundBlock& program = bound_[op.first];
  const auto found = program.find(op.second);
  return found == program.end() ? nullptr : &found->second;
}

void WorkerRuntime::finish(const AheadLookup& lookup) {
  exchange_->finish_request(Phase::kReceiving, "lookup_remote_growing_tables", lookup.request);
}

std::unique_ptr<WorkerRuntime::AheadLookup> WorkerRuntime::take_asked(
    const fluid::CommCall& call, std::span<const fluid::Tensor* const> ids) {
  const auto found = next_.find({call.program.id(), &call.op});
  if (found == next_.end() || found->second.asked == nullptr) return nullptr;
  auto ahead = std::move(found->second.asked);
  finish(*ahead);
  const bool current = ahead->step == exchange_->steps();
  return current && ahead->lookup->is_of(ids) ? std::move(ahead) : nullptr;
}

// Gradients come behind lookups, on every lane.
void WorkerRuntime::finish_making() {
  if (making_.empty()) return;  // as always where several threads train
  for (const auto& lookup : std::exchange(making_, {})) finish(*lookup);
}

// The rows that the op is about to look at; those that are here in this version stay.
void WorkerRuntime::receive_rows(const fluid::CommCall& call, const BoundOp& bound) {
  auto [table, rows] =
      fluid::rows_looked_at(call.block, call.op, call.inputs, call.step, call.shard);
  const auto version = exchange_->version_of_rows();
  if (!version) {
    RowLookup lookup(bound.table, std::move(rows));
    fetch_rows(call, lookup);
    return lookup.place(dense(table));
  }
  FetchedRows& here = fetched_[&table];
  if (here.version != *version || here.memory.lock() != dense(table).buffer().owner()) {
    here = {.version = *version, .memory = {}, .rows = {}};
  }
  std::vector<int64_t> missing;
  std::set_difference(rows.begin(), rows.end(), here.rows.begin(), here.rows.end(),
                      std::back_inserter(missing));
  if (missing.empty()) return;
  RowLookup lookup(bound.table, missing);
  fetch_rows(call, lookup);
  lookup.place(dense(table));
  here.memory = dense(table).buffer().owner();
  std::vector<int64_t> all;
  std::set_union(missing.begin(), missing.end(), here.rows.begin(), here.rows.end(),
                 std::back_inserter(all));
  here.rows = std::move(all);
}

// ---- whole variables

std::vector<std::string> WorkerRuntime::pull(const std::vector<std::string>& names,
                                             fluid::Scope& scope) {
  const ServerClient& client = exchange_->ready();
  std::vector<std::string> unknown;
  RemoteValues values;
  for (const auto& name : names) {
    const RemoteTensor place = places_of_origin(name, client);
    if (place.parts.empty()) {
      unknown.push_back(name);
    } else {
      values.add_wanted(place, dense(scope.var(name)));
    }
  }
  exchange_->fetch(Phase::kSaving, values.memory());
  values.finish();
  return unknown;
}

bool WorkerRuntime::assign(const std::string& name, const fluid::Tensor& value) {
  const RemoteTensor place = places_of_origin(name, exchange_->ready(), Copies::kAll);
  if (place.parts.empty()) return false;
  RemoteValues values;
  values.add_given(place, value);
  exchange_->assign(values.memory());
  return true;
}

std::vector<std::string> WorkerRuntime::checkpoint_names() const {
  std::vector<std::string> names;
  for (const fluid::VarDesc* desc : origin_.global_block().vars()) {
    if (desc->persistable && desc->kind == fluid::VarKind::kLodTensor) names.push_back(desc->name);
  }
  return names;
}

bool WorkerRuntime::gather_persistables(fluid::Scope& scope) {
  if (index_ != 0) return false;
  pull(checkpoint_names(), scope);
  return true;
}

bool WorkerRuntime::gather(const ModelValues& values, fluid::Scope& trained, fluid::Scope& scope) {
  if (!values.tables.empty()) {
    const char* const call = values.states ? "save_persistables" : "save_inference_model";
    order_together(call, values.tables, trained, [&] {
      pull(values.names, scope);
      for_all_or_none(values.tables, [&] {
        for (const std::string& table : values.tables) {
          order_rows({.table = table,
                      .action = TableOrder::Action::kSetApart,
                      .rule = {},
                      .files = {},
                      .states = values.states},
                     {});
        }
      });
      return 0;
    });
  } else if (index_ == 0) {
    pull(values.names, scope);
  }
  return index_ == 0;
}

void WorkerRuntime::spread_persistables(fluid::Scope& scope) {
  if (index_ == 0) give_values(checkpoint_names(), scope);
  start_from(scope);
}

void WorkerRuntime::give_values(std::span<const std::string> names, fluid::Scope& scope) {
  for (const auto& name : names) {
    fluid::Value* value = scope.find(name);
    const auto* tensor = value == nullptr ? nullptr : std::get_if<fluid::Tensor>(value);
    if (tensor != nullptr && tensor->initialized()) assign(name, *tensor);
  }
}

std::vector<std::string> WorkerRuntime::server_variables() {
  const ServerClient& client = exchange_->ready();
  std::set<std::string> names;
  for (uint32_t server = 0; server < client.config().server_num(); ++server) {
    for (const auto& entry : client.parameter_index(server).entries) {
      if (!entry.growing) names.insert(entry.origin);
    }
  }
  return {names.begin(), names.end()};
}

std::string WorkerRuntime::write_server_parts(const std::string& folder, int first, int parts) {
  std::string why;
  exchange_->request(
      Phase::kSaving, "write_server_parts", [&](ServerClient& client, transport::DoneHandler done) {
        client.save_parts({.folder = folder, .part = first, .parts = parts, .variables = {}}, why,
                          std::move(done));
      });
  return why;
}

std::string WorkerRuntime::load_server_parts(const PartSource& source) {
  std::string why;
  exchange_->request(Phase::kSaving, "load_server_parts",
                     [&](ServerClient& client, transport::DoneHandler done) {
                       client.load_parts(source, why, std::move(done));
                     });
  return why;
}

std::string WorkerRuntime::check_server_parts(const std::string& folder, uint32_t checksum) {
  return load_server_parts({.folder = folder, .checksum = checksum, .check = true});
}

void WorkerRuntime::read_server_parts(const std::string& folder, uint32_t checksum) {
  const std::string why = load_server_parts({.folder = folder, .checksum = checksum});
  if (why.empty()) return;
  throw_error(ErrorCode::kInput, {.what = "a server cannot read a checkpoint that it has checked",
                                  .where = folder,
                                  .expected = "files that stay as they are",
                                  .got = why,
                                  .fix = "start the job again"});
}

// `files`: of a save, each server's own.
std::vector<TableAnswer> WorkerRuntime::order_tables(Phase phase, TableOrder order,
                                                     std::span<const std::string> files) {
  order.number = ++orders_;
  std::vector<TableAnswer> answers;
  const auto of_server = [&](uint32_t server) {
    if (!files.empty()) order.files = {files[server]};
    return order;
  };
  exchange_->request(phase, "a growing table's order",
                     [&](ServerClient& client, transport::DoneHandler done) {
                       client.order_tables(of_server, answers, std::move(done));
                     });
  for (size_t server = 0; server < answers.size(); ++server) {
    if (answers[server].why.empty()) continue;
    throw_error(answers[server].code,
                {.what = "a server cannot do this with a growing table",
                 .where = str_cat("growing table '", order.table, "', server ", server),
                 .expected = "what its configuration and rows allow",
                 .got = answers[server].why,
                 .fix = "see the reason"});
  }
  return answers;
}

fluid::CommRuntime::TableFiles WorkerRuntime::save_table(const std::string& table,
                                                         const std::filesystem::path& folder,
                                                         const std::string& name) {
  const std::vector<std::string> paths = files_of_servers(folder / (name + ".table"));
  TableFiles files;
  for (const std::filesystem::path path : paths) files.names.push_back(path.filename().string());
  const auto answers = order_tables(
      Phase::kSaving,
      {.table = table, .action = TableOrder::Action::kSave, .rule = {}, .files = {}}, paths);
  files.options = fluid::table_options(answers.front().options, table, 0);
  for (const std::string& path : paths) check_seen(path);
  return files;
}

void WorkerRuntime::drop_tables(std::span<const std::string> tables) noexcept {
  try {
    order_each(tables, TableOrder::Action::kDrop);
  } catch (const Error&) {
    // A job that failed keeps no tables.
  }
}

void WorkerRuntime::load_tables(const FilesOfTables& files) {
  std::vector<std::string> tables;
  std::vector<TableOrder> orders;
  for (const auto& [table, parts] : files) {
    tables.push_back(table);
    orders.push_back(
        {.table = table, .action = TableOrder::Action::kLoad, .rule = {}, .files = {}});
    for (const auto& part : parts) {
      orders.back().files.push_back(std::filesystem::absolute(part).string());
    }
  }
  std::vector<double> refusals = {0};
  std::exception_ptr refused;
  if (index_ == 0) {
    try {
      in_two_steps(tables, [&] {
        for (const TableOrder& order : orders) order_rows(order, {});
      });
    } catch (const Error&) {
      refused = std::current_exception();
      refusals[0] = 1;
    }
  }
  refusals = all_reduce_worker(refusals);
  if (refused) std::rethrow_exception(refused);
  throw_refused(tables, true, refusals[0] != 0);
}

uint64_t WorkerRuntime::order_together(const std::string& call, std::span<const std::string> tables,
                                       fluid::Scope& scope, const std::function<uint64_t()>& give) {
  for (const std::string& table : tables) check_growing_table(table);
  // Others may be asked to save: that comes first.
  exchange_->meet_to_save();
  drop_lookups_ahead();
  exchange_->begin_saving(scope);
  exchange_->barrier(transport::Group::kTraining, call);
  std::vector<double> done = {0, 0, 0};  // orders, what they gave, refusals
  std::exception_ptr refused;
  if (index_ == 0) {
    done[0] = 1;
    try {
      done[1] = static_cast<double>(give());
    } catch (const Error&) {
      refused = std::current_exception();
      done[2] = 1;
    }
  }
  done = all_reduce_training(done);
  exchange_->end_saving();
  exchange_->forget_kept_rows();
  if (refused) std::rethrow_exception(refused);
  throw_refused(tables, done[0] != 0, done[2] != 0);
  return static_cast<uint64_t>(done[1]);
}

// The sum of what servers answer.
uint64_t WorkerRuntime::order_rows(const TableOrder& order, std::span<const std::string> files) {
  uint64_t rows = 0;
  for (const TableAnswer& answer : order_tables(Phase::kSaving, order, files)) {
    rows += answer.rows;
  }
  return rows;
}

void WorkerRuntime::order_each(std::span<const std::string> tables, TableOrder::Action action) {
  for (const std::string& table : tables) {
    order_rows({.table = table, .action = action, .rule = {}, .files = {}}, {});
  }
}

void WorkerRuntime::for_all_or_none(std::span<const std::string> tables,
                                    const std::function<void()>& prepare) {
  try {
    prepare();
  } catch (const Error&) {
    drop_tables(tables);
    throw;
  }
}

void WorkerRuntime::in_two_steps(std::span<const std::string> tables,
                                 const std::function<void()>& prepare) {
  for_all_or_none(tables, prepare);
  order_each(tables, TableOrder::Action::kCommit);
}

// What the other workers say of it.
void WorkerRuntime::throw_refused(std::span<const std::string> tables, bool ordered, bool refused) {
  if (ordered && !refused) return;
  throw_error(ErrorCode::kPrecondition,
              {.what = ordered ? "a server cannot do this with a growing table"
                               : "the first worker, which tells servers what tables are to do, has "
                                 "stopped",
               .where = str_cat("growing tables: ", join(tables, ", ")),
               .expected = ordered ? "what the configurations of servers and the rows allow"
                                   : "a call of every worker before any stops",
               .got = ordered ? "a refusal, whose reason worker 0 tells" : "one behind its stop",
               .fix = ordered ? "see worker 0" : "call it earlier"});
}

void WorkerRuntime::drop_lookups_ahead() {
  for (auto& [key, next] : next_) {
    if (next.asked != nullptr) finish(*std::exchange(next.asked, nullptr));
    next.ids.clear();
  }
}

uint64_t WorkerRuntime::end_pass(const std::string& table, const fluid::tables::PassRule& rule,
                                 fluid::Scope& scope) {
  const uint64_t gone = order_together("end_pass", std::span(&table, 1), scope, [&] {
    return order_rows(
        {.table = table, .action = TableOrder::Action::kEndPass, .rule = rule, .files = {}}, {});
  });
  // A worker that trains alone has rows of its own.
  const fluid::Value* own = scope.find(table);
  if (const auto rows = own == nullptr ? nullptr : fluid::tables::table_of(*own)) {
    rows->alone([&rule](fluid::tables::GrowingTable& all) { return all.end_pass(rule); });
  }
  return gone;
}

std::vector<std::filesystem::path> WorkerRuntime::save_table_delta(
    const std::string& table, const std::filesystem::path& file, fluid::Scope& scope) {
  const std::vector<std::string> files = files_of_servers(file);
  const std::span<const std::string> one(&table, 1);
  // They count alike: none has a delta that another one lacks.
  order_together("save_table_delta", one, scope, [&] {
    in_two_steps(one, [&] {
      order_rows({.table = table,
                  .action = TableOrder::Action::kSave,
                  .rule = {},
                  .files = {},
                  .delta = true},
                 files);
    });
    return 0;
  });
  if (index_ == 0) {
    for (const std::string& path : files) check_seen(path);
  }
  return {files.begin(), files.end()};
}

// What a server wrote elsewhere is no part of what this worker saves.
void WorkerRuntime::check_seen(const std::string& file) {
  std::error_code error;
  if (std::filesystem::exists(file, error)) return;
  throw_error(ErrorCode::kPrecondition,
              {.what = "a server has written a file that this worker does not see",
               .where = file,
               .expected = "a folder that workers and servers share",
               .got = "nothing there",
               .fix = "name a folder on a file system of all hosts"});
}

std::vector<std::string> WorkerRuntime::files_of_servers(const std::filesystem::path& file) {
  const uint32_t servers = exchange_->ready().config().server_num();
  std::vector<std::string> files;
  for (uint32_t server = 0; server < servers; ++server) {
    std::filesystem::path own = std::filesystem::absolute(file);
    const std::string part = servers == 1 ? "" : str_cat(".", server, "-of-", servers);
    own.replace_filename(str_cat(file.stem().string(), part, file.extension().string()));
    files.push_back(own.string());
  }
  return files;
}

fluid::tables::TableStatistics WorkerRuntime::table_statistics(const std::string& table,
                                                               const fluid::Scope&) {
  check_growing_table(table);
  fluid::tables::TableStatistics all;
  for (const TableAnswer& answer :
       order_tables(Phase::kReceiving, {.table = table,
                                       .action = TableOrder::Action::kTellStatistics,
                                       .rule = {},
                                       .files = {}})) {
    all += answer.statistics;
  }
  return all;
}

void WorkerRuntime::check_growing_table(const std::string& table) {
  const std::vector<std::string> names = growing_tables(exchange_->ready());
  if (std::find(names.begin(), names.end(), table) != names.end()) return;
  throw_error(ErrorCode::kUnknownName,
              {.what = "the job has no such growing table" + did_you_mean(table, names),
               .where = "a growing table of the servers",
               .expected = names.empty() ? "one that sparse_embedding makes"
                                         : "one of " + join(names, ", "),
               .got = str_cat("'", table, "'"),
               .fix = "name a table by the name of its param_attr"});
}

// Workers that train alone have states of optimizers that no server has; those of EASGD differ from
// the servers in parameters, too.
std::vector<std::string> WorkerRuntime::own_variables() {
  std::vector<std::string> names;
  if (exchange_->sends_gradients()) return names;
  const ServerClient& client = exchange_->ready();
  for (std::string& name : checkpoint_names()) {
    if (exchange_->parameters_differ() || places_of_origin(name, client).parts.empty()) {
      names.push_back(std::move(name));
    }
  }
  return names;
}

void WorkerRuntime::set_steps_before(uint64_t steps) {
  exchange_->request(Phase::kSaving, "set_steps_before",
                     [&](ServerClient& client, transport::DoneHandler done) {
                       client.set_steps_before(steps, std::move(done));
                     });
}

void WorkerRuntime::start_from(fluid::Scope& scope) {
  barrier_worker();
  exchange_->restarted(scope);
}

}  // namespace fleet::strategies
