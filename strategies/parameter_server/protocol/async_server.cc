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
    : options_(std::move(options)), sink_(sink), workers_(options_.workers) {
  for (const auto& geometry : options_.slices) {
    slices_.push_back({.geometry = geometry,
                       .pieces = std::max(1U, pieces_of(geometry.bytes)),
                       .version = 0,
                       .slowest = 0,
                       .buffers = {}});
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
  for (const Buffer& buffer : slice.buffers) {
    if (buffer.unique()) return buffer;
  }
  const size_t bytes = std::max<uint64_t>(1, slice.geometry.bytes);
  slice.buffers.emplace_back(bytes);
  std::memset(slice.buffers.back().data(), 0, bytes);
  return slice.buffers.back();
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

bool AsyncServer::is_old(const Stream& stream, const PieceKey& key) const {
  return key.step <= stream.applied;
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
  if (is_old(stream, key)) {
    if (!options_.mutations.no_deduplication) return PayloadTarget::discard();
    Buffer memory(size);
    extras_.push_back({sender.session, key, memory});
    return PayloadTarget::into({memory.data(), size}, memory.owner());
  }
  Gathering* gathering = find(stream, key);
  if (gathering == nullptr) gathering = begin(stream, key);
  PieceState& piece = gathering->pieces[key.piece];
  if (piece.have) return PayloadTarget::discard();
  if (piece.lent != 0 && piece.lent != sender.session) {
    // An older connection is still in the middle of the same piece.
    Buffer memory(size);
    std::erase_if(extras_, [&](const Extra& extra) { return extra.session == sender.session; });
    extras_.push_back({sender.session, key, memory});
    return PayloadTarget::into({memory.data(), size}, memory.owner());
  }
  piece.lent = sender.session;
  return PayloadTarget::into({gathering->memory.data() + piece_offset(key.piece), size},
                             gathering->memory.owner());
}

Status AsyncServer::push(const Sender& sender, const PieceKey& key,
                         transport::MutableBytes payload) {
  Status status = check(sender, key);
  if (!status.ok()) return status;
  if (key.rows) return push_rows(sender, key, payload);
  Stream& stream = workers_[sender.worker].streams[key.variable];
  const auto extra = std::find_if(extras_.begin(), extras_.end(), [&](const Extra& e) {
    return e.session == sender.session && e.memory.data() == payload.data();
  });
  Buffer memory;
  if (extra != extras_.end()) {
    memory = std::move(extra->memory);
    extras_.erase(extra);
  }
  if (is_old(stream, key)) {
    if (memory && options_.mutations.no_deduplication && slices_[key.variable].pieces == 1) {
      apply(sender.worker, key.variable, {first_clock(key), key.step, 0, memory, {}, {}});
    }
    return {};
  }
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
  gathering->pieces[key.piece] = {true, 0};
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
    stream.gatherings.pop_front();
    apply(worker, slice, gathering);
  }
  answer_waiting();
}

void AsyncServer::apply(uint32_t index, uint32_t slice, const Gathering& gathering) {
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
  const uint64_t before = stream.applied;
  stream.applied = std::max(stream.applied, gathering.last);
  if (before == slices_[slice].slowest) find_slowest(slice);
  staleness_.add(update.staleness);
  worker.staleness.add(update.staleness);
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

template <class Visit>
void AsyncServer::each_wanted(const GetCall& call, const Visit& visit) const {
  if (call.all) {
    for (uint32_t i = call.lane; i < slices_.size(); i += options_.lanes) visit(i);
  } else {
    for (const uint32_t variable : call.variables) visit(variable);
  }
}

uint64_t AsyncServer::clock(uint32_t worker) const {
  uint64_t clock = std::numeric_limits<uint64_t>::max();
  for (const Stream& stream : workers_[worker].streams) clock = std::min(clock, stream.applied);
  return clock;
}

void AsyncServer::find_slowest(uint32_t slice) {
  uint64_t& slowest = slices_[slice].slowest;
  slowest = std::numeric_limits<uint64_t>::max();
  for (const Worker& worker : workers_) {
    if (!worker.completed) slowest = std::min(slowest, worker.streams[slice].applied);
  }
}

bool AsyncServer::may_answer(const GetCall& call) const {
  bool reached = true;
  each_wanted(call, [&](uint32_t variable) {
    reached = reached && (variable >= slices_.size() || call.step <= slices_[variable].slowest);
  });
  return reached;
}

Status AsyncServer::get(uint32_t worker, GetCall call) {
  if (call.all && call.lane >= options_.lanes) {
    return bad_frame("values were asked for on a lane that is not there",
                     str_cat(options_.lanes, " lanes"), str_cat("lane ", call.lane));
  }
  bool known = true;
  each_wanted(call, [&](uint32_t variable) { known = known && variable < options_.variables; });
  if (!known) {
    return bad_frame("values were asked for that are not here",
                     str_cat("ids below ", options_.variables), "another id");
  }
  uint64_t& last = last_get_[call.session];
  if (call.request <= last) return {};  // a second copy of the frame
  const auto waiting = std::count_if(waiters_.begin(), waiters_.end(), [&](const Waiter& waiter) {
    return waiter.call.session == call.session;
  });
  if (waiting >= static_cast<std::ptrdiff_t>(kMaxWaiting)) {
    return bad_frame("too many gets wait on one connection", str_cat(kMaxWaiting, " at most"),
                     "another one");
  }
  last = call.request;
  if (may_answer(call)) {
    answer(worker, call);
  } else {
    waiters_.push_back({worker, std::move(call)});
  }
  return {};
}

void AsyncServer::answer(uint32_t worker, const GetCall& call) {
  uint32_t left = 0;
  each_wanted(call, [&](uint32_t) { ++left; });
  if (left == 0) return sink_.answer_empty(call);
  each_wanted(call, [&](uint32_t variable) {
    uint64_t version = 0;
    if (variable < slices_.size()) {
      version = slices_[variable].version;
      workers_[worker].streams[variable].pulled = version;
      if (options_.on_event) {
        options_.on_event({AsyncEvent::Kind::kGet, worker, variable, 0, 0});
      }
    }
    sink_.answer(call, worker, variable, version, --left == 0);
  });
}

void AsyncServer::answer_waiting() {
  if (waiters_.empty()) return;
  std::vector<Waiter> ready;
  std::erase_if(waiters_, [&](Waiter& waiter) {
    const bool may_go = may_answer(waiter.call);
    if (may_go) ready.push_back(std::move(waiter));
    return may_go;
  });
  for (const Waiter& waiter : ready) answer(waiter.worker, waiter.call);
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
  for (uint32_t slice = 0; slice < slices_.size(); ++slice) find_slowest(slice);
  answer_waiting();
  complete_ = std::all_of(workers_.begin(), workers_.end(),
                          [](const Worker& each) { return each.completed; });
  if (complete_) sink_.all_complete();
  return {};
}

void AsyncServer::drop_session(uint64_t session) {
  std::erase_if(waiters_, [&](const Waiter& waiter) { return waiter.call.session == session; });
  std::erase_if(extras_, [&](const Extra& extra) { return extra.session == session; });
  last_get_.erase(session);
  row_pieces_.drop_session(session);
  for (auto& worker : workers_) {
    for (auto& stream : worker.streams) {
      for (auto& gathering : stream.gatherings) {
        for (auto& piece : gathering.pieces) {
          if (piece.lent == session) piece.lent = 0;
        }
      }
    }
  }
}

std::vector<uint32_t> AsyncServer::missing() const {
  std::vector<bool> late(workers_.size());
  for (const Waiter& waiter : waiters_) {
    each_wanted(waiter.call, [&](uint32_t variable) {
      for (uint32_t i = 0; variable < slices_.size() && i < workers_.size(); ++i) {
        const bool reached = workers_[i].streams[variable].applied >= waiter.call.step;
        late[i] = late[i] || (!workers_[i].completed && !reached);
      }
    });
  }
  std::vector<uint32_t> workers;
  for (uint32_t i = 0; i < late.size(); ++i) {
    if (late[i]) workers.push_back(i);
  }
  return workers;
}

AsyncServerMemory AsyncServer::memory() const {
  AsyncServerMemory memory;
  memory.epoch = options_.epoch;
  for (const auto& slice : slices_) memory.versions.push_back(slice.version);
  for (const auto& worker : workers_) {
    auto& applied = memory.applied.emplace_back();
    for (const auto& stream : worker.streams) applied.push_back(stream.applied);
    memory.completed.push_back(worker.completed ? 1 : 0);
  }
  return memory;
}

void AsyncServer::restore(const AsyncServerMemory& memory) {
  const bool fits = untouched() && memory.applied.size() == workers_.size() &&
                    memory.completed.size() == workers_.size() &&
                    memory.versions.size() == slices_.size() &&
                    std::all_of(memory.applied.begin(), memory.applied.end(),
                                [&](const auto& row) { return row.size() == slices_.size(); });
  if (!fits) {
    throw_error(ErrorCode::kPrecondition,
                {.what = "a server's memory can be restored only before it serves",
                 .where = "parameter server",
                 .expected = str_cat("an untouched server, ", workers_.size(), " workers and ",
                                     slices_.size(), " slices"),
                 .got = str_cat(memory.applied.size(), " workers, ", memory.versions.size(),
                                " slices, after ", gradients_, " gradients"),
                 .fix = "restore right after start, with the same job"});
  }
  for (size_t i = 0; i < slices_.size(); ++i) slices_[i].version = memory.versions[i];
  for (size_t w = 0; w < workers_.size(); ++w) {
    Worker& worker = workers_[w];
    worker.completed = memory.completed[w] != 0;
    for (size_t i = 0; i < slices_.size(); ++i) {
      worker.streams[i].applied = memory.applied[w][i];
      worker.front = std::max(worker.front, memory.applied[w][i]);
    }
    gradients_ += worker.front;
  }
  for (uint32_t i = 0; i < slices_.size(); ++i) find_slowest(i);
}

}  // namespace fleet::strategies
