#include "strategies/parameter_server/client/sync_client.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/strings.h"
#include "strategies/parameter_server/protocol/row_payload.h"

namespace fleet::strategies {

using transport::ConstBytes;
using transport::FrameHeader;
using transport::Message;
using transport::MutableBytes;
using transport::Request;
using transport::Verb;

SyncClient::SyncClient(Loop& loop, transport::Network& network, const ParameterServerConfig& config,
                       const transport::Hello& hello,
                       const std::function<void(MutableBytes)>& random, const Logger& logger)
    : ServerClient(loop, network, config, hello, random, logger), servers_(config.server_num()) {
  const int shards = static_cast<int>(config.shards());
  nodes_ = maximal_nodes(
      owned_shards(static_cast<int>(config.index), static_cast<int>(config.worker_num), shards),
      shards);
  for (auto& server : servers_) server.lanes.resize(config.data_lanes);
}

void SyncClient::on_parameter_index(uint32_t index) {
  Server& server = servers_[index];
  const ParameterIndex& known = parameter_index(index);
  const auto entries = static_cast<uint32_t>(known.entries.size());
  server.targets.resize(entries);
  server.sums.resize(std::min(known.trained, entries));
  server.row_sums.resize(server.sums.size());
  for (uint32_t i = 0; i < entries; ++i) {
    server.targets[i].received.assign(std::max(1U, pieces_of(known.entries[i].bytes())), 0);
  }
  order_lanes(server, known);
  step_ = std::max(step_, known.step);
}

void SyncClient::order_lanes(Server& server, const ParameterIndex& known) {
  std::vector<SliceGeometry> slices;
  for (uint32_t i = 0; i < known.trained; ++i) {
    slices.push_back(SliceGeometry::of(known.entries[i]));
  }
  for (uint32_t k = 0; k < config_.data_lanes; ++k) {
    Lane& lane = server.lanes[k];
    lane.order = SendOrder(slices, k, config_.data_lanes);
    lane.open_at_begin = k < known.open.size() ? known.open[k] : lane.order.size();
    for (size_t i = k; i < slices.size(); i += config_.data_lanes) {
      if (slices[i].rows) lane.row_gradients += nodes_.size();
    }
  }
  begin_credits(server, known);
}

// What may be sent in a step before any credit.
void SyncClient::begin_credits(Server& server, const ParameterIndex& known) {
  server.free_row_bytes.assign(nodes_.size(), known.free_row_bytes);
  for (Lane& lane : server.lanes) {
    lane.open = lane.open_at_begin;
    lane.rows_pushed = 0;
  }
}

// ---- a step

void SyncClient::push(RemoteVariable slice, int shard, const std::byte* gradient, uint64_t bytes) {
  check_value_bytes(slice, bytes, "send");
  const ParameterEntry& entry = parameter_index(slice.server).entries[slice.variable];
  auto& sums = servers_[slice.server].sums.at(slice.variable);
  if (!sums) {
    sums = std::make_unique<PartialSums>(nodes_, static_cast<int>(config_.shards()), entry.dtype,
                                         bytes);
  }
  const auto ready = sums->add(shard, gradient);
  if (ready) gather(slice, ready->node, {ready->sum, bytes, nullptr});
}

void SyncClient::push_rows(RemoteVariable slice, int shard, const fluid::SelectedRows& gradient) {
  const ParameterEntry& entry = parameter_index(slice.server).entries[slice.variable];
  const fluid::Shape& shape = gradient.value.shape();
  const bool fits = entry.rows && gradient.height == entry.height() && shape.rank() > 0 &&
                    gradient.value.dtype() == entry.dtype &&
                    gradient.value.bytes() == gradient.rows.size() * entry.row_bytes();
  if (!fits) {
    throw_error(ErrorCode::kShapeMismatch,
                {.what = "a sparse gradient and its server's slice differ",
                 .where = str_cat("send of ", entry.gradient, " to server ", slice.server),
                 .expected = str_cat(entry.rows ? "rows" : "no rows", " of ",
                                     fluid::dtype_name(entry.dtype), fluid::Shape(entry.shape)),
                 .got = str_cat(gradient.rows.size(), " rows of ", gradient.height, ", ",
                                fluid::dtype_name(gradient.value.dtype()), shape),
                 .fix = "transpile every role of the job from the same program"});
  }
  auto& sums = servers_[slice.server].row_sums.at(slice.variable);
  if (!sums) sums = std::make_unique<PartialRowSums>(nodes_);
  const auto ready = sums->add(shard, gradient);
  if (ready) gather_rows(slice, ready->node, ready->sum);
}

void SyncClient::gather(RemoteVariable slice, ShardRange node, const transport::Payload& sum) {
  Lane& lane = servers_[slice.server].lanes[lane_of(slice)];
  const uint32_t pieces = pieces_of(sum.size);
  for (uint32_t piece = 0; piece < pieces; ++piece) {
    Message message = make_push(slice, step_ + 1, node, sum, piece, nullptr);
    const uint32_t at = lane.order.position(slice.variable, piece);
    if (at >= lane.open) {
      hold(lane, at, std::move(message));
    } else {
      gather(lane, std::move(message));
    }
  }
  pushed(slice, pieces, sum.size);
  if (!lane.held.empty() && lane.asking == 0) ask_credit(slice.server, lane_of(slice), false);
}

// What fits the node's free share of this step leaves with the rest; the server has to let in what
// is larger.
void SyncClient::gather_rows(RemoteVariable slice, ShardRange node,
                             const fluid::SelectedRows& sum) {
  Server& server = servers_[slice.server];
  Lane& lane = server.lanes[lane_of(slice)];
  const Buffer bytes = row_payload(sum, entry_of(slice).row_dtype());
  const uint64_t rows = sum.rows.size();
  const uint32_t pieces = std::max(1U, pieces_of(bytes.size()));
  std::vector<Message> messages;
  messages.reserve(pieces);
  for (uint32_t piece = 0; piece < pieces; ++piece) {
    messages.push_back(make_push(slice, step_ + 1, node, transport::Payload(bytes), piece, &rows));
  }
  ++lane.rows_pushed;
  const auto place = std::find(nodes_.begin(), nodes_.end(), node) - nodes_.begin();
  uint64_t& left = server.free_row_bytes[static_cast<size_t>(place)];
  if (bytes.size() <= left) {
    left -= bytes.size();
    for (Message& message : messages) gather(lane, std::move(message));
  } else {
    ask_rows(slice, node, rows, std::move(messages));
  }
  pushed(slice, pieces, bytes.size());
}

void SyncClient::pushed(RemoteVariable slice, uint32_t pieces, uint64_t bytes) {
  Server& server = servers_[slice.server];
  server.pushed += pieces;
  server.pushed_bytes += bytes;
  const uint32_t index = lane_of(slice);
  if (server.lanes[index].bytes >= config_.flush_bytes) send_gathered(slice.server, index);
}

void SyncClient::gather(Lane& lane, Message message) {
  lane.bytes += message.payload.size;
  ++gathered_;
  lane.gathered.push_back(std::move(message));
}

// A piece for which the server has no room yet waits by its position in the order in which the
// lane's pieces are let in. It is not copied here: the memory stays the caller's until that wants
// it back (flush).
void SyncClient::hold(Lane& lane, uint32_t position, Message message) {
  if (message.payload.owner == nullptr) ++borrowed_;
  lane.held.emplace(position, std::move(message));
}

void SyncClient::send_gathered(uint32_t server, uint32_t index) {
  Lane& lane = servers_[server].lanes[index];
  if (lane.gathered.empty()) return;
  lane.gathered.back().header.flags &= ~transport::kFlagMore;
  gathered_ -= lane.gathered.size();
  lane.bytes = 0;
  Request request;
  request.frames = std::exchange(lane.gathered, {});
  submit_push(server, index, std::move(request));
}

void SyncClient::submit_push(uint32_t server, uint32_t lane, Request request) {
  ++pushing_;
  request.on_done = [this](const Status&) { --pushing_; };
  submit(server, lane, std::move(request));
}

void SyncClient::ask_credit(uint32_t server, uint32_t index, bool over) {
  Lane& lane = servers_[server].lanes[index];
  Request request;
  Message& message = request.frames.emplace_back(make_message(Verb::kCredit, step_ + 1));
  message.header.variable = lane.open;
  if (over) message.header.piece = lane.held.empty() ? lane.order.size() : lane.held.begin()->first;
  request.on_reply = [this, server, index](const FrameHeader& header, ConstBytes, MutableBytes) {
    --servers_[server].lanes[index].asking;
    on_credit(server, index, header.variable);
  };
  ++lane.asking;
  submit(server, index, std::move(request));
}

// The server lets in the pieces before the position `open`: those that are held leave now. It only
// grows, since an old answer may come again over the next connection. While pieces are held, the
// server is asked for more, which it answers when it has the room.
void SyncClient::on_credit(uint32_t server, uint32_t index, uint32_t open) {
  Lane& lane = servers_[server].lanes[index];
  lane.open = std::max(lane.open, std::min(open, lane.order.size()));
  while (!lane.held.empty() && lane.held.begin()->first < lane.open) {
    Message message = std::move(lane.held.begin()->second);
    lane.held.erase(lane.held.begin());
    if (message.payload.owner == nullptr) --borrowed_;
    gather(lane, std::move(message));
  }
  send_gathered(server, index);
  if (!lane.held.empty() && lane.asking == 0) ask_credit(server, index, over_);
}

void SyncClient::ask_rows(RemoteVariable slice, ShardRange node, uint64_t rows,
                          std::vector<Message> held) {
  const uint32_t index = lane_of(slice);
  Request request;
  Message& message = request.frames.emplace_back(make_message(Verb::kCredit, step_ + 1));
  message.header.flags = kFlagRows;
  message.header.shard_begin = static_cast<uint32_t>(node.begin);
  message.header.shard_end = static_cast<uint32_t>(node.end);
  message.header.variable = slice.variable;
  message.control = encode(rows);
  const auto kept = std::make_shared<std::vector<Message>>(std::move(held));
  request.on_reply = [this, server = slice.server, index, kept](const FrameHeader&, ConstBytes,
                                                                MutableBytes) {
    // An answer that comes again finds nothing.
    for (Message& each : std::exchange(*kept, {}))
      gather(servers_[server].lanes[index], std::move(each));
    send_gathered(server, index);
  };
  submit(slice.server, index, std::move(request));
}

// Some sparse gradient was not pushed in this step: nobody need wait for it.
void SyncClient::end_rows(uint32_t server, uint32_t index) {
  send_gathered(server, index);
  Request request;
  Message& message = request.frames.emplace_back(make_message(Verb::kCredit, step_ + 1));
  message.header.flags = kFlagRows;
  message.header.variable = kNoVariables;
  message.control = encode(uint64_t{0});
  submit(server, index, std::move(request));
}

// What the caller's memory holds is copied.
void SyncClient::own_held(Lane& lane) {
  for (auto& [position, message] : lane.held) {
    transport::Payload& payload = message.payload;
    if (payload.owner != nullptr) continue;
    const Buffer copy(payload.size);
    std::memcpy(copy.data(), payload.data, payload.size);
    payload = transport::Payload(copy);
    --borrowed_;
  }
}

void SyncClient::flush() {
  for (uint32_t server = 0; server < servers_.size(); ++server) {
    for (uint32_t lane = 0; lane < config_.data_lanes; ++lane) {
      send_gathered(server, lane);
      own_held(servers_[server].lanes[lane]);
    }
  }
}

void SyncClient::receive(RemoteVariable variable, std::byte* memory, uint64_t bytes) {
  check_value_bytes(variable, bytes, "recv");
  Target& target = servers_[variable.server].targets[variable.variable];
  auto& wanted = servers_[variable.server].lanes[lane_of(variable)].wanted;
  if (std::find(wanted.begin(), wanted.end(), variable.variable) == wanted.end()) {
    wanted.push_back(variable.variable);
  }
  target.memory = memory;
  target.bytes = bytes;
}

void SyncClient::finish_step() {
  ++exchange_;
  stepping_ = true;
  over_ = true;
  for (uint32_t i = 0; i < servers_.size(); ++i) {
    Server& server = servers_[i];
    if (server.pushed_bytes >= config_.separate_get_bytes) get_separately(i);
    for (uint32_t k = 0; k < server.lanes.size(); ++k) {
      Lane& lane = server.lanes[k];
      if (lane.open_at_begin < lane.order.size()) {
        send_gathered(i, k);  // nothing may come behind what says that it has been sent
        ask_credit(i, k, true);
      }
      if (lane.rows_pushed < lane.row_gradients) end_rows(i, k);
      if (k > 0 && lane.wanted.empty()) {
        send_gathered(i, k);
        continue;
      }
      Message last = make_get(i, k, step_ + 1, lane.wanted);
      if (k == 0) {
        last.header.verb = Verb::kSendBarrier;
        last.header.piece = server.pushed;
      }
      gathered_ -= lane.gathered.size();
      lane.bytes = 0;
      std::vector<Message> frames = std::exchange(lane.gathered, {});
      lane.gathered.reserve(frames.size() + 1);
      frames.push_back(std::move(last));
      exchange(i, k, std::move(frames), lane.wanted);
    }
    server.pushed = 0;
    server.pushed_bytes = 0;
  }
}

void SyncClient::fetch() {
  ++exchange_;
  for (uint32_t i = 0; i < servers_.size(); ++i) {
    for (uint32_t k = 0; k < config_.data_lanes; ++k) {
      auto& wanted = servers_[i].lanes[k].wanted;
      if (!wanted.empty()) exchange(i, k, {make_get(i, k, step_, wanted)}, wanted);
    }
  }
}

// Large gradients lie in the sockets for long, and nothing overtakes them there.
void SyncClient::get_separately(uint32_t index) {
  std::vector<uint32_t> wanted;
  for (Lane& lane : servers_[index].lanes) {
    wanted.insert(wanted.end(), lane.wanted.begin(), lane.wanted.end());
    lane.wanted.clear();
  }
  if (wanted.empty()) return;
  Message message = make_message(Verb::kGet, step_ + 1);
  message.header.variable = kListedVariables;
  message.control = encode(wanted);
  exchange(index, config_.data_lanes, {std::move(message)}, wanted);
}

void SyncClient::exchange(uint32_t server, uint32_t index, std::vector<Message> frames,
                          std::vector<uint32_t>& wanted) {
  for (const uint32_t variable : wanted) {
    if (servers_[server].targets[variable].bytes > 0) {
      values_missing_ += pieces_of(servers_[server].targets[variable].bytes);
    }
  }
  wanted.clear();
  Request request;
  request.frames = std::move(frames);
  request.reply_target = [this, server](const FrameHeader& header, ConstBytes) {
    const auto& targets = servers_[server].targets;
    if (header.variable >= targets.size()) return target_of(server, header, nullptr, 0);
    const Target& target = targets[header.variable];
    return target_of(server, header, target.memory, target.bytes);
  };
  request.on_reply = [this, server](const FrameHeader& header, ConstBytes, MutableBytes payload) {
    if (!payload.empty()) on_value(server, header);
  };
  submit(server, index, std::move(request));
}

void SyncClient::on_value(uint32_t server, const FrameHeader& header) {
  uint64_t& received = servers_[server].targets[header.variable].received[header.piece];
  if (received == exchange_) return;
  received = exchange_;
  --values_missing_;
}

void SyncClient::before_idle() {
  if (status().ok() && values_missing_ != 0) {
    fail(incomplete("parameter-server worker", values_missing_));
  }
  if (status().ok() && stepping_) ++step_;
  if (stepping_) {
    for (uint32_t i = 0; i < servers_.size(); ++i) begin_credits(servers_[i], parameter_index(i));
  }
  stepping_ = over_ = false;
}

}  // namespace fleet::strategies
