#include "strategies/parameter_server/client/async_client.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/strings.h"
#include "strategies/parameter_server/protocol/row_payload.h"

namespace fleet::strategies {

using transport::ConstBytes;
using transport::DoneHandler;
using transport::FrameHeader;
using transport::MutableBytes;
using transport::Request;

namespace {

// The number of the one that has the place; one more than there are when none has.
template <class Known>
uint32_t number_of(const std::vector<Known>& known, const RemoteTensor& place) {
  const auto found = std::find_if(known.begin(), known.end(), [&place](const auto& each) {
    return each.place.same_place(place);
  });
  return static_cast<uint32_t>(found - known.begin());
}

}  // namespace

AsyncClient::AsyncClient(Loop& loop, transport::Network& network,
                         const ParameterServerConfig& config, const transport::Hello& hello,
                         const std::function<void(MutableBytes)>& random, const Logger& logger)
    : ServerClient(loop, network, config, hello, random, logger),
      lanes_(size_t{config.server_num()} * config.data_lanes) {}

void AsyncClient::work_by(const AsyncOptions& options, Events events) {
  options_ = options;
  events_ = std::move(events);
}

uint32_t AsyncClient::add_gradient(RemoteTensor gradient) {
  const uint32_t number = number_of(gradients_, gradient);
  if (number == gradients_.size()) gradients_.emplace_back().place = std::move(gradient);
  return number;
}

uint32_t AsyncClient::add_value(RemoteTensor value) {
  const uint32_t number = number_of(values_, value);
  if (number < values_.size()) return number;
  for (uint32_t k = 0; k < value.parts.size(); ++k) {
    const PartOfValue part{number, k};
    const auto [asked, is_new] = asked_.try_emplace(value.parts[k].remote, part);
    if (!is_new) copies_.push_back({asked->second, part});
  }
  values_.emplace_back().place = std::move(value);
  return number;
}

// ---- gradients

void AsyncClient::enqueue(uint32_t gradient, QueuedGradient queued) {
  gradients_[gradient].waiting.push_back(std::move(queued));
  ++queued_;
}

// Takes up to max_merge_var_num gradients from the queue and adds them to the next round.
void AsyncClient::merge_and_push(Gradient& gradient, uint32_t number) {
  auto& waiting = gradient.waiting;
  const size_t count = std::min<size_t>(waiting.size(), options_.max_merge_var_num);
  const auto end = waiting.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<QueuedGradient> taken(std::make_move_iterator(waiting.begin()),
                                    std::make_move_iterator(end));
  waiting.erase(waiting.begin(), end);
  queued_ -= count;
  gradient.sent += count;
  push_merged(gradient.place, std::move(taken));
  for (size_t i = 0; i < count && events_.on_room; ++i) events_.on_room(number);
}

void AsyncClient::push_merged(const RemoteTensor& place, std::vector<QueuedGradient> taken) {
  const auto count = static_cast<uint32_t>(taken.size());
  if (place.rows) {
    const fluid::SelectedRows merged = merge_rows(taken, options_.merge_by_sum);
    for (const RemotePart& part : place.parts) {
      const fluid::SelectedRows rows = rows_of_part(place, part, merged);
      const uint64_t number = rows.rows.size();
      push(part.remote, count,
           transport::Payload(row_payload(rows, entry_of(part.remote).row_dtype())), &number);
    }
    return;
  }
  std::vector<Buffer> buffers;
  buffers.reserve(taken.size());
  for (QueuedGradient& queued : taken) buffers.push_back(std::move(queued.memory));
  const Buffer merged = merge_gradients(std::move(buffers), place.dtype, options_.merge_by_sum);
  for (const RemotePart& part : place.parts) {
    check_value_bytes(part.remote, part.bytes, "send");
    push(part.remote, count, {merged.data() + part.offset, part.bytes, merged.owner()}, nullptr);
  }
}

// A slice's clock counts the gradients that were sent to it. A merged one stands for several, and
// carries the last one's clock and their number: the server knows by the clock which gradients it
// has, when requests come again over another connection.
void AsyncClient::push(RemoteVariable slice, uint32_t merged, const transport::Payload& gradient,
                       const uint64_t* rows) {
  const uint64_t clock = clocks_[slice] += merged;
  auto& pushes = lane_at(slice).pushes;
  const uint32_t pieces = std::max(1U, pieces_of(gradient.size));
  for (uint32_t piece = 0; piece < pieces; ++piece) {
    pushes.push_back(make_push(slice, clock, {0, static_cast<int>(merged)}, gradient, piece, rows));
  }
  step_ = std::max(step_, clock);
}

// Values that are due are asked for behind gradients, in the same requests.
void AsyncClient::pump() {
  if (!status().ok()) return;
  std::vector<uint32_t> sent;
  for (uint32_t i = 0; i < gradients_.size(); ++i) {
    Gradient& gradient = gradients_[i];
    if (gradient.waiting.empty() || gradient.under_way >= kWindow) continue;
    merge_and_push(gradient, i);
    ++gradient.under_way;
    sent.push_back(i);
  }
  if (sent.empty()) return;
  std::shared_ptr<Received> received;
  if (fetch_is_due()) {
    fetching_ = true;
    received = want_values(false);
  }
  exchange([this, sent = std::move(sent), received](const Status& status) {
    for (const uint32_t i : sent) --gradients_[i].under_way;
    if (received != nullptr) {
      fetching_ = false;
      if (status.ok()) take_values(received);
    }
    if (status.ok()) pump();
  });
}

bool AsyncClient::fetch_is_due() const {
  return options_.independent_recv && !fetching_ && !values_.empty() &&
         std::any_of(gradients_.begin(), gradients_.end(), [this](const Gradient& gradient) {
           return gradient.sent >= options_.min_send_grad_num_before_recv;
         });
}

// ---- values

// Memory for a whole value that nobody reads.
fluid::Tensor AsyncClient::spare_for(Value& value) {
  for (const fluid::Tensor& spare : value.spares) {
    if (spare.buffer().unique()) return spare;
  }
  return value.spares.emplace_back(value.place.dtype, value.place.shape);
}

void AsyncClient::want(RemoteVariable variable, std::byte* memory, uint64_t bytes, uint64_t clock) {
  check_value_bytes(variable, bytes, "recv");
  Gets& gets = lane_at(variable).gets[clock];
  Target& target = gets.targets[variable.variable];
  if (target.received.empty()) gets.variables.push_back(variable.variable);
  target.memory = memory;
  target.bytes = bytes;
  target.received.assign(std::max(1U, pieces_of(bytes)), bytes == 0);
}

// With a bound on staleness: as soon as the slowest worker is near enough.
std::shared_ptr<AsyncClient::Received> AsyncClient::want_values(bool bounded) {
  for (Gradient& gradient : gradients_) gradient.sent = 0;
  auto received = std::make_shared<Received>();
  received->number = next_number_++;
  for (uint32_t i = 0; i < values_.size(); ++i) {
    fluid::Tensor& tensor = received->tensors.emplace_back(spare_for(values_[i]));
    const auto& parts = values_[i].place.parts;
    for (uint32_t k = 0; k < parts.size(); ++k) {
      if (asked_.at(parts[k].remote) != PartOfValue{i, k}) continue;
      want(parts[k].remote, tensor.raw() + parts[k].offset, parts[k].bytes,
           bounded ? gate(parts[k].remote) : 0);
    }
  }
  return received;
}

// The clock of a slice that every worker must have reached for this one to go on.
uint64_t AsyncClient::gate(RemoteVariable slice) const {
  const auto sent = clocks_.find(slice);
  if (!options_.staleness_bound || sent == clocks_.end()) return 0;
  return sent->second - std::min<uint64_t>(sent->second, *options_.staleness_bound);
}

// What several values have in common came once.
void AsyncClient::copy_common_parts(Received& received) const {
  for (const Copy& copy : copies_) {
    if (copy.to.value >= received.tensors.size()) continue;  // known since then
    const RemotePart& from = values_[copy.from.value].place.parts[copy.from.part];
    const RemotePart& to = values_[copy.to.value].place.parts[copy.to.part];
    std::memcpy(received.tensors[copy.to.value].raw() + to.offset,
                received.tensors[copy.from.value].raw() + from.offset, to.bytes);
  }
}

void AsyncClient::take_values(const std::shared_ptr<Received>& received) {
  if (received->number < newest_) return;
  newest_ = received->number;
  copy_common_parts(*received);
  if (events_.on_values) events_.on_values(SharedValues(received, &received->tensors));
}

void AsyncClient::receive_values(bool bounded, DoneHandler on_done) {
  exchange(
      [this, received = want_values(bounded), on_done = std::move(on_done)](const Status& status) {
        if (status.ok()) take_values(received);
        if (on_done) on_done(status);
      });
}

void AsyncClient::synchronize(DoneHandler on_done) {
  for (uint32_t i = 0; i < gradients_.size(); ++i) {
    while (!gradients_[i].waiting.empty()) merge_and_push(gradients_[i], i);
  }
  receive_values(true, std::move(on_done));
}

void AsyncClient::receive(std::span<const RemoteMemory> values, DoneHandler on_done) {
  for (const RemoteMemory& value : values) want(value.remote, value.memory, value.bytes, 0);
  exchange(std::move(on_done));
}

// ---- rounds

// What was pushed and wanted since the last round leaves: a request for each lane that takes part,
// and one more for each further clock that values are wanted by, since a request is answered as a
// whole. Gets stand behind the gradients, so that values hold them.
void AsyncClient::exchange(DoneHandler on_done) {
  const bool anything =
      std::any_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.takes_part(); });
  if (!anything) return end_round(on_done, status());
  ++rounds_;
  RequestGroup round([this, on_done = std::move(on_done)](const Status& status) {
    --rounds_;
    end_round(on_done, status);
  });
  for (uint32_t server = 0; server < config_.server_num(); ++server) {
    for (uint32_t k = 0; k < config_.data_lanes; ++k) send(server, k, round);
  }
  round.begun();
}

void AsyncClient::send(uint32_t server, uint32_t index, RequestGroup& round) {
  Lane lane = std::exchange(lanes_[server * config_.data_lanes + index], {});
  Request request;
  request.frames = std::move(lane.pushes);
  if (lane.gets.empty() && !request.frames.empty()) {
    request.frames.back().header.flags &= ~transport::kFlagMore;
    request.on_done = round.add();
    return submit(server, index, std::move(request));
  }
  for (auto& [clock, gets] : lane.gets) {
    request.frames.push_back(make_get(server, index, clock, gets.variables));
    submit_get(server, index, std::exchange(request, {}), std::move(gets), round.add());
  }
}

// The request's last frame asks for what is wanted.
void AsyncClient::submit_get(uint32_t server, uint32_t index, Request request, Gets gets,
                             DoneHandler on_done) {
  const auto targets =
      std::make_shared<std::unordered_map<uint32_t, Target>>(std::move(gets.targets));
  request.reply_target = [server, targets](const FrameHeader& header, ConstBytes) {
    const auto found = targets->find(header.variable);
    if (found == targets->end()) return target_of(server, header, nullptr, 0);
    return target_of(server, header, found->second.memory, found->second.bytes);
  };
  request.on_reply = [targets](const FrameHeader& header, ConstBytes, MutableBytes payload) {
    if (!payload.empty()) targets->find(header.variable)->second.received[header.piece] = true;
  };
  request.on_done = [this, server, targets, on_done = std::move(on_done)](const Status& status) {
    Status outcome = status;
    for (const auto& [variable, target] : *targets) {
      const auto missing = std::count(target.received.begin(), target.received.end(), false);
      if (!outcome.ok() || missing == 0) continue;
      outcome = incomplete(str_cat("server ", server, ", variable ", variable),
                           static_cast<uint64_t>(missing));
      fail(outcome);
    }
    on_done(outcome);
  };
  submit(server, index, std::move(request));
}

void AsyncClient::end_round(const DoneHandler& on_done, const Status& status) {
  if (on_done) on_done(status);
  tell_drained(status);
}

void AsyncClient::when_drained(std::function<void()> then) {
  when_drained_ = std::move(then);
  pump();
  tell_drained(status());
}

void AsyncClient::tell_drained(const Status& status) {
  if (!status.ok() && events_.on_failure) events_.on_failure();
  if (!drained() || !when_drained_) return;
  const auto then = std::exchange(when_drained_, nullptr);
  then();
}

}  // namespace fleet::strategies
