#include "strategies/parameter_server/synchronous/worker_runtime.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <utility>

#include "base/shard_tree.h"
#include "base/strings.h"
#include "fluid/core/interleaved_rows.h"
#include "fluid/kernels/table_rows.h"
#include "fluid/ops/distributed/comm.h"
#include "fluid/ops/shape/shape_ops.h"
#include "strategies/parameter_server/mistakes.h"
#include "strategies/parameter_server/remote_places.h"
#include "strategies/parameter_server/row_payload.h"

namespace fleet::strategies {
namespace {

// Servers of the same machine answer while a worker gives way: measured by benchmarks/bench_jobs.
constexpr int kOffers = 30;

using transport::Phase;

fluid::ShardRange owned(const ParameterServerConfig& config) {
  const ShardRange range =
      owned_shards(static_cast<int>(config.index), static_cast<int>(config.worker_num),
                   static_cast<int>(config.shards()));
  return {range.begin, range.end, static_cast<int>(config.shards())};
}

// "g.block0.trainer_3" -> "g.block0": contributions carry the shard, the server's gradient does
// not.
std::string without_shard(const std::string& name) {
  const size_t at = name.rfind(".trainer_");
  return at == std::string::npos ? name : name.substr(0, at);
}

fluid::Tensor& dense(fluid::Value& value) {
  auto* tensor = std::get_if<fluid::Tensor>(&value);
  return tensor != nullptr ? *tensor : value.emplace<fluid::Tensor>();
}

// Rows of a variable between which others' lie.
struct Interleaved {
  const CatalogueEntry* entry = nullptr;
  fluid::Tensor* whole = nullptr;
  fluid::Tensor rows;
};

}  // namespace

// Gradient memory that a send still needs.
class WorkerRuntime::PushToken final : public fluid::CommToken {
 public:
  explicit PushToken(WorkerRuntime& runtime)
      : runtime_(runtime), step_(runtime.node_.communicator().step()) {}
  bool done() const override {
    const Communicator& communicator = runtime_.node_.communicator();
    return communicator.step() > step_ || communicator.settled();
  }
  void wait() override {
    if (done()) return;
    runtime_.node_.communicator().flush();
    runtime_.node_.wait(Phase::kSending, "send");
  }

 private:
  WorkerRuntime& runtime_;
  uint64_t step_;
};

class WorkerRuntime::ReceiveToken final : public fluid::CommToken {
 public:
  explicit ReceiveToken(WorkerRuntime& runtime) : runtime_(runtime) {}
  bool done() const override {
    return !runtime_.stepping_ && !runtime_.receiving_ && runtime_.node_.communicator().idle();
  }
  void wait() override { runtime_.wait_values(); }

 private:
  WorkerRuntime& runtime_;
};

WorkerRuntime::WorkerRuntime(ParameterServerConfig config, transport::TransportChoice transport,
                             fluid::Program origin, std::vector<std::string> server_names,
                             Logger logger)
    : config_(std::move(config)),
      origin_(std::move(origin)),
      server_names_(std::move(server_names)),
      shards_(owned(config_)),
      environment_(transport, kOffers),
      node_(environment_.node(), config_, std::move(logger)) {
  if (server_names_.empty()) {
    for (const auto& endpoint : config_.servers) server_names_.push_back(endpoint.to_string());
  }
}

WorkerRuntime::~WorkerRuntime() = default;

// ---- life

void WorkerRuntime::init_worker() {
  if (started_) return;
  started_ = true;
  node_.start();
}

void WorkerRuntime::ensure_ready() {
  if (node_.ready()) return;
  init_worker();
  while (!node_.ready()) node_.wait(Phase::kConnecting, "connecting to servers");
}

void WorkerRuntime::stop_worker() {
  if (node_.stopped()) return;
  ensure_ready();
  node_.stop();
  // No thread is left for the process's exit to race with.
  environment_.end();
}

void WorkerRuntime::barrier_worker() {
  init_worker();
  node_.barrier("barrier_worker");
}

std::vector<double> WorkerRuntime::all_reduce_worker(std::span<const double> values) {
  init_worker();
  return node_.all_reduce({values.begin(), values.end()});
}

uint64_t WorkerRuntime::step() const {
  return const_cast<WorkerNode&>(node_).communicator().step();
}

// ---- ops

fluid::ShardRange WorkerRuntime::shards() const {
  return shards_;
}

void WorkerRuntime::begin_step(const fluid::Program&, uint64_t) {
  ensure_ready();
  stepping_ = false;
  receiving_ = false;
  node_.set_phase(Phase::kComputing);
}

void WorkerRuntime::end_step(const fluid::Program&, uint64_t) {
  wait_values();
  node_.set_phase(Phase::kComputing);
}

std::unique_ptr<fluid::CommToken> WorkerRuntime::run(const fluid::CommCall& call) {
  if (node_.stopped()) throw_left(call.op);
  const BoundOp& bound = bind(call);
  switch (bound.kind) {
    case Kind::kSend:
      return send(call, bound);
    case Kind::kSendBarrier:
      stepping_ = true;
      return nullptr;
    case Kind::kReceive:
      receive(call, bound);
      if (bound.needs_token) return std::make_unique<ReceiveToken>(*this);
      return nullptr;
    case Kind::kFetchBarrier:
      wait_values();
      return nullptr;
    case Kind::kLookup:
      look_up(call, bound);
      return nullptr;
    case Kind::kRows:
      receive_rows(call, bound);
      return nullptr;
    case Kind::kPrefetch:
      prefetch_rows(bound.prefetch, call.inputs, call.outputs, node_.communicator());
      node_.wait(Phase::kReceiving, call.op.type);
      return nullptr;
    case Kind::kSaveTable:
      save_tables(bound.snapshots, node_.communicator());
      node_.wait(Phase::kSaving, call.op.type);
      return nullptr;
    case Kind::kNothing:
      return nullptr;
  }
  return nullptr;
}

std::unique_ptr<fluid::CommToken> WorkerRuntime::send(const fluid::CommCall& call,
                                                      const BoundOp& bound) {
  stepping_ = true;
  const int shard = call.shard < 0 ? shards_.begin : call.shard;
  bool borrows = false;
  for (const Part& part : bound.parts) {
    const auto* rows = std::get_if<fluid::SelectedRows>(call.inputs[part.variable]);
    if (rows != nullptr) {
      push_rows(part, shard, *rows);
      continue;
    }
    borrows = true;
    const fluid::Tensor& tensor = std::as_const(dense(*call.inputs[part.variable]));
    if (part.offset + part.bytes > tensor.bytes()) {
      throw_worker_op(call.op, "a gradient is smaller than its slices on the servers",
                      str_cat(part.offset + part.bytes, " bytes"),
                      str_cat(tensor.bytes(), " bytes"));
    }
    node_.communicator().push(part.remote, shard, tensor.raw() + part.offset, part.bytes);
  }
  // What left early goes on leaving while the backward pass computes.
  if (!node_.communicator().idle()) node_.poll();
  // Sums over several shards have memory of their own.
  if (!borrows || shards_.count() > 1 || node_.communicator().settled()) return nullptr;
  return std::make_unique<PushToken>(*this);
}

void WorkerRuntime::push_rows(const Part& part, int shard, const fluid::SelectedRows& rows) {
  Communicator& communicator = node_.communicator();
  const CatalogueEntry& entry =
      communicator.catalogue(part.remote.server).entries[part.remote.variable];
  if (entry.row_stride > 1) {
    const auto local = rows_of_stride(rows, entry.row_stride, entry.height());
    communicator.push_rows(part.remote, shard, local);
  } else if (part.rows > 0) {
    communicator.push_rows(part.remote, shard, rows_between(rows, part.row, part.row + part.rows));
  } else {
    communicator.push_rows(part.remote, shard, rows);
  }
}

void WorkerRuntime::look_up(const fluid::CommCall& call, const BoundOp& bound) {
  std::vector<const fluid::Tensor*> ids;
  for (size_t i = 0; i < call.outputs.size(); ++i) ids.push_back(&dense(*call.inputs[i]));
  RowLookup lookup(bound.table, std::move(ids));
  lookup.ask(node_.communicator());
  node_.wait(Phase::kReceiving, call.op.type);
  lookup.fill(call.outputs);
}

// The rows that the op is about to look at; those that are here since the last step stay.
void WorkerRuntime::receive_rows(const fluid::CommCall& call, const BoundOp& bound) {
  const auto [table, rows] =
      fluid::rows_looked_at(call.block, call.op, call.inputs, call.step, call.shard);
  FetchedRows& here = fetched_[&table];
  const uint64_t step = node_.communicator().step();
  if (here.step != step || here.memory.lock() != dense(table).buffer().owner()) {
    here = {.step = step, .memory = {}, .rows = {}};
  }
  std::vector<int64_t> missing;
  std::set_difference(rows.begin(), rows.end(), here.rows.begin(), here.rows.end(),
                      std::back_inserter(missing));
  if (missing.empty()) return;
  RowLookup lookup(bound.table, missing);
  lookup.ask(node_.communicator());
  node_.wait(Phase::kReceiving, call.op.type);
  lookup.place(dense(table));
  here.memory = dense(table).buffer().owner();
  std::vector<int64_t> all;
  std::set_union(missing.begin(), missing.end(), here.rows.begin(), here.rows.end(),
                 std::back_inserter(all));
  here.rows = std::move(all);
}

// Slices that a concat joins are received where they belong, as views of the whole.
bool WorkerRuntime::view_whole(const fluid::CommCall& call, const BoundOp& bound) {
  fluid::Value* value = bound.whole.empty() ? nullptr : call.scope.find(bound.whole);
  auto* whole = value == nullptr ? nullptr : std::get_if<fluid::Tensor>(value);
  int64_t rows = 0;
  for (const auto& shape : bound.shapes) rows += shape[0];
  if (whole == nullptr || !whole->initialized() || whole->layout() != fluid::Layout::kPlain ||
      whole->dtype() != bound.dtypes.front() || whole->shape().rank() == 0 ||
      whole->shape()[0] != rows) {
    return false;
  }
  int64_t row = 0;
  for (size_t i = 0; i < bound.shapes.size(); ++i) {
    fluid::Tensor& slice = dense(*call.outputs[i]);
    const int64_t end = row + bound.shapes[i][0];
    fluid::Tensor view = whole->rows(row, end);
    if (!(view.shape() == bound.shapes[i])) return false;
    if (!slice.initialized() || slice.raw() != view.raw()) slice = std::move(view);
    row = end;
  }
  return true;
}

void WorkerRuntime::receive(const fluid::CommCall& call, const BoundOp& bound) {
  if (!view_whole(call, bound)) {
    for (size_t i = 0; i < bound.shapes.size(); ++i) {
      dense(*call.outputs[i]).reset(bound.dtypes[i], bound.shapes[i]);
    }
  }
  for (const Part& part : bound.parts) {
    fluid::Tensor& tensor = dense(*call.outputs[part.variable]);
    node_.communicator().receive(part.remote, tensor.raw() + part.offset, part.bytes);
  }
  receiving_ = receiving_ || !bound.parts.empty();
}

// Asks for what was registered: the end of a step when anything was sent, else as things are.
void WorkerRuntime::conclude() {
  if (stepping_) {
    node_.communicator().finish_step();
  } else if (receiving_) {
    node_.communicator().fetch();
  }
  stepping_ = false;
  receiving_ = false;
}

void WorkerRuntime::wait_values() {
  const bool fetching = stepping_ || receiving_;
  if (!fetching && node_.communicator().settled()) return;
  if (fetching) {
    conclude();
  } else {
    node_.communicator().flush();
  }
  node_.wait(Phase::kReceiving, "fetch_barrier");
}

// ---- binding: names of the program to places on servers, once for each op

const WorkerRuntime::BoundOp& WorkerRuntime::bind(const fluid::CommCall& call) {
  const auto found = bound_.find(&call.op);
  if (found != bound_.end() && found->second.program_id == call.program.id()) {
    return found->second;
  }
  BoundOp bound;
  bound.program_id = call.program.id();
  if (call.op.type == "send") {
    bind_send(call, bound);
  } else if (call.op.type == "send_barrier") {
    bound.kind = Kind::kSendBarrier;
  } else if (call.op.type == "recv") {
    bind_receive(call, bound);
  } else if (call.op.type == "fetch_barrier") {
    bound.kind = Kind::kFetchBarrier;
  } else if (call.op.type == "distributed_lookup_table") {
    bound.kind = Kind::kLookup;
    bound.table = table_of_lookup(call.op, node_.communicator(), server_names_);
  } else if (call.op.type == "prefetch") {
    bound.kind = Kind::kPrefetch;
    bound.prefetch = prefetch_of(call.op, node_.communicator(), server_names_);
  } else if (call.op.type == "checkpoint_notify") {
    bound.kind = Kind::kSaveTable;
    bound.snapshots = snapshots_of(call.op, server_names_);
  } else if (auto table = table_of_op(call.op, node_.communicator(), server_names_)) {
    bound.kind = Kind::kRows;
    bound.table = *std::move(table);
  } else if (auto named = table_by_name(call.op, node_.communicator())) {
    bound.kind = gives_rows(call.op) ? Kind::kLookup : Kind::kRows;
    bound.table = *std::move(named);
  } else {
    throw_worker_op(call.op, "a worker of a parameter-server job cannot run this op",
                    "send, send_barrier, recv or fetch_barrier", call.op.type);
  }
  return bound_[&call.op] = std::move(bound);
}

void WorkerRuntime::bind_send(const fluid::CommCall& call, BoundOp& bound) const {
  bound.kind = Kind::kSend;
  const auto attrs = fluid::parse_attributes<fluid::SendAttrs>(call.op.type, call.op.attrs);
  // The step counter of a schedule: servers count steps themselves.
  if (!attrs.use_send_handler) return;
  const auto& variables = call.op.input("X");
  const bool split = !attrs.send_varnames.empty();
  const auto& names = split ? attrs.send_varnames : variables;
  if (attrs.epmap.size() != names.size() || (split && variables.size() != 1)) {
    throw_worker_op(call.op, "every variable is sent to one server",
                    str_cat(names.size(), " endpoints"), str_cat(attrs.epmap.size()));
  }
  uint64_t offset = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const Communicator& communicator = const_cast<WorkerNode&>(node_).communicator();
    const uint32_t server = server_of(call.op, attrs.epmap[i], server_names_);
    const RemoteVariable remote = communicator.find_gradient(server, without_shard(names[i]));
    const CatalogueEntry& entry = communicator.catalogue(server).entries[remote.variable];
    Part part{split ? 0 : i, remote, split ? offset : 0, entry.bytes()};
    if (split && entry.row_bytes() > 0) {
      part.row = static_cast<int64_t>(offset / entry.row_bytes());
      part.rows = entry.height();
    }
    bound.parts.push_back(part);
    offset += entry.bytes();
  }
}

void WorkerRuntime::bind_receive(const fluid::CommCall& call, BoundOp& bound) const {
  const auto attrs = fluid::parse_attributes<fluid::RecvAttrs>(call.op.type, call.op.attrs);
  if (attrs.do_not_run != 0) return;
  bound.kind = Kind::kReceive;
  const auto& variables = call.op.output("Out");
  const bool split = !attrs.recv_varnames.empty();
  const auto& names = split ? attrs.recv_varnames : variables;
  if (attrs.epmap.size() != names.size() || (split && variables.size() != 1)) {
    throw_worker_op(call.op, "every variable is received from one server",
                    str_cat(names.size(), " endpoints"), str_cat(attrs.epmap.size()));
  }
  uint64_t offset = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const Communicator& communicator = const_cast<WorkerNode&>(node_).communicator();
    const uint32_t server = server_of(call.op, attrs.epmap[i], server_names_);
    const RemoteVariable remote = communicator.find(server, names[i]);
    const CatalogueEntry& entry = communicator.catalogue(server).entries[remote.variable];
    bound.parts.push_back({split ? 0 : i, remote, split ? offset : 0, entry.bytes()});
    offset += entry.bytes();
    if (split && i > 0) continue;
    bound.shapes.emplace_back(split ? entry.origin_shape : entry.shape);
    bound.dtypes.push_back(entry.dtype);
  }
  bound.needs_token = true;
  for (const auto& op : call.block.ops()) {
    if (op->type == "fetch_barrier") bound.needs_token = false;
    const bool joins = op->type == "concat" && op->input("X") == variables &&
                       fluid::parse_attributes<fluid::ConcatAttrs>(op->type, op->attrs).axis == 0;
    if (joins) bound.whole = op->output("Out").front();
  }
}

// ---- whole variables

// Where an origin variable is: all its slices, or one whole copy.
std::vector<WorkerRuntime::Place> WorkerRuntime::places_of(const std::string& origin) const {
  const Communicator& communicator = const_cast<WorkerNode&>(node_).communicator();
  std::vector<Place> places;
  for (uint32_t server = 0; server < config_.server_num(); ++server) {
    const auto& entries = communicator.catalogue(server).entries;
    for (uint32_t i = 0; i < entries.size(); ++i) {
      if (entries[i].origin == origin) places.push_back({{server, i}, &entries[i]});
    }
  }
  return places;
}

std::vector<std::string> WorkerRuntime::pull(const std::vector<std::string>& names,
                                             fluid::Scope& scope) {
  ensure_ready();
  std::vector<std::string> unknown;
  std::deque<Interleaved> interleaved;
  for (const auto& name : names) {
    const auto places = places_of(name);
    if (places.empty()) {
      unknown.push_back(name);
      continue;
    }
    const CatalogueEntry& first = *places.front().entry;
    const fluid::Shape shape(first.origin_shape);
    fluid::Tensor& tensor = dense(scope.var(name));
    tensor.reset(first.dtype, shape);
    uint64_t covered = 0;
    for (const Place& place : places) {
      const uint64_t offset =
          static_cast<uint64_t>(place.entry->offset) * fluid::dtype_size(first.dtype);
      if (covered == tensor.bytes()) break;  // further copies of the whole
      if (place.entry->row_stride > 1) {
        Interleaved& part = interleaved.emplace_back();
        part = {place.entry, &tensor, {first.dtype, fluid::Shape(place.entry->shape)}};
        node_.communicator().receive(place.remote, part.rows.raw(), part.rows.bytes());
        covered += place.entry->bytes_in_origin();
        continue;
      }
      node_.communicator().receive(place.remote, tensor.raw() + offset, place.entry->bytes());
      covered += place.entry->bytes();
    }
    if (covered != tensor.bytes()) {
      throw_error(ErrorCode::kInternal, {.what = "the servers keep only a part of a variable",
                                         .where = name,
                                         .expected = str_cat(tensor.bytes(), " bytes"),
                                         .got = str_cat(covered, " bytes"),
                                         .fix = "use server programs of one transpilation"});
    }
  }
  node_.communicator().fetch();
  node_.wait(Phase::kSaving, "pull");
  for (const Interleaved& part : interleaved) {
    fluid::put_rows(part.rows, part.entry->first_row(), part.entry->row_stride, *part.whole);
  }
  return unknown;
}

bool WorkerRuntime::assign(const std::string& name, const fluid::Tensor& value) {
  ensure_ready();
  const auto places = places_of(name);
  std::vector<fluid::Tensor> parts;
  for (const Place& place : places) {
    const CatalogueEntry& entry = *place.entry;
    const fluid::Shape shape(entry.origin_shape);
    if (value.dtype() != entry.dtype || value.numel() != shape.numel()) {
      throw_error(ErrorCode::kShapeMismatch,
                  {.what = "a value does not fit the variable that it is given to",
                   .where = name,
                   .expected = str_cat(fluid::dtype_name(entry.dtype), shape),
                   .got = str_cat(fluid::dtype_name(value.dtype()), value.shape()),
                   .fix = "load a model of the same network"});
    }
    if (entry.row_stride > 1) {
      parts.push_back(fluid::take_rows(value, entry.first_row(), entry.row_stride, entry.height()));
      node_.communicator().assign(place.remote, parts.back().raw(), entry.bytes());
      continue;
    }
    const uint64_t offset = static_cast<uint64_t>(entry.offset) * fluid::dtype_size(entry.dtype);
    node_.communicator().assign(place.remote, value.raw() + offset, entry.bytes());
  }
  if (!places.empty()) node_.wait(Phase::kLoading, "assign");
  return !places.empty();
}

std::vector<std::string> WorkerRuntime::checkpoint_names() const {
  std::vector<std::string> names;
  for (const fluid::VarDesc* desc : origin_.global_block().vars()) {
    if (desc->persistable && desc->kind == fluid::VarKind::kLodTensor) names.push_back(desc->name);
  }
  return names;
}

bool WorkerRuntime::gather_persistables(fluid::Scope& scope) {
  return gather(checkpoint_names(), scope);
}

bool WorkerRuntime::gather(std::span<const std::string> names, fluid::Scope& scope) {
  if (config_.index != 0) return false;
  pull({names.begin(), names.end()}, scope);
  return true;
}

void WorkerRuntime::spread_persistables(fluid::Scope& scope) {
  if (config_.index == 0) {
    for (const auto& name : checkpoint_names()) {
      fluid::Value* value = scope.find(name);
      const auto* tensor = value == nullptr ? nullptr : std::get_if<fluid::Tensor>(value);
      if (tensor != nullptr && tensor->initialized()) assign(name, *tensor);
    }
  }
  barrier_worker();
}

}  // namespace fleet::strategies
