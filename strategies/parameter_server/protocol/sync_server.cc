#include "strategies/parameter_server/protocol/sync_server.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/strings.h"
#include "strategies/parameter_server/errors.h"

namespace fleet::strategies {
namespace {

using transport::PayloadTarget;

}  // namespace

SyncServer::SyncServer(SyncServerOptions options, SyncServerSink& sink)
    : options_(std::move(options)),
      sink_(sink),
      contributors_(options_.workers, options_.shards),
      add_(contributors_),
      rows_(options_.slices, contributors_, options_.mutations.sum_on_arrival),
      workers_(options_.workers) {
  uint32_t pieces = 0;
  for (const auto& geometry : options_.slices) {
    Slice slice;
    slice.geometry = geometry;
    slice.pieces = geometry.rows ? 0 : pieces_of(geometry.bytes);
    slice.first_piece = pieces;
    if (!options_.stages.empty()) slice.stages = options_.stages.at(slices_.size());
    pieces += slice.pieces;
    slices_.push_back(slice);
  }
  options_.variables = std::max(options_.variables, static_cast<uint32_t>(slices_.size()));
  pieces_.resize(pieces);
  slots_.resize(size_t{pieces} * contributors_.size());
  waiters_.reserve(2 * options_.workers);
  reset_step();
  recount();
}

Status SyncServer::check(const Sender& sender, const PieceKey& key, int& contributor) const {
  const bool rows = key.rows.has_value();
  if (key.variable >= slices_.size() || rows != slices_[key.variable].geometry.rows ||
      (!rows && key.piece >= slices_[key.variable].pieces)) {
    return bad_frame(
        "a gradient came for a slice that is not here",
        str_cat("one of ", slices_.size(), " slices"),
        str_cat("variable ", key.variable, ", piece ", key.piece, rows ? ", rows" : ""));
  }
  contributor = contributors_.find(key.shard_begin, key.shard_end);
  if (contributor < 0 ||
      contributors_[static_cast<uint32_t>(contributor)].worker != sender.worker) {
    return bad_frame("a gradient came for shards that are not its sender's",
                     str_cat("shards of worker ", sender.worker),
                     str_cat("shards [", key.shard_begin, ", ", key.shard_end, ")"));
  }
  if (key.step == 0 || key.step > collecting() || key.step > workers_[sender.worker].last_step) {
    return bad_frame(str_cat("a gradient of worker ", sender.worker, " is ahead of the server"),
                     str_cat("step ", collecting(), " at most"), str_cat("step ", key.step));
  }
  return {};
}

bool SyncServer::already_has(const PieceKey& key, const Slot& slot) const {
  if (options_.mutations.no_deduplication) return false;
  return key.step <= published_ || slot.have == key.step;
}

size_t SyncServer::slot_index(const PieceKey& key, int contributor) const {
  const size_t piece = size_t{slices_[key.variable].first_piece} + key.piece;
  return piece * contributors_.size() + static_cast<size_t>(contributor);
}

PayloadTarget SyncServer::prepare_push(const Sender& sender, const PieceKey& key, uint64_t bytes) {
  int contributor = 0;
  Status status = check(sender, key, contributor);
  if (!status.ok()) return PayloadTarget::refuse(std::move(status));
  if (key.rows) {
    return rows_.prepare(sender.session, key, static_cast<uint32_t>(contributor), bytes,
                         collecting());
  }
  const uint64_t size = piece_bytes(slices_[key.variable].geometry.bytes, key.piece);
  if (bytes != size) {
    return PayloadTarget::refuse(
        bad_frame("a piece has the wrong size", str_cat(size, " bytes"), str_cat(bytes, " bytes")));
  }
  const size_t index = slot_index(key, contributor);
  Slot& slot = slots_[index];
  if (already_has(key, slot)) return PayloadTarget::discard();
  if (slot.lent != 0 && slot.lent != sender.session) {
    // An older connection is still in the middle of the same piece.
    Buffer memory(size);
    std::erase_if(extras_, [&](const Extra& extra) { return extra.session == sender.session; });
    extras_.push_back({sender.session, index, memory});
    return PayloadTarget::into({memory.data(), size}, memory.owner());
  }
  if (!slot.memory) {
    if (size == transport::kPieceBytes && !pool_.empty()) {
      slot.memory = std::move(pool_.back());
      pool_.pop_back();
    } else {
      slot.memory = Buffer(size);
      std::memset(slot.memory.data(), 0, size);
    }
  }
  slot.lent = sender.session;
  return PayloadTarget::into({slot.memory.data(), size}, slot.memory.owner());
}

Status SyncServer::push(const Sender& sender, const PieceKey& key,
                        transport::MutableBytes payload) {
  int contributor = 0;
  Status status = check(sender, key, contributor);
  if (!status.ok()) return status;
  if (key.rows) return push_rows(sender, key, static_cast<uint32_t>(contributor), payload);
  const size_t index = slot_index(key, contributor);
  Slot& slot = slots_[index];
  if (slot.memory && payload.data() == slot.memory.data()) {
    slot.lent = 0;
    if (already_has(key, slot)) return {};
  } else {
    const auto extra = std::find_if(extras_.begin(), extras_.end(), [&](const Extra& e) {
      return e.session == sender.session && e.memory.data() == payload.data();
    });
    if (extra == extras_.end()) return {};  // discarded
    Buffer memory = std::move(extra->memory);
    extras_.erase(extra);
    if (already_has(key, slot)) return {};
    slot.memory = std::move(memory);
    slot.lent = 0;
  }
  take(key, static_cast<uint32_t>(contributor), sender.worker);
  return {};
}

Status SyncServer::push_rows(const Sender& sender, const PieceKey& key, uint32_t contributor,
                             transport::ConstBytes payload) {
  const Result<bool> taken = rows_.take(sender.session, key, contributor, payload, collecting());
  if (!taken.ok()) return taken.status();
  if (!taken.value()) return {};
  contributed_ = true;
  ++workers_[sender.worker].received;
  settle_rows(key.variable);
  maybe_close();
  return {};
}

// Rows are settled when every contributor's are in.
void SyncServer::settle_rows(uint32_t slice) {
  if (rows_.present(slice, collecting()).size() >= expected_) settle(slice, shards_in(slice));
}

SyncServer::Piece& SyncServer::piece_of(const PieceKey& key) {
  Piece& piece = pieces_[slices_[key.variable].first_piece + key.piece];
  if (piece.step != collecting()) {
    piece.step = collecting();
    piece.count = 0;
    piece.summed = false;
    piece.arrivals.clear();
  }
  return piece;
}

void SyncServer::take(const PieceKey& key, uint32_t contributor, uint32_t worker) {
  contributed_ = true;
  slots_[slot_index(key, static_cast<int>(contributor))].have = collecting();
  Piece& piece = piece_of(key);
  ++piece.count;
  ++workers_[worker].received;
  if (options_.mutations.sum_on_arrival) piece.arrivals.push_back(contributor);
  if (piece.count >= expected_ && !piece.summed) {
    sum_piece(key.variable, key.piece);
    maybe_settle(key.variable);
  }
  maybe_close();
}

template <class T>
void SyncServer::sum_as(uint32_t slice, uint32_t piece, std::vector<const T*>& arrays) {
  const uint64_t bytes = piece_bytes(slices_[slice].geometry.bytes, piece);
  const size_t flat = size_t{slices_[slice].first_piece} + piece;
  T* out = reinterpret_cast<T*>(sink_.gradient(slice).data() + piece_offset(piece));
  const size_t n = bytes / sizeof(T);
  arrays.clear();
  for (uint32_t i = 0; i < contributors_.size(); ++i) {
    const Slot& slot = slots_[flat * contributors_.size() + i];
    arrays.push_back(reinterpret_cast<const T*>(slot.memory.data()));
  }
  if (options_.mutations.sum_on_arrival) {
    ContributorSum::in_order<T>(arrays, pieces_[flat].arrivals, out, n);
  } else {
    add_(std::span<const T* const>(arrays), std::span<const uint32_t>(present_), out, n);
  }
}

void SyncServer::sum_piece(uint32_t slice, uint32_t piece) {
  const size_t flat = size_t{slices_[slice].first_piece} + piece;
  const size_t first_slot = flat * contributors_.size();
  const bool take_all = options_.mutations.no_deduplication;
  present_.clear();
  for (uint32_t i = 0; i < contributors_.size(); ++i) {
    const Slot& slot = slots_[first_slot + i];
    if (slot.memory && (take_all || slot.have == collecting())) present_.push_back(i);
  }
  switch (slices_[slice].geometry.dtype) {
    case fluid::DType::kFloat64:
      sum_as(slice, piece, arrays_f64_);
      break;
    case fluid::DType::kInt64:
      sum_as(slice, piece, arrays_i64_);
      break;
    default:
      sum_as(slice, piece, arrays_f32_);
  }
  pieces_[flat].summed = true;
  ++slices_[slice].summed;
  release(first_slot);
}

// Whole pieces give their memory back, so that a large slice is collected through memory that is
// still in the cache; small ones keep theirs.
void SyncServer::release(size_t first_slot) {
  for (size_t i = first_slot; i < first_slot + contributors_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.memory.size() != transport::kPieceBytes || options_.mutations.no_deduplication) {
      continue;
    }
    if (slot.lent == 0) pool_.push_back(std::move(slot.memory));
    slot.memory = Buffer();
    slot.lent = 0;
  }
}

void SyncServer::maybe_settle(uint32_t slice) {
  if (slices_[slice].summed == slices_[slice].pieces) settle(slice, shards_in(slice));
}

int SyncServer::shards_in(uint32_t slice) const {
  if (slices_[slice].geometry.rows) {
    int shards = 0;
    for (const uint32_t i : rows_.present(slice, collecting())) {
      shards += contributors_[i].node.size();
    }
    return shards;
  }
  const size_t first_slot = size_t{slices_[slice].first_piece} * contributors_.size();
  int shards = 0;
  for (uint32_t i = 0; i < contributors_.size(); ++i) {
    if (slots_[first_slot + i].have == collecting()) shards += contributors_[i].node.size();
  }
  return shards;
}

void SyncServer::begin_step() {
  if (rate_ready_) return;
  rate_ready_ = true;
  sink_.begin_step(collecting());
}

// The gradient of the slice is complete.
void SyncServer::settle(uint32_t index, int shards) {
  Slice& slice = slices_[index];
  if (slice.settled) return;
  slice.settled = true;
  slice.shards = shards;
  if (slice.geometry.rows && shards > 0) rows_.sum(index, collecting(), *sink_.rows(index));
  begin_step();
  if (slice.stages <= 1) return update(index);
  sink_.prepare(index, collecting(), shards, 0);
  if (--unsettled_ == 0) run_exchanges();
}

void SyncServer::update(uint32_t slice) {
  if (sink_.update_aside(slice, collecting(), slices_[slice].shards)) {
    ++updating_;
    return;
  }
  sink_.update(slice, collecting(), slices_[slice].shards);
  publish(slice);
}

void SyncServer::updated(uint32_t slice) {
  publish(slice);
  if (--updating_ > 0) return;
  for (const GetCall& call : std::exchange(deferred_, {})) answer_now(call);
  maybe_close();
}

// As far as the other servers' parts allow; true when the step has no exchange left.
bool SyncServer::run_exchanges() {
  while (exchange_ < options_.exchanges) {
    if (!offered_) {
      offered_ = true;
      sink_.begin_exchange(collecting(), exchange_);
    }
    if (!sink_.exchange_complete(exchange_)) return false;
    sink_.end_exchange(collecting(), exchange_);
    offered_ = false;
    ++exchange_;
    for (uint32_t i = 0; i < slices_.size(); ++i) {
      const uint32_t stages = slices_[i].stages;
      if (stages == exchange_ + 1) update(i);
      if (stages > exchange_ + 1) sink_.prepare(i, collecting(), slices_[i].shards, exchange_);
    }
  }
  return true;
}

void SyncServer::exchange_advanced() {
  if (!offered_) return;
  run_exchanges();
  maybe_close();
}

void SyncServer::publish(uint32_t slice) {
  slices_[slice].version = collecting();
  for (auto& waiter : waiters_) {
    if (wants(waiter.call, slice)) offer(waiter, slice);
  }
}

void SyncServer::offer(Waiter& waiter, uint32_t variable) {
  if (--waiter.remaining == 0) {
    waiter.held = variable;
  } else {
    sink_.answer(waiter.call, variable, false);
  }
}

Status SyncServer::barrier(uint32_t worker, uint64_t step, uint32_t count) {
  if (step == 0 || step > collecting() || step > workers_[worker].last_step) {
    return bad_frame(str_cat("a barrier of worker ", worker, " is ahead of the server"),
                     str_cat("step ", collecting(), " at most"), str_cat("step ", step));
  }
  if (step <= published_) return {};
  contributed_ = true;
  workers_[worker].barrier_step = step;
  workers_[worker].announced = count;
  maybe_close();
  return {};
}

bool SyncServer::barriers_in() const {
  bool any = false;
  for (uint32_t i = 0; i < workers_.size(); ++i) {
    if (!active(i)) continue;
    any = true;
    const Worker& worker = workers_[i];
    if (worker.barrier_step != collecting()) return false;
    const int64_t wanted = int64_t{worker.announced} + options_.mutations.barrier_count_delta;
    if (int64_t{worker.received} < wanted) return false;
  }
  return any;
}

void SyncServer::maybe_close() {
  while (barriers_in() && close()) {
  }
}

// No more comes for this step: what there is has to do.
void SyncServer::settle_rest() {
  for (uint32_t i = 0; i < slices_.size(); ++i) {
    if (slices_[i].settled) continue;
    const int shards = shards_in(i);
    for (uint32_t piece = 0; shards > 0 && piece < slices_[i].pieces; ++piece) {
      if (!piece_of({collecting(), i, piece, 0, 0}).summed) sum_piece(i, piece);
    }
    settle(i, shards);
  }
}

// False when other servers' parts of an exchange are missing, or updates go on.
bool SyncServer::close() {
  settle_rest();
  begin_step();
  if (!run_exchanges() || updating_ > 0) return false;
  reset_step();
  for (auto& worker : workers_) worker.received = 0;
  ++published_;
  std::vector<Waiter> done;
  std::swap(done, waiters_);
  for (const auto& waiter : done) finish(waiter);
  done.clear();
  if (waiters_.empty()) std::swap(done, waiters_);  // keeps the capacity
  sink_.step_closed(published_);
  recount();
  return true;
}

void SyncServer::reset_step() {
  rate_ready_ = false;
  exchange_ = 0;
  unsettled_ = 0;
  for (auto& slice : slices_) {
    slice.summed = 0;
    slice.settled = false;
    if (slice.stages > 1) ++unsettled_;
  }
}

void SyncServer::finish(const Waiter& waiter) {
  if (waiter.held != kNothing) {
    sink_.answer(waiter.call, waiter.held, true);
    return;
  }
  std::vector<uint32_t> rest;  // what is no slice, and so only whole steps have versions of
  each_wanted(waiter.call, [&](uint32_t variable) {
    if (variable >= slices_.size()) rest.push_back(variable);
  });
  for (size_t i = 0; i < rest.size(); ++i) {
    sink_.answer(waiter.call, rest[i], i + 1 == rest.size());
  }
  if (rest.empty()) sink_.answer_empty(waiter.call);
}

// Who contributes to the next step; what is there already may now be enough.
void SyncServer::recount() {
  expected_ = 0;
  bool anyone = false;
  for (uint32_t i = 0; i < workers_.size(); ++i) {
    if (!active(i)) continue;
    anyone = true;
    expected_ += contributors_.last_of(i) - contributors_.first_of(i);
  }
  if (!anyone) {
    if (!complete_) {
      complete_ = true;
      sink_.all_complete();
    }
    return;
  }
  for (uint32_t i = 0; i < slices_.size(); ++i) {
    Slice& slice = slices_[i];
    if (slice.geometry.rows && !slice.settled) settle_rows(i);
    if (slice.settled || slice.pieces == 0) continue;
    for (uint32_t k = 0; k < slice.pieces; ++k) {
      const Piece& piece = piece_of({collecting(), i, k, 0, 0});
      if (piece.count >= expected_ && !piece.summed) sum_piece(i, k);
    }
    maybe_settle(i);
  }
}

Status SyncServer::complete(uint32_t worker, uint64_t last_step) {
  if (completed(worker)) return {};
  if (last_step > collecting()) {
    return bad_frame(str_cat("worker ", worker, " completed a step that was not begun"),
                     str_cat("step ", collecting(), " at most"), str_cat("step ", last_step));
  }
  workers_[worker].last_step = last_step;
  recount();
  maybe_close();
  return {};
}

bool SyncServer::wants(const GetCall& call, uint32_t variable) const {
  if (call.all) return variable < slices_.size() && variable % options_.lanes == call.lane;
  return std::find(call.variables.begin(), call.variables.end(), variable) != call.variables.end();
}

template <class Visit>
void SyncServer::each_wanted(const GetCall& call, const Visit& visit) const {
  if (call.all) {
    for (uint32_t i = call.lane; i < slices_.size(); i += options_.lanes) visit(i);
  } else {
    for (const uint32_t variable : call.variables) visit(variable);
  }
}

Status SyncServer::get(GetCall call) {
  if (call.step > collecting()) {
    return bad_frame("values were asked for that are ahead of the server",
                     str_cat("step ", collecting(), " at most"), str_cat("step ", call.step));
  }
  if (call.all && call.lane >= options_.lanes) {
    return bad_frame("values were asked for on a lane that is not there",
                     str_cat(options_.lanes, " lanes"), str_cat("lane ", call.lane));
  }
  uint32_t wanted = 0;
  bool known = true;
  each_wanted(call, [&](uint32_t variable) {
    ++wanted;
    known = known && variable < options_.variables;
  });
  if (!known) {
    return bad_frame("values were asked for that are not here",
                     str_cat("ids below ", options_.variables), "another id");
  }
  if (call.step <= published_) {
    if (updating_ == 0) {
      answer_now(call);
      return {};
    }
    if (deferred_.size() >= kMaxWaiting * options_.workers) {
      return bad_frame("too many gets wait", str_cat(kMaxWaiting, " a worker"), "another one");
    }
    deferred_.push_back(std::move(call));
    return {};
  }
  size_t waiting = 0;
  for (const Waiter& waiter : waiters_) {
    if (waiter.call.session != call.session) continue;
    if (waiter.call.request == call.request) return {};  // sent again
    ++waiting;
  }
  if (waiting >= kMaxWaiting) {
    return bad_frame("too many gets wait on one connection", str_cat(kMaxWaiting, " at most"),
                     "another one");
  }
  waiters_.push_back({std::move(call), wanted, kNothing});
  Waiter& waiter = waiters_.back();
  each_wanted(waiter.call, [&](uint32_t variable) {
    if (variable < slices_.size() && slices_[variable].version >= waiter.call.step) {
      offer(waiter, variable);
    }
  });
  return {};
}

void SyncServer::answer_now(const GetCall& call) {
  uint32_t left = 0;
  each_wanted(call, [&](uint32_t) { ++left; });
  if (left == 0) sink_.answer_empty(call);
  each_wanted(call, [&](uint32_t variable) { sink_.answer(call, variable, --left == 0); });
}

void SyncServer::drop_session(uint64_t session) {
  std::erase_if(deferred_, [&](const GetCall& call) { return call.session == session; });
  std::erase_if(waiters_, [&](const Waiter& w) { return w.call.session == session; });
  std::erase_if(extras_, [&](const Extra& extra) { return extra.session == session; });
  rows_.drop_session(session);
  for (auto& slot : slots_) {
    if (slot.lent == session) slot.lent = 0;
  }
}

std::vector<uint32_t> SyncServer::missing() const {
  std::vector<uint32_t> workers;
  for (uint32_t i = 0; i < workers_.size(); ++i) {
    if (active(i) && workers_[i].barrier_step != collecting()) workers.push_back(i);
  }
  return workers;
}

SyncServerMemory SyncServer::memory() const {
  SyncServerMemory memory{options_.epoch, published_, {}};
  for (const auto& worker : workers_) memory.last_steps.push_back(worker.last_step);
  return memory;
}

void SyncServer::restore(const SyncServerMemory& memory) {
  if (!untouched() || memory.last_steps.size() != workers_.size()) {
    throw_error(ErrorCode::kPrecondition,
                {.what = "a server's memory can be restored only before it serves",
                 .where = "parameter server",
                 .expected = str_cat("an untouched server and ", workers_.size(), " workers"),
                 .got = str_cat(memory.last_steps.size(), " workers, step ", published_),
                 .fix = "restore right after start, with the same number of workers"});
  }
  published_ = memory.step;
  for (size_t i = 0; i < workers_.size(); ++i) workers_[i].last_step = memory.last_steps[i];
  for (auto& slice : slices_) slice.version = published_;
  recount();
}

}  // namespace fleet::strategies
