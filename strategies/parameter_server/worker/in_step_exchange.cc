#include "strategies/parameter_server/worker/in_step_exchange.h"

#include <memory>
#include <optional>
#include <utility>

#include "base/shard_tree.h"
#include "fluid/ops/distributed/trainer_program.h"

namespace fleet::strategies {

using transport::Phase;

namespace {

fluid::StepShards owned(const ParameterServerConfig& config) {
  const ShardRange range =
      owned_shards(static_cast<int>(config.index), static_cast<int>(config.worker_num),
                   static_cast<int>(config.shards()));
  return {range.begin, range.end, static_cast<int>(config.shards())};
}

}  // namespace

// Gradient memory that a send still needs.
class InStepExchange::PushToken final : public fluid::CommToken {
 public:
  explicit PushToken(InStepExchange& exchange)
      : exchange_(exchange), step_(exchange.node_.client().step()) {}
  bool done() const override {
    const SyncClient& client = exchange_.node_.client();
    return client.step() > step_ || client.drained();
  }
  void wait() override {
    if (done()) return;
    exchange_.node_.client().flush();
    exchange_.node_.wait_drained();
  }

 private:
  InStepExchange& exchange_;
  uint64_t step_;
};

class InStepExchange::ReceiveToken final : public fluid::CommToken {
 public:
  explicit ReceiveToken(InStepExchange& exchange) : exchange_(exchange) {}
  bool done() const override {
    return !exchange_.stepping_ && !exchange_.receiving_ && exchange_.node_.client().idle();
  }
  void wait() override { exchange_.wait_values(); }

 private:
  InStepExchange& exchange_;
};

struct InStepExchange::ReceiveNotes final : ExchangeNotes {
  std::string whole;  // the variable that the op's outputs make up, if they do
  bool last = false;  // no fetch_barrier stands behind it
};

InStepExchange::InStepExchange(const ParameterServerConfig& config, WorkerLoops loops,
                               const Logger& logger)
    : shards_(owned(config)), loops_(std::move(loops)), node_(loops_.node, config, logger) {}

// ---- life

void InStepExchange::start() {
  if (started_) return;
  started_ = true;
  node_.start();
}

const ServerClient& InStepExchange::ready() {
  start();
  while (!node_.ready()) node_.wait(Phase::kConnecting, "connecting to servers");
  return node_.client();
}

void InStepExchange::stop() {
  ready();
  node_.stop();
  // No thread is left for the process's exit to race with.
  if (loops_.node.end_threads) loops_.node.end_threads();
}

void InStepExchange::barrier(transport::Group group, const std::string& name) {
  start();
  node_.barrier(group, name);
}

std::vector<double> InStepExchange::all_reduce(transport::Group group, const std::string& name,
                                               std::vector<double> values) {
  start();
  return node_.all_reduce(group, name, std::move(values));
}

// ---- steps

void InStepExchange::prepare(const fluid::Block& block, BoundBlock& bound) {
  const fluid::TrainerBlock trainer = fluid::read_trainer_block(block);
  for (const fluid::TrainerReceive& receive : trainer.receives) {
    BoundOp& own = bound.at(receive.op);
    if (own.kind != BoundOp::Kind::kReceive) continue;
    auto notes = std::make_unique<ReceiveNotes>();
    notes->whole = receive.whole;
    notes->last = !trainer.fetch_barrier;
    own.notes = std::move(notes);
  }
}

void InStepExchange::begin_step() {
  ready();
  stepping_ = false;
  receiving_ = false;
  node_.set_phase(Phase::kComputing);
}

void InStepExchange::end_step() {
  wait_values();
  node_.set_phase(Phase::kComputing);
}

Exchange::Token InStepExchange::send(const fluid::CommCall& call, const BoundOp& bound) {
  stepping_ = true;
  const int shard = call.shard < 0 ? shards_.begin : call.shard;
  bool borrows = false;
  for (size_t i = 0; i < bound.tensors.size(); ++i) {
    const fluid::Value& gradient = *call.inputs[i];
    check_gradient(call.op, bound.tensors[i], gradient);
    push(bound.tensors[i], shard, gradient);
    borrows = borrows || !bound.tensors[i].rows;
  }
  // What left early goes on leaving while the backward pass computes.
  if (!node_.client().idle()) node_.poll();
  // Sums over several shards have memory of their own.
  if (!borrows || shards_.count() > 1 || node_.client().drained()) return nullptr;
  return std::make_unique<PushToken>(*this);
}

void InStepExchange::push(const RemoteTensor& place, int shard, const fluid::Value& gradient) {
  SyncClient& client = node_.client();
  const auto* rows = std::get_if<fluid::SelectedRows>(&gradient);
  for (const RemotePart& part : place.parts) {
    if (rows == nullptr) {
      const auto& tensor = std::get<fluid::Tensor>(gradient);
      client.push(part.remote, shard, tensor.raw() + part.offset, part.bytes);
    } else if (place.parts.size() == 1 && part.stride == 1) {
      client.push_rows(part.remote, shard, *rows);
    } else {
      client.push_rows(part.remote, shard, rows_of_part(place, part, *rows));
    }
  }
}

// Slices that are joined are received where they belong, as views of the whole.
bool InStepExchange::view_whole(const fluid::CommCall& call, const BoundOp& bound,
                                const std::string& name) {
  if (name.empty() || bound.tensors.empty()) return false;
  fluid::Value* value = call.scope.find(name);
  auto* whole = value == nullptr ? nullptr : std::get_if<fluid::Tensor>(value);
  int64_t rows = 0;
  for (const RemoteTensor& slice : bound.tensors) rows += slice.shape[0];
  if (whole == nullptr || !whole->initialized() || !whole->place().is_cpu() ||
      whole->layout() != fluid::Layout::kPlain || whole->dtype() != bound.tensors.front().dtype ||
      whole->shape().rank() == 0 || whole->shape()[0] != rows) {
    return false;
  }
  int64_t row = 0;
  for (size_t i = 0; i < bound.tensors.size(); ++i) {
    fluid::Tensor& slice = dense(*call.outputs[i]);
    const int64_t end = row + bound.tensors[i].shape[0];
    fluid::Tensor view = whole->rows(row, end);
    if (!(view.shape() == bound.tensors[i].shape)) return false;
    if (!slice.initialized() || slice.raw() != view.raw()) slice = std::move(view);
    row = end;
  }
  return true;
}

Exchange::Token InStepExchange::receive(const fluid::CommCall& call, const BoundOp& bound) {
  const auto& notes = static_cast<const ReceiveNotes&>(*bound.notes);
  const bool viewed = view_whole(call, bound, notes.whole);
  for (size_t i = 0; i < bound.tensors.size(); ++i) {
    const RemoteTensor& wanted = bound.tensors[i];
    fluid::Tensor& tensor = dense(*call.outputs[i]);
    if (!viewed) tensor.reset(wanted.dtype, wanted.shape);
    for (const RemotePart& part : wanted.parts) {
      node_.client().receive(part.remote, tensor.raw() + part.offset, part.bytes);
    }
    receiving_ = true;
  }
  return notes.last ? std::make_unique<ReceiveToken>(*this) : nullptr;
}

// Asks for what was registered: the end of a step when anything was sent, else as things are.
void InStepExchange::conclude() {
  if (stepping_) {
    node_.client().finish_step();
  } else if (receiving_) {
    node_.client().fetch();
  }
  stepping_ = false;
  receiving_ = false;
}

void InStepExchange::wait_values() {
  const bool fetching = stepping_ || receiving_;
  if (!fetching && node_.client().drained()) return;
  if (fetching) {
    conclude();
  } else {
    node_.client().flush();
  }
  node_.wait(Phase::kReceiving, "fetch_barrier");
}

// ---- requests

void InStepExchange::request(Phase phase, std::string_view what, const Ask& ask) {
  finish_request(phase, what, begin_request(ask));
}

Exchange::Request InStepExchange::begin_request(const Ask& ask) {
  const auto outcome = std::make_shared<std::optional<Status>>();
  ask(node_.client(), [outcome](const Status& status) { *outcome = status; });
  return outcome;
}

// Not until the client is idle: gradients of other shards may wait for one that comes after this.
void InStepExchange::finish_request(Phase phase, std::string_view what, const Request& request) {
  node_.wait_until([&request] { return request->has_value(); }, phase, what);
  (*request)->throw_if_error();
}

void InStepExchange::fetch(Phase phase, std::span<const RemoteMemory> values) {
  for (const RemoteMemory& value : values) {
    node_.client().receive(value.remote, value.memory, value.bytes);
  }
  node_.client().fetch();
  node_.wait(phase, "pull");
}

void InStepExchange::assign(std::span<const RemoteMemory> values) {
  for (const RemoteMemory& value : values) {
    node_.client().assign(value.remote, value.memory, value.bytes);
  }
  node_.wait(Phase::kLoading, "assign");
}

}  // namespace fleet::strategies
