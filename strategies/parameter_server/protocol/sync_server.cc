#include "strategies/parameter_server/protocol/sync_server.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "strategies/parameter_server/errors.h"

namespace fleet::strategies {

using transport::PayloadTarget;

SyncServer::SyncServer(SyncServerOptions options, SyncServerSink& sink)
    : options_(std::move(options)),
      sink_(sink),
      contributors_(options_.workers, options_.shards),
      rules_(options_.rules ? options_.rules : std::make_shared<const SyncServerRules>()),
      tree_(rules_->tree(contributors_)),
      slices_(options_.slices.size()),
      rows_(options_.slices, contributors_, tree_, window_of(true), *rules_,
            [this](uint32_t slice) { complete_gradient(slice, shards_in(slice)); }),
      workers_(options_.workers),
      asking_(options_.lanes) {
  for (size_t i = 0; i < options_.stages.size(); ++i) slices_.at(i).stages = options_.stages[i];
  options_.variables = std::max(options_.variables, static_cast<uint32_t>(slices_.size()));
  for (uint32_t lane = 0; lane < options_.lanes; ++lane) {
    inboxes_.push_back(std::make_unique<PieceInbox>(
        options_.slices, contributors_, tree_, SendOrder(options_.slices, lane, options_.lanes),
        window_of(false) / options_.lanes, *rules_, options_.gradients));
  }
  waiters_.reserve(2 * options_.workers);
  collect_next();
}

uint64_t SyncServer::window_of(bool rows) const {
  const auto& slices = options_.slices;
  const bool both = std::any_of(slices.begin(), slices.end(),
                                [rows](const SliceGeometry& slice) { return slice.rows != rows; });
  return both ? options_.window_bytes / 2 : options_.window_bytes;
}

Status SyncServer::check(const Sender& sender, const PieceKey& key, uint32_t& contributor) const {
  const bool rows = key.rows.has_value();
  const auto& slices = options_.slices;
  if (key.variable >= slices.size() || rows != slices[key.variable].rows ||
      (!rows && key.piece >= pieces_of(slices[key.variable].bytes))) {
    return bad_frame(
        "a gradient came for a slice that is not here",
        str_cat("one of ", slices.size(), " slices"),
        str_cat("variable ", key.variable, ", piece ", key.piece, rows ? ", rows" : ""));
  }
  const int found = contributors_.find(key.shard_begin, key.shard_end);
  if (found < 0 || contributors_[static_cast<uint32_t>(found)].worker != sender.worker) {
    return bad_frame("a gradient came for shards that are not its sender's",
                     str_cat("shards of worker ", sender.worker),
                     str_cat("shards [", key.shard_begin, ", ", key.shard_end, ")"));
  }
  contributor = static_cast<uint32_t>(found);
  return {};
}

Status SyncServer::check_step(const Sender& sender, const PieceKey& key) const {
  const bool ahead = key.step > collecting() || key.step > workers_[sender.worker].last_step;
  if (key.step > 0 && !ahead) return {};
  return ahead_of_server("a gradient", sender.worker, collecting(), key.step);
}

PayloadTarget SyncServer::prepare_push(const Sender& sender, const PieceKey& key, uint64_t bytes) {
  uint32_t contributor = 0;
  Status status = check(sender, key, contributor);
  if (status.ok() && !key.rows) {
    return inbox_of(key.variable).prepare(sender, key, contributor, bytes);
  }
  if (status.ok()) status = check_step(sender, key);
  if (!status.ok()) return PayloadTarget::refuse(std::move(status));
  return rows_.prepare(sender.session, key, contributor, bytes);
}

Status SyncServer::push(const Sender& sender, const PieceKey& key,
                        transport::MutableBytes payload) {
  if (!key.rows) {
    Result<PieceProgress> progress = sum(sender, key, payload);
    if (progress.ok() && matters(progress.value())) count(sender, key, progress.value());
    return progress.status();
  }
  uint32_t contributor = 0;
  Status status = check(sender, key, contributor);
  if (status.ok()) status = check_step(sender, key);
  if (!status.ok()) return status;
  const Result<bool> taken = rows_.take(sender.session, key, contributor, payload);
  if (!taken.ok() || !taken.value()) return taken.status();
  contributed_ = true;
  ++workers_[sender.worker].sparse_pieces;
  note(sender.worker);
  grant_rows(rows_.let_in());
  maybe_close();
  return {};
}

Result<PieceProgress> SyncServer::sum(const Sender& sender, const PieceKey& key,
                                      transport::ConstBytes payload) {
  uint32_t contributor = 0;
  Status status = check(sender, key, contributor);
  if (!status.ok()) return status;
  auto progress = inbox_of(key.variable).take(sender, key, contributor, payload);
  if (progress.ok() && progress.value().taken && !contributed_) contributed_ = true;
  return progress;
}

bool SyncServer::matters(const PieceProgress& progress) const {
  return progress.opened || !progress.whole.empty() || (progress.taken && late_ > 0);
}

void SyncServer::count(const Sender& sender, const PieceKey& key, const PieceProgress& progress) {
  // Another thread may have seen the last piece before this call, and closed the step.
  if (progress.step != collecting()) return;
  advance(key.variable % options_.lanes, progress);
  note(sender.worker);
  maybe_close();
}

// What has come of a call to a lane's inbox.
void SyncServer::advance(uint32_t lane, const PieceProgress& progress) {
  for (const uint32_t slice : progress.whole) complete_gradient(slice, shards_in(slice));
  if (progress.opened) grant(lane, progress.open);
}

int SyncServer::shards_in(uint32_t slice) const {
  return options_.slices[slice].rows ? rows_.shards(slice) : inbox_of(slice).shards(slice);
}

// Whether the worker has contributed all of this step. Until it has, lanes tell of its pieces:
// whatever they took before they knew is in what is counted here.
void SyncServer::note(uint32_t index) {
  Worker& worker = workers_[index];
  const bool announced = active(index) && worker.barrier_step == collecting();
  if (announced && !worker.ready) set_late(worker, true);
  const bool ready =
      announced && (worker.ready || int64_t{received(index)} >= rules_->awaited(worker.announced));
  if (ready || !announced) set_late(worker, false);
  if (ready != worker.ready) ready_ += ready ? 1 : -1;
  worker.ready = ready;
}

void SyncServer::set_late(Worker& worker, bool late) {
  if (late == worker.late) return;
  worker.late = late;
  late_ += late ? 1 : -1;
}

uint32_t SyncServer::received(uint32_t worker) const {
  uint32_t pieces = workers_[worker].sparse_pieces;
  for (const auto& inbox : inboxes_) pieces += inbox->received(worker);
  return pieces;
}

std::vector<uint32_t> SyncServer::open_at_begin() const {
  std::vector<uint32_t> open;
  for (const auto& inbox : inboxes_) open.push_back(inbox->open_at_begin());
  return open;
}

uint64_t SyncServer::held_bytes() const {
  uint64_t bytes = rows_.held_bytes();
  for (const auto& inbox : inboxes_) bytes += inbox->held_bytes();
  return bytes;
}

void SyncServer::begin_step() {
  if (rate_ready_) return;
  rate_ready_ = true;
  sink_.begin_step(collecting());
}

// The gradient of the slice is complete.
void SyncServer::complete_gradient(uint32_t index, int shards) {
  Slice& slice = slices_[index];
  if (slice.complete) return;
  slice.complete = true;
  --incomplete_;
  slice.shards = shards;
  if (options_.slices[index].rows && shards > 0) {
    rows_.sum(index, std::get<fluid::SelectedRows>(*options_.gradients[index]));
  }
  begin_step();
  run_stage(index, 0);
  if (slice.stages > 1 && --staged_incomplete_ == 0) run_exchanges();
}

void SyncServer::run_stage(uint32_t index, uint32_t stage) {
  const Slice& slice = slices_[index];
  const bool done = sink_.update(index, {collecting(), slice.shards, static_cast<int>(stage)});
  if (stage + 1 < slice.stages) return;
  if (done) {
    publish(index);
  } else {
    ++updating_;
  }
}

void SyncServer::updated(uint32_t slice) {
  publish(slice);
  if (--updating_ > 0) return;
  for (const GetCall& call : std::exchange(deferred_, {})) answer_now(call);
  maybe_close();
}

// As far as the other servers' parts allow; true when the step has no exchange left.
bool SyncServer::run_exchanges() {
  // Exchange k begins when every slice of several stages has done stage k, and what comes of it is
  // what stage k + 1 needs. A slice whose last stage that is gets published then; slices with more
  // stages make their parts of exchange k + 1.
  while (options_.exchange != nullptr && exchange_ < options_.exchange->count()) {
    if (!parts_sent_) {
      parts_sent_ = true;
      options_.exchange->begin(exchange_, collecting());
    }
    if (!options_.exchange->complete(exchange_)) return false;
    options_.exchange->end(exchange_);
    parts_sent_ = false;
    ++exchange_;
    for (uint32_t i = 0; i < slices_.size(); ++i) {
      if (slices_[i].stages > exchange_) run_stage(i, exchange_);
    }
  }
  return true;
}

void SyncServer::exchange_advanced() {
  if (!parts_sent_) return;
  run_exchanges();
  maybe_close();
}

void SyncServer::publish(uint32_t slice) {
  slices_[slice].version = collecting();
  for (const uint32_t number : slices_[slice].waiters) {
    if (waiters_[number].call.session != 0) deliver(waiters_[number], slice);
  }
  slices_[slice].waiters.clear();
}

void SyncServer::deliver(Waiter& waiter, uint32_t variable) {
  if (--waiter.remaining == 0) {
    waiter.held = variable;
  } else {
    sink_.answer(ServerAnswer::with_value(waiter.call, variable, false));
  }
}

Status SyncServer::barrier(uint32_t worker, uint64_t step, uint32_t count) {
  if (step == 0 || step > collecting() || step > workers_[worker].last_step) {
    return ahead_of_server("a barrier", worker, collecting(), step);
  }
  if (step <= published_) return {};
  contributed_ = true;
  workers_[worker].barrier_step = step;
  workers_[worker].announced = count;
  note(worker);
  maybe_close();
  return {};
}

void SyncServer::maybe_close() {
  while (barriers_in() && close()) {
  }
}

// No more comes for this step: what there is has to do.
void SyncServer::complete_rest() {
  if (incomplete_ == 0) return;
  for (uint32_t worker = 0; worker < workers_.size(); ++worker) {
    rows_.pass(worker);
    for (const auto& inbox : inboxes_) inbox->pass(worker, inbox->pieces());
  }
  for (uint32_t i = 0; i < slices_.size(); ++i) complete_gradient(i, shards_in(i));
}

// False when other servers' parts of an exchange are missing, or updates go on.
bool SyncServer::close() {
  complete_rest();
  begin_step();
  if (!run_exchanges() || updating_ > 0) return false;
  ++published_;
  for (auto& [session, waiting] : waiting_) waiting.gets.clear();
  std::vector<Waiter> done;
  std::swap(done, waiters_);
  // Who has its answer may push for the next step at once, on any lane, which takes pieces without
  // the server's lock: the next step must be there before the first answer leaves, or its pieces
  // would be refused. The waiters are taken away first, as an answer may end its connection, which
  // is forgotten at once.
  collect_next();
  if (options_.exchange != nullptr) options_.exchange->next_step();
  for (uint32_t lane = 0; lane < inboxes_.size(); ++lane) grant(lane, inboxes_[lane]->pieces());
  std::vector<RowGradient> asked;
  for (const auto& [gradient, call] : asking_rows_) asked.push_back(gradient);
  grant_rows(asked);
  for (const auto& waiter : done) {
    if (waiter.call.session != 0) finish(waiter);
  }
  done.clear();
  if (waiters_.empty()) std::swap(done, waiters_);  // keeps the capacity
  sink_.step_closed(published_);
  note_completion();
  return true;
}

void SyncServer::finish(const Waiter& waiter) {
  if (waiter.held != kNothing) {
    sink_.answer(ServerAnswer::with_value(waiter.call, waiter.held, true));
    return;
  }
  std::vector<uint32_t> rest;  // what is no slice, and so only whole steps have versions of
  each_wanted(waiter.call, [&](uint32_t variable) {
    if (variable >= slices_.size()) rest.push_back(variable);
  });
  for (size_t i = 0; i < rest.size(); ++i) {
    sink_.answer(ServerAnswer::with_value(waiter.call, rest[i], i + 1 == rest.size()));
  }
  if (rest.empty()) sink_.answer(ServerAnswer::without_value(waiter.call));
}

// Begins the next step, if anyone contributes to it.
void SyncServer::collect_next() {
  rate_ready_ = false;
  exchange_ = 0;
  incomplete_ = static_cast<uint32_t>(slices_.size());
  staged_incomplete_ = 0;
  for (auto& slice : slices_) {
    slice.complete = false;
    if (slice.stages > 1) ++staged_incomplete_;
  }
  active_ = ready_ = 0;
  std::vector<bool> taking_part;
  for (uint32_t i = 0; i < workers_.size(); ++i) {
    workers_[i].sparse_pieces = 0;
    workers_[i].ready = false;
    set_late(workers_[i], false);
    taking_part.push_back(active(i));
    if (taking_part.back()) ++active_;
  }
  if (active_ == 0) return;
  rows_.begin(collecting(), taking_part);
  for (const auto& inbox : inboxes_) inbox->begin(collecting(), taking_part);
}

void SyncServer::note_completion() {
  if (active_ > 0 || complete_) return;
  complete_ = true;
  sink_.all_complete();
}

Status SyncServer::complete(uint32_t worker, uint64_t last_step) {
  if (workers_[worker].last_step != kTrains) return {};
  if (last_step > collecting()) {
    return bad_frame(str_cat("worker ", worker, " completed a step that was not begun"),
                     str_cat("step ", collecting(), " at most"), str_cat("step ", last_step));
  }
  workers_[worker].last_step = last_step;
  if (active(worker)) return {};
  note(worker);
  if (--active_ == 0) {
    collect_next();
    note_completion();
    return {};
  }
  rows_.pass(worker);
  grant_rows(rows_.let_in());
  for (uint32_t lane = 0; lane < inboxes_.size(); ++lane)
    advance(lane, inboxes_[lane]->leave(worker));
  maybe_close();
  return {};
}

Status SyncServer::credit(const CreditCall& call) {
  if (call.step == 0 || call.step > collecting() || call.lane >= options_.lanes) {
    return bad_frame(str_cat("worker ", call.worker, " asks for credits that cannot be"),
                     str_cat("step 1 to ", collecting(), ", a lane below ", options_.lanes),
                     str_cat("step ", call.step, ", lane ", call.lane));
  }
  return call.rows ? credit_rows(call) : credit_order(call);
}

Status SyncServer::credit_order(const CreditCall& call) {
  PieceInbox& inbox = *inboxes_[call.lane];
  if (call.step <= published_) {
    sink_.answer(ServerAnswer::granting(call, inbox.pieces()));
    return {};
  }
  const PieceProgress progress = inbox.pass(call.worker, call.passed);
  advance(call.lane, progress);
  if (progress.open > call.known || std::max(call.passed, call.known) >= inbox.pieces()) {
    sink_.answer(ServerAnswer::granting(call, progress.open));
  } else if (uint32_t& credits = waiting_[call.session].credits; credits >= kMaxWaiting) {
    return bad_frame("too many requests for credits wait on one connection",
                     str_cat(kMaxWaiting, " at most"), "another one");
  } else {
    ++credits;
    asking_[call.lane].push_back(call);
  }
  maybe_close();
  return {};
}

Status SyncServer::credit_rows(const CreditCall& call) {
  const PieceKey& key = *call.rows;
  const bool collected = call.step == collecting();
  bool waits = false;
  RowGradient gradient{key.variable, 0};
  if (key.variable == kNoVariables) {
    if (collected) rows_.pass(call.worker, call.lane, options_.lanes);
  } else {
    Status status = check({call.worker, call.session}, key, gradient.contributor);
    if (status.ok() && collected) status = rows_.ask(key, gradient.contributor);
    if (!status.ok()) return status;
    waits = collected && rows_.asking(gradient);
  }
  if (waits) {
    const auto [asked, is_new] = asking_rows_.try_emplace(gradient, call);
    if (!is_new) --waiting_.at(std::exchange(asked->second, call).session).row_credits;
    ++waiting_[call.session].row_credits;
  } else {
    sink_.answer(ServerAnswer::granting(call, 0));
  }
  grant_rows(rows_.let_in());
  maybe_close();
  return {};
}

// Tells those who wait how much more of their lane is let in.
void SyncServer::grant(uint32_t lane, uint32_t open) {
  const auto answered =
      std::stable_partition(asking_[lane].begin(), asking_[lane].end(),
                            [open](const CreditCall& call) { return open <= call.known; });
  const std::vector<CreditCall> calls(answered, asking_[lane].end());
  asking_[lane].erase(answered, asking_[lane].end());
  answer(calls, open);
}

void SyncServer::grant_rows(const std::vector<RowGradient>& gradients) {
  std::vector<CreditCall> calls;
  for (const RowGradient& gradient : gradients) {
    // Nobody asks whose connection has ended: the worker asks again.
    const auto asked = asking_rows_.find(gradient);
    if (asked == asking_rows_.end()) continue;
    calls.push_back(asked->second);
    asking_rows_.erase(asked);
  }
  answer(calls, 0);
}

// An answer may end its connection, which is forgotten then.
void SyncServer::answer(const std::vector<CreditCall>& calls, uint32_t open) {
  for (const CreditCall& call : calls) {
    Waiting& waiting = waiting_.at(call.session);
    --(call.rows ? waiting.row_credits : waiting.credits);
  }
  for (const CreditCall& call : calls) sink_.answer(ServerAnswer::granting(call, open));
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
  auto& waiting = waiting_[call.session].gets;
  for (const uint32_t number : waiting) {
    if (waiters_[number].call.request == call.request) return {};  // sent again
  }
  if (waiting.size() >= kMaxWaiting) {
    return bad_frame("too many gets wait on one connection", str_cat(kMaxWaiting, " at most"),
                     "another one");
  }
  const auto number = static_cast<uint32_t>(waiters_.size());
  waiting.push_back(number);
  waiters_.push_back({std::move(call), wanted, kNothing});
  Waiter& waiter = waiters_.back();
  each_wanted(waiter.call, [&](uint32_t variable) {
    if (variable >= slices_.size()) return;
    if (slices_[variable].version >= waiter.call.step) {
      deliver(waiter, variable);
    } else {
      slices_[variable].waiters.push_back(number);
    }
  });
  return {};
}

void SyncServer::answer_now(const GetCall& call) {
  uint32_t left = 0;
  each_wanted(call, [&](uint32_t) { ++left; });
  if (left == 0) sink_.answer(ServerAnswer::without_value(call));
  each_wanted(call, [&](uint32_t variable) {
    sink_.answer(ServerAnswer::with_value(call, variable, --left == 0));
  });
}

void SyncServer::drop_session(uint64_t session) {
  std::erase_if(deferred_, [&](const GetCall& call) { return call.session == session; });
  rows_.drop_session(session);
  for (const auto& inbox : inboxes_) inbox->drop_session(session);
  const auto found = waiting_.find(session);
  if (found == waiting_.end()) return;
  for (const uint32_t number : found->second.gets) waiters_[number].call.session = 0;
  for (size_t lane = 0; lane < asking_.size() && found->second.credits > 0; ++lane) {
    std::erase_if(asking_[lane], [&](const CreditCall& call) { return call.session == session; });
  }
  if (found->second.row_credits > 0) {
    std::erase_if(asking_rows_, [&](const auto& asked) { return asked.second.session == session; });
  }
  waiting_.erase(found);
}

std::vector<uint32_t> SyncServer::missing() const {
  std::vector<uint32_t> workers;
  for (uint32_t i = 0; i < workers_.size(); ++i) {
    if (active(i) && workers_[i].barrier_step != collecting()) workers.push_back(i);
  }
  return workers;
}

std::vector<uint32_t> SyncServer::missing_servers() const {
  return parts_sent_ ? options_.exchange->missing(exchange_) : std::vector<uint32_t>();
}

}  // namespace fleet::strategies
