#include "strategies/collective/collective_runtime.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/strings.h"
#include "fluid/ops/distributed/comm.h"
#include "fluid/ops/distributed/trainer_program.h"
#include "fluid/ops/optimize/dgc.h"
#include "strategies/collective/rank_ops.h"
#include "strategies/collective/same_parameters.h"
#include "transport/mpi/mpi_communicator.h"

namespace fleet::strategies {
namespace {

using transport::ElementType;

int resolve(int asked, const role_maker::ClusterSpec& cluster) {
  return asked == 0 ? cluster.worker_num : asked;
}

// How the program numbers the step; 0 where it does not.
int64_t counter_in(const fluid::Scope& scope) {
  const fluid::Value* value = scope.find(fluid::kDgcCounter);
  const auto* counter = value == nullptr ? nullptr : std::get_if<fluid::Tensor>(value);
  return counter == nullptr || !counter->initialized() ? 0 : counter->item<int64_t>();
}

std::vector<fluid::Tensor*> tensors_in(const std::vector<std::string>& names,
                                       const fluid::Scope& scope) {
  std::vector<fluid::Tensor*> found;
  for (const std::string& name : names) {
    fluid::Value* value = scope.find(name);
    auto* tensor = value == nullptr ? nullptr : std::get_if<fluid::Tensor>(value);
    if (tensor != nullptr && tensor->initialized()) found.push_back(tensor);
  }
  return found;
}

uint64_t total_bytes(std::span<fluid::Tensor* const> tensors) {
  uint64_t bytes = 0;
  for (const fluid::Tensor* tensor : tensors) bytes += tensor->bytes();
  return bytes;
}

}  // namespace

// Of a step that was given up, a token is done.
class CollectiveRuntime::Token : public fluid::CommToken {
 public:
  Token(GradientReducer& reducer, size_t first, size_t count)
      : reducer_(reducer), first_(first), end_(first + count), generation_(reducer.generation()) {}
  bool done() const override {
    for (size_t i = first_; i < end_ && !over(); ++i) {
      if (!reducer_.test(i)) return false;
    }
    return true;
  }
  void wait() override {
    for (size_t i = first_; i < end_ && !over(); ++i) reducer_.wait(i);
  }
  bool lead_device() override {
    for (size_t i = first_; i < end_ && !over(); ++i) reducer_.lead(i);
    return true;
  }

 private:
  bool over() const { return generation_ != reducer_.generation(); }

  GradientReducer& reducer_;
  size_t first_;  // gradients [first, end) of the step
  size_t end_;
  uint64_t generation_;
};

// Rows are summed when everything dense is under way.
class CollectiveRuntime::RowToken : public fluid::CommToken {
 public:
  explicit RowToken(CollectiveRuntime& runtime)
      : runtime_(runtime), generation_(runtime.reducer_->generation()) {}
  bool done() const override { return over() || !runtime_.rows_->pending(); }
  void wait() override {
    if (!over()) runtime_.finish_sums();
  }

 private:
  bool over() const { return generation_ != runtime_.reducer_->generation(); }

  CollectiveRuntime& runtime_;
  uint64_t generation_;
};

CollectiveRuntime::CollectiveRuntime(role_maker::ClusterSpec cluster, Connect connect,
                                     CollectiveRuntimeOptions options)
    : cluster_(std::move(cluster)),
      connect_(std::move(connect)),
      options_(std::move(options)),
      layout_(cluster_.worker_num, resolve(options_.logical_shards, cluster_)),
      one_each_(cluster_.worker_num, cluster_.worker_num) {
  options_.reducer.factor = [this] { return contribution_factor(); };
  if (options_.local_sgd) average_.emplace(*options_.local_sgd, options_.reducer);
}

CollectiveRuntime::~CollectiveRuntime() = default;

void CollectiveRuntime::connect() {
  if (communicator_) return;
  auto made = connect_();
  if (made->rank() != cluster_.index || made->size() != cluster_.worker_num) {
    throw_error(ErrorCode::kHandshakeRefused,
                {.what = "the communicator is not that of this job",
                 .where = cluster_.process_name(),
                 .expected = str_cat("rank ", cluster_.index, " of ", cluster_.worker_num),
                 .got = str_cat("rank ", made->rank(), " of ", made->size()),
                 .fix = "start all workers of the job with one launcher"});
  }
  communicator_ = std::move(made);
  reducer_ = std::make_unique<GradientReducer>(*communicator_, layout_, options_.reducer);
  rows_ = std::make_unique<RowReducer>(*communicator_, layout_, options_.reducer);
  agreement_ = std::make_unique<RankAgreement>(*communicator_, options_.reducer);
  empty_ = std::make_unique<EmptyContribution>(*communicator_, average_ ? one_each_ : layout_,
                                               options_.reducer);
}

transport::CollectiveCommunicator& CollectiveRuntime::communicator() {
  connect();
  return *communicator_;
}

bool CollectiveRuntime::sums_on(const fluid::Place& place) {
  connect();
  // Of 16 bits, the reducer makes floats on the host.
  if (place.is_cpu() || communicator_->size() == 1 || !options_.connect_devices || average_ ||
      options_.reducer.wire) {
    return false;
  }
  if (!device_) {
    device_ = place;
    device_communicator_ = options_.connect_devices(*communicator_, place);
    if (device_communicator_ != nullptr) {
      device_reducer_ =
          std::make_unique<GradientReducer>(*device_communicator_, layout_, options_.reducer);
      device_empty_ =
          std::make_unique<EmptyContribution>(*device_communicator_, layout_, options_.reducer);
    }
  }
  return device_communicator_ != nullptr && *device_ == place;
}

void CollectiveRuntime::disconnect() {
  if (!communicator_) return;
  device_empty_.reset();
  device_reducer_.reset();
  device_communicator_.reset();
  device_.reset();
  empty_.reset();
  agreement_.reset();
  rows_.reset();
  reducer_.reset();
  communicator_.reset();
}

fluid::StepShards CollectiveRuntime::shards() const {
  const ShardRange own = layout_.range(cluster_.index);
  return {.begin = own.begin, .end = own.end, .total = layout_.shards()};
}

void CollectiveRuntime::begin_step(const fluid::Program& program, uint64_t step) {
  connect();
  reducer_->begin_step(step);
  if (device_reducer_) device_reducer_->begin_step(step);
  rows_->begin_step(step);
  stepping_ = !average_ && communicator_->size() > 1 && trains(program);
  said_ = false;
}

// Once a step, before the first exchange: its schedules have run.
void CollectiveRuntime::say_step(const fluid::CommCall* call) {
  if (!stepping_ || std::exchange(said_, true)) return;
  agreement_->begin({.kind = Intent::Kind::kStep,
                     .shards = shards().count(),
                     .counter = call == nullptr ? 0 : counter_in(call->scope)},
                    reducer_->step());
  if (call != nullptr) compare_parameters(call);
}

// In one order at all ranks: first what is dense, then the rows.
void CollectiveRuntime::finish_sums() {
  reducer_->finish();
  if (device_reducer_) device_reducer_->lead_all();
  if (!rows_->pending()) return;
  row_gradients_ = rows_->gradients();
  rows_->finish(contribution_factor());
}

void CollectiveRuntime::wait_for_leads() {
  if (device_reducer_) device_reducer_->wait_for_leads();
}

void CollectiveRuntime::end_step(const fluid::Program&, uint64_t) {
  say_step(nullptr);
  finish_sums();
  wait_for_leads();
  if (!stepping_) return;
  agreement_->finish();
  stepping_ = false;
  ++steps_;
}

std::unique_ptr<fluid::CommToken> CollectiveRuntime::run(const fluid::CommCall& call) {
  connect();
  const std::string& type = call.op.type;
  if (type == "c_allreduce_sum") {
    say_step(&call);
    return all_reduce(call);
  }
  if (is_rank_op(type)) {
    require_one_shard(call);
    run_rank_op(call, *communicator_, options_.reducer);
    return nullptr;
  }
  if (type == "c_sync_comm_stream") {
    const bool last_shard = call.shard < 0 || call.shard + 1 == shards().end;
    if (last_shard) finish_sums();
    return nullptr;
  }
  if (type == "c_local_sgd" && average_) {
    local_sgd(call);
    return nullptr;
  }
  if (type == "c_broadcast") {
    broadcast(call);
    return nullptr;
  }
  if (type == "c_comm_init") {
    init_communicator(call);
    return nullptr;
  }
  // The calling thread has finished what it computed, and ranks on CPU need no id.
  if (type == "c_sync_calc_stream" || type == "c_gen_nccl_id" || type == "gen_nccl_id" ||
      type == "c_comm_init_all") {
    return nullptr;
  }
  throw_error(ErrorCode::kNotSupported, {.what = "this op does not belong to a collective job",
                                         .where = str_cat("op ", type),
                                         .expected = "an op c_… or gen_nccl_id",
                                         .got = type,
                                         .fix = "run the program with the strategy that made it"});
}

// What follows in a shard cannot wait for shards that this worker computes after it.
void CollectiveRuntime::require_one_shard(const fluid::CommCall& call) const {
  if (call.shard < 0 || shards().count() == 1) return;
  throw_error(ErrorCode::kNotSupported,
              {.what = "this op needs the values of all shards at once",
               .where = str_cat("op ", call.op.type, ", variable ", join(call.op.input("X"), ",")),
               .expected = "one logical shard a worker",
               .got = str_cat(shards().count(), " on this worker"),
               .fix = "train with as many logical shards as workers"});
}

std::unique_ptr<fluid::CommToken> CollectiveRuntime::all_reduce(const fluid::CommCall& call) {
  if (!call.inputs.empty() && call.inputs[0] != nullptr) {
    const auto* rows = std::get_if<fluid::SelectedRows>(call.inputs[0]);
    if (rows != nullptr) return all_reduce_rows(call, *rows);
  }
  if (call.inputs.empty()) fail_comm_value(call, "X");
  require_communicator(comm_input(call, 0), call);
  const bool at_once =
      fluid::parse_attributes<fluid::CAllReduceAttrs>(call.op.type, call.op.attrs).use_calc_stream;
  if (at_once) require_one_shard(call);
  const int local = call.shard < 0 ? 0 : call.shard - shards().begin;
  size_t last = 0;
  GradientReducer& reducer = reducer_of(comm_input(call, 0));
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const fluid::Tensor& input = comm_input(call, i);
    const ElementType type = comm_element_type(input, call);
    fluid::Tensor& output = comm_output(call, input, i);
    last = reducer.add(local, type, input.raw(), output.raw(), static_cast<size_t>(input.numel()));
  }
  if (at_once) finish_sums();
  if (at_once || local + 1 < shards().count()) return nullptr;
  return std::make_unique<Token>(reducer, last + 1 - call.inputs.size(), call.inputs.size());
}

// A program that was compiled while there was a communicator of devices may run when it has gone.
void CollectiveRuntime::require_communicator(const fluid::Tensor& tensor,
                                             const fluid::CommCall& call) const {
  if (tensor.place().is_cpu() || device_communicator_ != nullptr) return;
  throw_error(ErrorCode::kPrecondition, {.what = "the ranks no longer sum on devices",
                                         .where = str_cat("op ", call.op.type),
                                         .expected = "a job that goes on",
                                         .got = "one whose ranks have left",
                                         .fix = "train before stop_worker"});
}

// An op's tensors are all at one place.
GradientReducer& CollectiveRuntime::reducer_of(const fluid::Tensor& tensor) {
  return tensor.place().is_cpu() ? *reducer_ : *device_reducer_;
}

void CollectiveRuntime::sum_shards(const fluid::CommCall& call,
                                   std::span<const double* const> parts, double* out,
                                   size_t count) {
  if (average_) return CommRuntime::sum_shards(call, parts, out, count);
  connect();
  say_step(&call);
  reducer_->sum_at_once(parts, out, count);
}

std::unique_ptr<fluid::CommToken> CollectiveRuntime::all_reduce_rows(
    const fluid::CommCall& call, const fluid::SelectedRows& rows) {
  if (call.outputs.empty() || call.outputs[0] == nullptr) fail_comm_value(call, "Out");
  const int local = call.shard < 0 ? 0 : call.shard - shards().begin;
  rows_->add(local, rows, *call.outputs[0]);
  if (local + 1 < shards().count()) return nullptr;
  return std::make_unique<RowToken>(*this);
}

void CollectiveRuntime::broadcast(const fluid::CommCall& call) {
  const auto attrs = fluid::parse_attributes<fluid::CBroadcastAttrs>(call.op.type, call.op.attrs);
  const fluid::Tensor& input = comm_input(call);
  fluid::Tensor& output = comm_output(call, input);
  if (&output != &input && attrs.root == communicator_->rank()) output.copy_from(input);
  require_communicator(output, call);
  auto& communicator = output.place().is_cpu() ? *communicator_ : *device_communicator_;
  wait(communicator.broadcast({output.raw(), output.bytes()}, attrs.root,
                              {.phase = "startup broadcast"}));
}

void CollectiveRuntime::init_communicator(const fluid::CommCall& call) {
  const auto attrs = fluid::parse_attributes<fluid::CCommInitAttrs>(call.op.type, call.op.attrs);
  if (attrs.nranks == communicator_->size() && attrs.rank == communicator_->rank()) return;
  throw_error(ErrorCode::kHandshakeRefused,
              {.what = "the program was made for another place in the job",
               .where = str_cat("op c_comm_init, ring ", attrs.ring_id),
               .expected = str_cat("rank ", communicator_->rank(), " of ", communicator_->size()),
               .got = str_cat("rank ", attrs.rank, " of ", attrs.nranks),
               .fix = "make the program in the process that runs it"});
}

// From here on: what a worker does that takes no step while others take theirs, and how they meet.

bool CollectiveRuntime::trains(const fluid::Program& program) {
  const auto found = trains_.find(program.id());
  if (found != trains_.end()) return found->second;
  const bool answer = !fluid::read_rank_program(program).sums.empty();
  trains_.emplace(program.id(), answer);
  return answer;
}

// Mean over those who contributed: the program divided by all shards of the step.
double CollectiveRuntime::contribution_factor() {
  if (!stepping_) return 1;
  const int64_t shards = agreement_->finish().shards;
  return shards == layout_.shards()
             ? 1.0
             : static_cast<double>(layout_.shards()) / static_cast<double>(shards);
}

void CollectiveRuntime::expect(const fluid::Program& program) {
  const fluid::RankProgram ranks = fluid::read_rank_program(program);
  compares_ = !average_ && ranks.sums_gradients;
  if (!average_) {
    sums_ = StepSums(ranks);
    row_gradients_ = sums_.in(0).rows;
  } else if (ranks.average != nullptr) {
    averaged_ = average_->shapes(program.global_block(), *ranks.average);
  }
}

// Once; a rank that gives nothing to the first step has none.
void CollectiveRuntime::compare_parameters(const fluid::CommCall* call) {
  if (!std::exchange(compares_, false)) return;
  std::vector<NamedParameter> parameters;
  if (call != nullptr) {
    for (const auto* parameter : call->program.global_block().parameters()) {
      if (!parameter->trainable) continue;  // such as means that forward passes keep
      const auto found = tensors_in({parameter->name}, call->scope);
      if (!found.empty()) parameters.push_back({parameter->name, found.front()});
    }
  }
  require_same_parameters(parameters, *communicator_, options_.reducer);
}

// The reductions of the own last step, which the others' steps have too, unless they change.
void CollectiveRuntime::give_empty_step(int64_t counter) {
  compare_parameters(nullptr);
  if (average_) return empty_->give(averaged_, steps_);
  const StepSums::OfStep sums = sums_.in(counter);
  std::vector<ReductionShape> host = reducer_->shapes();
  std::vector<ReductionShape> device;
  if (device_reducer_) device = device_reducer_->shapes();
  if ((host.empty() && device.empty()) || sums_.change()) {
    // What is summed at once, in the middle of a step, is on the host.
    std::vector<ReductionShape> at_once;
    std::vector<ReductionShape> buckets;
    for (const ReductionShape& sum : sums.dense) {
      (device_reducer_ && !sum.at_once ? buckets : at_once).push_back(sum);
    }
    host = GradientReducer::shapes_of(at_once, options_.reducer);
    device = GradientReducer::shapes_of(buckets, options_.reducer);
  }
  empty_->give(host, steps_);
  if (device_empty_) device_empty_->give(device, steps_);
  rows_->give_nothing(sums_.change() ? sums.rows : row_gradients_, steps_);
}

// How many do.
int64_t CollectiveRuntime::meet(Intent::Kind when, Meeting kind, uint64_t size) {
  connect();
  const bool between_steps = when == Intent::Kind::kMeetBetweenSteps;
  while (true) {
    agreement_->begin({.kind = when, .meeting = kind, .size = size}, steps_);
    const Agreed& agreed = agreement_->finish();
    if (between_steps) return agreed.between_steps.ranks;
    if (agreed.stepping > 0) {
      give_empty_step(agreed.counter);
    } else if (agreed.between_steps.ranks > 0) {
      shadow(agreed.between_steps);
    } else {
      return agreed.meeting.ranks;
    }
  }
}

void CollectiveRuntime::leave() {
  if (!communicator_ || communicator_->size() == 1) return;
  while (true) {
    agreement_->begin({.kind = Intent::Kind::kLeave}, steps_);
    const Agreed& agreed = agreement_->finish();
    if (agreed.stepping > 0) {
      give_empty_step(agreed.counter);
    } else if (agreed.between_steps.ranks > 0) {
      shadow(agreed.between_steps);
    } else if (agreed.meeting.ranks > 0) {
      shadow(agreed.meeting);
    } else {
      return;
    }
  }
}

// A worker that does something else takes part in what the others meet for, with nothing.
void CollectiveRuntime::shadow(const RanksThatMeet& meeting) {
  switch (meeting.kind) {
    case Meeting::kBarrier:
      return;
    case Meeting::kReduce: {
      const ReductionShape part{ElementType::kFloat64, meeting.size};
      EmptyContribution(*communicator_, one_each_, options_.reducer).give({&part, 1}, steps_);
      return;
    }
    case Meeting::kNewest:
      share_newest({}, meeting.size);
      return;
    case Meeting::kAverage: {
      std::span<const ReductionShape> parts = averaged_;
      if (average_ && average_->schedule().adapts()) parts = parts.subspan(1);
      empty_->give(parts, steps_);
      return;
    }
  }
}

void CollectiveRuntime::barrier_worker() {
  (void)meet(Intent::Kind::kMeet, Meeting::kBarrier, 0);
}

std::vector<double> CollectiveRuntime::all_reduce_worker(std::span<const double> values) {
  return all_reduce(Intent::Kind::kMeet, values);
}

std::vector<double> CollectiveRuntime::all_reduce_between_steps(std::span<const double> values) {
  return all_reduce(Intent::Kind::kMeetBetweenSteps, values);
}

std::vector<double> CollectiveRuntime::all_reduce(Intent::Kind when,
                                                  std::span<const double> values) {
  (void)meet(when, Meeting::kReduce, values.size());
  std::vector<double> sum(values.size());
  const void* part = values.data();
  wait(communicator().all_reduce(one_each_, ElementType::kFloat64, {&part, 1}, sum.data(),
                                 sum.size(), {.phase = "all_reduce_worker"}));
  return sum;
}

void CollectiveRuntime::align(Intent::Kind when, const std::vector<std::string>& persistables,
                              const std::vector<std::string>& parameters, fluid::Scope& scope) {
  connect();
  if (communicator_->size() == 1) return;
  const auto values = tensors_in(average_ ? parameters : persistables, scope);
  const uint64_t bytes = total_bytes(values);
  const int64_t ranks = meet(when, average_ ? Meeting::kAverage : Meeting::kNewest, bytes);
  if (average_) {
    average_->average(values, *communicator_, one_each_, ranks);
  } else {
    share_newest(values, bytes);
  }
}

// Every worker says how many steps it has taken, one without values none; the first of those with
// the most gives its values to all.
void CollectiveRuntime::share_newest(std::span<fluid::Tensor* const> values, uint64_t bytes) {
  const int64_t mine = values.empty() ? -1 : static_cast<int64_t>(steps_);
  std::vector<int64_t> all(static_cast<size_t>(communicator_->size()));
  wait(communicator_->all_gather(std::as_bytes(std::span(&mine, 1)),
                                 std::as_writable_bytes(std::span(all)), {.phase = "align"}));
  const auto newest = std::max_element(all.begin(), all.end());
  const bool equal =
      std::all_of(all.begin(), all.end(), [&](int64_t n) { return n == *newest || n < 0; });
  if (equal) return;
  std::vector<std::byte> packed(bytes);
  std::byte* at = packed.data();
  for (const fluid::Tensor* value : values) {
    const fluid::Tensor host = value->on_host();
    std::memcpy(at, host.raw(), host.bytes());
    at += value->bytes();
  }
  wait(
      communicator_->broadcast(packed, static_cast<int>(newest - all.begin()), {.phase = "align"}));
  at = packed.data();
  for (fluid::Tensor* value : values) {
    fluid::Tensor host = value->on_host();
    std::memcpy(host.raw(), at, host.bytes());
    value->copy_from(host);
    at += value->bytes();
  }
}

// One local step; now and then the average over the workers that still take steps.
void CollectiveRuntime::local_sgd(const fluid::CommCall& call) {
  ++steps_;
  if (!average_->step(call) || communicator_->size() == 1) return;
  agreement_->begin({.kind = Intent::Kind::kStep, .shards = 1}, steps_);
  const Agreed& agreed = agreement_->finish();
  average_->average(call, *communicator_, one_each_, agreed.stepping);
}

void CollectiveRuntime::wait(transport::CollectiveToken token) {
  wait_for(token, options_.reducer);
}

std::unique_ptr<transport::CollectiveCommunicator> connect_over_mpi(
    const role_maker::ClusterSpec& cluster, const std::string& identity, Duration timeout) {
  if (cluster.worker_num == 1) return transport::single_communicator();
  auto& session = transport::MpiSession::get();
  if (session.size() != cluster.worker_num || session.rank() != cluster.index) {
    throw_error(ErrorCode::kEnvironment,
                {.what = "the MPI world is not the job's workers",
                 .where = cluster.process_name(),
                 .expected = str_cat("MPI rank ", cluster.index, " of ", cluster.worker_num),
                 .got = str_cat("MPI rank ", session.rank(), " of ", session.size()),
                 .fix = str_cat("start the workers with launch --nproc_per_node ",
                                cluster.worker_num, ", or with mpirun -np ", cluster.worker_num)});
  }
  const std::string mine = str_cat(cluster.job_id, " ", identity);
  const auto all = session.all_gather(mine, timeout).value();
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == mine) continue;
    throw_error(ErrorCode::kHandshakeRefused,
                {.what = "two workers do not run the same job",
                 .where = str_cat("ranks ", session.rank(), " and ", rank),
                 .expected = str_cat("job and program ", mine),
                 .got = str_cat(all[rank], " at rank ", rank),
                 .fix = "start every worker from the same program, options and job id"});
  }
  return std::move(transport::make_mpi_communicator(session, timeout).value());
}

}  // namespace fleet::strategies
