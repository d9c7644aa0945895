#include "strategies/parameter_server/protocol/async_server.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/strings.h"
#include "strategies/parameter_server/errors.h"

namespace fleet::strategies {
namespace {

using transport::PayloadTarget;

uint64_t first_clock(const PieceKey& key) {
  return key.step - (key.shard_end - key.shard_begin);
}

}  // namespace

void StalenessStatistics::add(uint64_t staleness) {
  ++updates;
  sum += staleness;
  max = std::max(max, staleness);
  ++histogram[std::min<size_t>(staleness, histogram.size() - 1)];
}

AsyncServer::AsyncServer(AsyncServerOptions options, AsyncServerSink& sink)
    : options_(std::move(options)),
      rules_(options_.rules ? options_.rules : std::make_shared<const AsyncServerRules>()),
      sink_(sink),
      workers_(options_.workers),
      training_(options_.workers) {
  for (const auto& geometry : options_.slices) {
    Slice& slice = slices_.emplace_back();
    slice.geometry = geometry;
    slice.pieces = std::max(1U, pieces_of(geometry.bytes));
    slice.clocks.emplace(0, options_.workers);
  }
  options_.variables = std::max(options_.variables, static_cast<uint32_t>(slices_.size()));
  for (auto& worker : workers_) worker.streams.resize(slices_.size());
}

// ---- gradients

Status AsyncServer::check(const Sender& sender, const PieceKey& key) const {
  const bool rows = key.rows.has_value();
  if (key.variable >= slices_.size() || rows != slices_[key.variable].geometry.rows ||
      (!rows && key.piece >= slices_[key.variable].pieces)) {
    return bad_frame(
        "a gradient came for a slice that is not here",
        str_cat("one of ", slices_.size(), " slices"),
        str_cat("variable ", key.variable, ", piece ", key.piece, rows ? ", rows" : ""));
  }
  if (key.shard_begin != 0 || key.shard_end == 0 || key.step < key.shard_end) {
    return bad_frame(
        "a gradient does not say which clocks it is of", "clocks (step - n, step] as shards [0, n)",
        str_cat("step ", key.step, ", shards [", key.shard_begin, ", ", key.shard_end, ")"));
  }
  const Worker& worker = workers_[sender.worker];
  const Stream& stream = worker.streams[key.variable];
  if (key.step <= stream.applied) return {};
  if (worker.completed) {
    return bad_frame(str_cat("worker ", sender.worker, " sent a gradient after it had completed"),
                     str_cat("clock ", stream.applied, " at most"), str_cat("clock ", key.step));
  }
  uint64_t next = stream.applied;
  for (const Gathering& gathering : stream.gatherings) {
    if (gathering.first == first_clock(key) && gathering.last == key.step) return {};
    next = gathering.last;
  }
  if (first_clock(key) != next || stream.gatherings.size() >= kMaxGathering) {
    return bad_frame(str_cat("a gradient of worker ", sender.worker, " is out of turn"),
                     str_cat("clocks from ", next + 1, " on"),
                     str_cat("clocks ", first_clock(key) + 1, " to ", key.step));
  }
  return {};
}

AsyncServer::Gathering* AsyncServer::find(Stream& stream, const PieceKey& key) {
  for (Gathering& gathering : stream.gatherings) {
    if (gathering.last == key.step) return &gathering;
  }
  return nullptr;
}

Buffer AsyncServer::take_buffer(Slice& slice) {
  // The one on top was applied last. Others that are held stay so until their connections end.
  constexpr size_t kLookAt = 4;
  for (size_t i = 1; i <= std::min(kLookAt, slice.spare.size()); ++i) {
    Buffer& buffer = *(slice.spare.end() - static_cast<std::ptrdiff_t>(i));
    if (!buffer.unique()) continue;
    std::swap(buffer, slice.spare.back());
    Buffer found = std::move(slice.spare.back());
    slice.spare.pop_back();
    return found;
  }
  const size_t bytes = std::max<uint64_t>(1, slice.geometry.bytes);
  Buffer buffer(bytes);
  std::memset(buffer.data(), 0, bytes);
  return buffer;
}

AsyncServer::Gathering* AsyncServer::begin(Stream& stream, const PieceKey& key) {
  Slice& slice = slices_[key.variable];
  receiving_ = true;
  Gathering gathering;
  gathering.first = first_clock(key);
  gathering.last = key.step;
  if (key.rows) {
    gathering.missing = 1;
    gathering.rows = RowContribution(slice.geometry, *key.rows);
  } else {
    gathering.missing = slice.pieces;
    gathering.memory = take_buffer(slice);
    gathering.pieces.resize(slice.pieces);
  }
  return &stream.gatherings.emplace_back(std::move(gathering));
}

PayloadTarget AsyncServer::prepare_push(const Sender& sender, const PieceKey& key, uint64_t bytes) {
  Status status = check(sender, key);
  if (!status.ok()) return PayloadTarget::refuse(std::move(status));
  if (key.rows) return prepare_rows(sender, key, bytes);
  const uint64_t size = piece_bytes(slices_[key.variable].geometry.bytes, key.piece);
  if (bytes != size) {
    return PayloadTarget::refuse(
        bad_frame("a piece has the wrong size", str_cat(size, " bytes"), str_cat(bytes, " bytes")));
  }
  Stream& stream = workers_[sender.worker].streams[key.variable];
  if (is_old(stream, key)) return PayloadTarget::discard();
  Gathering* gathering = find(stream, key);
  if (gathering == nullptr) gathering = begin(stream, key);
  PieceState& piece = gathering->pieces[key.piece];
  if (piece.have) return PayloadTarget::discard();
  if (piece.lent != 0 && piece.lent != sender.session) {
    // An older connection is still in the middle of the same piece.
    Buffer memory(size);
    sessions_[sender.session].extra = memory;
    return PayloadTarget::into({memory.data(), size}, memory.owner());
  }
  if (piece.lent == 0) {
    sessions_[sender.session].lent.push_back(
        {sender.worker, key.variable, gathering->last, key.piece});
  }
  piece.lent = sender.session;
  return PayloadTarget::into({gathering->memory.data() + piece_offset(key.piece), size},
                             gathering->memory.owner());
}

Buffer AsyncServer::take_extra(uint64_t session, transport::ConstBytes payload) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || !found->second.extra ||
      found->second.extra.data() != payload.data()) {
    return {};
  }
  return std::exchange(found->second.extra, Buffer());
}

void AsyncServer::take_back(uint64_t session, uint32_t worker, const PieceKey& key) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  auto& lent = found->second.lent;
  const auto place = std::find_if(lent.begin(), lent.end(), [&](const Lent& each) {
    return each.worker == worker && each.slice == key.variable && each.clock == key.step &&
           each.piece == key.piece;
  });
  if (place == lent.end()) return;
  *place = lent.back();
  lent.pop_back();
}

Status AsyncServer::push(const Sender& sender, const PieceKey& key,
                         transport::MutableBytes payload) {
  Status status = check(sender, key);
  if (!status.ok()) return status;
  if (key.rows) return push_rows(sender, key, payload);
  Stream& stream = workers_[sender.worker].streams[key.variable];
  const Buffer memory = take_extra(sender.session, payload);
  if (is_old(stream, key)) return {};
  Gathering* gathering = find(stream, key);
  if (gathering == nullptr && payload.empty()) gathering = begin(stream, key);  // an empty slice
  if (gathering == nullptr || gathering->pieces[key.piece].have) return {};
  std::byte* const place = gathering->memory.data() + piece_offset(key.piece);
  const uint64_t size = piece_bytes(slices_[key.variable].geometry.bytes, key.piece);
  if (memory) {
    // Whoever else writes there writes the same bytes.
    std::memcpy(place, memory.data(), size);
  } else if (size > 0 && payload.data() != place) {
    return {};  // discarded
  }
  PieceState& piece = gathering->pieces[key.piece];
  if (piece.lent != 0) take_back(piece.lent, sender.worker, key);
  piece = {true, 0};
  if (--gathering->missing == 0) apply_ready(sender.worker, key.variable);
  return {};
}

Status AsyncServer::check_rows(const Sender& sender, const PieceKey& key, uint64_t bytes) {
  const Gathering* gathering = find(workers_[sender.worker].streams[key.variable], key);
  if (gathering != nullptr && gathering->rows.rows() != *key.rows) {
    return bad_frame("pieces of one gradient disagree about how many rows it has",
                     str_cat(gathering->rows.rows()), str_cat(*key.rows));
  }
  return RowContribution::check(slices_[key.variable].geometry, *key.rows, key.piece, bytes);
}

PayloadTarget AsyncServer::prepare_rows(const Sender& sender, const PieceKey& key, uint64_t bytes) {
  Status status = check_rows(sender, key, bytes);
  if (!status.ok()) return PayloadTarget::refuse(std::move(status));
  Stream& stream = workers_[sender.worker].streams[key.variable];
  const Gathering* gathering = find(stream, key);
  const bool known = gathering != nullptr && gathering->rows.has(key.piece);
  if (is_old(stream, key) || known) return PayloadTarget::discard();
  return row_pieces_.lend(sender.session, bytes);
}

Status AsyncServer::push_rows(const Sender& sender, const PieceKey& key,
                              transport::ConstBytes payload) {
  Stream& stream = workers_[sender.worker].streams[key.variable];
  const bool lent = row_pieces_.holds(sender.session, payload);
  if (is_old(stream, key) || (!lent && *key.rows > 0)) return {};  // discarded
  Status status = check_rows(sender, key, payload.size());
  if (!status.ok()) return status;
  Gathering* gathering = find(stream, key);
  if (gathering == nullptr) gathering = begin(stream, key);
  if (gathering->rows.has(key.piece)) return {};
  status = gathering->rows.take(key.piece, payload);
  if (!status.ok()) {
    std::erase_if(stream.gatherings, [&](const Gathering& each) { return each.last == key.step; });
    return status;
  }
  if (!gathering->rows.complete()) return {};
  gathering->missing = 0;
  apply_ready(sender.worker, key.variable);
  return {};
}

void AsyncServer::apply_ready(uint32_t worker, uint32_t slice) {
  Stream& stream = workers_[worker].streams[slice];
  while (!stream.gatherings.empty() && stream.gatherings.front().missing == 0) {
    Gathering gathering = std::move(stream.gatherings.front());
    stream.gatherings.erase(stream.gatherings.begin());
    apply(worker, slice, gathering);
    if (gathering.memory) slices_[slice].spare.push_back(std::move(gathering.memory));
  }
  answer_waiting();
}

void AsyncServer::apply(uint32_t index, uint32_t slice, const Gathering& gathering) {
  // The worker's clock of this slice becomes the gradient's last one; its clocks of other slices
  // may be ahead or behind. The schedule counts a clock once, with the slice where it comes first.
  Worker& worker = workers_[index];
  Stream& stream = worker.streams[slice];
  if (gathering.last > worker.front) {
    gradients_ += gathering.last - worker.front;
    worker.front = gathering.last;
    sink_.begin_clock(gradients_);
  }
  AsyncUpdate update;
  update.slice = slice;
  update.worker = index;
  update.clock = gathering.last;
  update.merged = static_cast<uint32_t>(gathering.last - gathering.first);
  update.staleness = slices_[slice].version - stream.pulled;
  update.version = ++slices_[slice].version;
  if (gathering.last > stream.applied) {
    ++slices_[slice].clocks[gathering.last];
    leave_clock(slices_[slice], stream.applied);
    stream.applied = gathering.last;
  }
  staleness_.add(update.staleness);
  if (options_.on_event) {
    options_.on_event({AsyncEvent::Kind::kUpdate, index, slice, update.clock, update.merged});
  }
  if (slices_[slice].geometry.rows) {
    sink_.update_rows(update, gathering.rows);
  } else {
    sink_.update(update, gathering.memory);
  }
}

// ---- values

uint32_t AsyncServer::count_wanted(const GetCall& call) const {
  if (!call.all) return static_cast<uint32_t>(call.variables.size());
  const auto slices = static_cast<uint32_t>(slices_.size());
  return slices <= call.lane ? 0 : (slices - call.lane - 1) / options_.lanes + 1;
}

uint32_t AsyncServer::wanted(const GetCall& call, uint32_t index) const {
  return call.all ? call.lane + index * options_.lanes : call.variables[index];
}

uint64_t AsyncServer::clock(uint32_t worker) const {
  uint64_t clock = std::numeric_limits<uint64_t>::max();
  for (const Stream& stream : workers_[worker].streams) clock = std::min(clock, stream.applied);
  return clock;
}

// A worker is not at the clock any more: it is further, or trains no more.
void AsyncServer::leave_clock(Slice& slice, uint64_t clock) {
  const auto place = slice.clocks.find(clock);
  if (--place->second > 0) return;
  slice.clocks.erase(place);
  find_slowest(slice);
}

// The gets that the slice alone held back become ready; others go on to wait for another slice.
void AsyncServer::find_slowest(Slice& slice) {
  // The map has how many workers are at each clock of this slice: its first key is the clock that
  // all of them have reached. Gets wait in the order of the clocks that they want, so those that
  // need no more than that are in front, and no other one is looked at.
  slice.slowest =
      slice.clocks.empty() ? std::numeric_limits<uint64_t>::max() : slice.clocks.begin()->first;
  while (!slice.waiting.empty() && slice.waiting.begin()->first <= slice.slowest) {
    const uint64_t number = slice.waiting.begin()->second;
    slice.waiting.erase(slice.waiting.begin());
    if (may_answer(number, waiters_.at(number))) ready_.push_back(number);
  }
}

// Looks at each variable once over the get's life: a clock that was reached stays so.
bool AsyncServer::may_answer(uint64_t number, Waiter& waiter) {
  const uint32_t count = count_wanted(waiter.call);
  for (; waiter.reached < count; ++waiter.reached) {
    const uint32_t variable = wanted(waiter.call, waiter.reached);
    if (variable >= slices_.size() || waiter.call.step <= slices_[variable].slowest) continue;
    slices_[variable].waiting.emplace(waiter.call.step, number);
    return false;
  }
  return true;
}

Status AsyncServer::get(GetCall call) {
  if (call.all && call.lane >= options_.lanes) {
    return bad_frame("values were asked for on a lane that is not there",
                     str_cat(options_.lanes, " lanes"), str_cat("lane ", call.lane));
  }
  const bool known = std::all_of(call.variables.begin(), call.variables.end(),
                                 [this](uint32_t each) { return each < options_.variables; });
  if (!call.all && !known) {
    return bad_frame("values were asked for that are not here",
                     str_cat("ids below ", options_.variables), "another id");
  }
  SessionState& session = sessions_[call.session];
  if (call.request <= session.last_get) return {};  // a second copy of the frame
  if (session.waiting.size() >= kMaxWaiting) {
    return bad_frame("too many gets wait on one connection", str_cat(kMaxWaiting, " at most"),
                     "another one");
  }
  session.last_get = call.request;
  const uint64_t number = ++last_waiter_;
  Waiter waiter{std::move(call)};
  if (may_answer(number, waiter)) {
    answer(waiter.call);
  } else {
    session.waiting.push_back(number);
    waiters_.emplace(number, std::move(waiter));
  }
  return {};
}

void AsyncServer::answer(const GetCall& call) {
  const uint32_t count = count_wanted(call);
  if (count == 0) return sink_.answer(ServerAnswer::without_value(call));
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t variable = wanted(call, i);
    ServerAnswer part = ServerAnswer::with_value(call, variable, i + 1 == count);
    part.step = 0;
    if (variable < slices_.size()) {
      part.step = slices_[variable].version;
      workers_[call.worker].streams[variable].pulled = part.step;
      if (options_.on_event) {
        options_.on_event({AsyncEvent::Kind::kGet, call.worker, variable, 0, 0});
      }
    }
    sink_.answer(part);
  }
}

// In the order in which they came.
void AsyncServer::answer_waiting() {
  if (ready_.empty()) return;
  std::sort(ready_.begin(), ready_.end());
  std::vector<Waiter> ready;
  for (const uint64_t number : std::exchange(ready_, {})) {
    const auto found = waiters_.find(number);
    std::erase(sessions_.at(found->second.call.session).waiting, number);
    ready.push_back(std::move(found->second));
    waiters_.erase(found);
  }
  for (const Waiter& waiter : ready) answer(waiter.call);
}

// ---- ends

Status AsyncServer::complete(uint32_t index, uint64_t clock) {
  Worker& worker = workers_[index];
  if (worker.completed) return {};
  for (uint32_t slice = 0; slice < slices_.size(); ++slice) {
    const Stream& stream = worker.streams[slice];
    if (stream.applied <= clock && stream.gatherings.empty()) continue;
    return bad_frame(str_cat("worker ", index, " completed before its gradients had come"),
                     str_cat("clock ", clock, " at most, and nothing under way"),
                     str_cat("clock ", stream.applied, " of slice ", slice, ", ",
                             stream.gatherings.size(), " under way"));
  }
  worker.completed = true;
  --training_;
  for (uint32_t slice = 0; slice < slices_.size(); ++slice) {
    leave_clock(slices_[slice], worker.streams[slice].applied);
  }
  answer_waiting();
  complete_ = training_ == 0;
  if (complete_) sink_.all_complete();
  return {};
}

void AsyncServer::drop_session(uint64_t session) {
  row_pieces_.drop_session(session);
  const auto state = sessions_.extract(session);
  if (!state) return;
  for (const uint64_t number : state.mapped().waiting) {
    const Waiter& waiter = waiters_.at(number);
    slices_[wanted(waiter.call, waiter.reached)].waiting.erase({waiter.call.step, number});
    waiters_.erase(number);
  }
  for (const Lent& lent : state.mapped().lent) {
    for (Gathering& gathering : workers_[lent.worker].streams[lent.slice].gatherings) {
      if (gathering.last != lent.clock) continue;
      uint64_t& holder = gathering.pieces[lent.piece].lent;
      if (holder == session) holder = 0;
    }
  }
}

std::vector<uint32_t> AsyncServer::missing() const {
  std::vector<uint64_t> clocks(slices_.size(), 0);  // that gets wait for
  for (const auto& [number, waiter] : waiters_) {
    for (uint32_t i = waiter.reached; i < count_wanted(waiter.call); ++i) {
      const uint32_t slice = wanted(waiter.call, i);
      if (slice < slices_.size()) clocks[slice] = std::max(clocks[slice], waiter.call.step);
    }
  }
  std::vector<uint32_t> late;
  for (uint32_t i = 0; i < workers_.size(); ++i) {
    const Worker& worker = workers_[i];
    bool behind = false;
    for (size_t slice = 0; slice < clocks.size() && !worker.completed; ++slice) {
      behind = behind || worker.streams[slice].applied < clocks[slice];
    }
    if (behind) late.push_back(i);
  }
  return late;
}

}  // namespace fleet::strategies
