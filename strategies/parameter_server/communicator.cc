#include "strategies/parameter_server/communicator.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"

namespace fleet::strategies {
namespace {

using transport::ConstBytes;
using transport::FrameHeader;
using transport::Message;
using transport::MutableBytes;
using transport::PayloadTarget;
using transport::Request;
using transport::Verb;

transport::ClientOptions client_options(const ParameterServerConfig& config,
                                        const transport::Hello& hello,
                                        std::function<void(MutableBytes)> random) {
  transport::ClientOptions options;
  options.servers = config.servers;
  options.hello = hello;
  options.secret = config.secret;
  options.lane = transport::LaneKind::kData;
  options.lanes = config.data_lanes;
  options.rpc_deadline = config.rpc_deadline;
  options.random = std::move(random);
  return options;
}

[[noreturn]] void throw_unknown(const Catalogue& catalogue, uint32_t server, std::string_view name,
                                bool gradient) {
  std::vector<std::string> names;
  for (const auto& entry : catalogue.entries)
    names.push_back(gradient ? entry.gradient : entry.name);
  throw_error(ErrorCode::kUnknownName,
              {.what = str_cat("server ", server, " does not keep what the program names"),
               .where = std::string(name),
               .expected = str_cat("one of ", join(names, ", ")),
               .got = str_cat(name, did_you_mean(name, names)),
               .fix = "transpile every role of the job from the same program and configuration"});
}

}  // namespace

Communicator::Communicator(Loop& loop, transport::Network& network,
                           const ParameterServerConfig& config, const transport::Hello& hello,
                           std::function<void(MutableBytes)> random, Logger logger)
    : config_(config),
      catalogues_(config.server_num()),
      servers_(config.server_num()),
      client_(loop, network, client_options(config, hello, std::move(random)), std::move(logger)),
      catalogues_missing_(config.server_num()) {
  const int shards = static_cast<int>(config.shards());
  nodes_ = maximal_nodes(
      owned_shards(static_cast<int>(config.index), static_cast<int>(config.worker_num), shards),
      shards);
  for (auto& server : servers_) server.lanes.resize(config.data_lanes);
}

// ---- the catalogue

void Communicator::start() {
  client_.start();
  for (uint32_t server = 0; server < config_.server_num(); ++server) ask_catalogue(server);
}

void Communicator::ask_catalogue(uint32_t server) {
  Request request;
  Message message;
  message.header.verb = Verb::kInit;
  message.header.epoch = config_.epoch;
  request.frames.push_back(std::move(message));
  request.on_reply = [this, server](const FrameHeader&, ConstBytes control, MutableBytes) {
    auto catalogue = decode<Catalogue>(control, str_cat("the catalogue of server ", server));
    if (catalogue.ok()) {
      on_catalogue(server, std::move(catalogue).value());
    } else {
      client_.fail_all(catalogue.status());
    }
  };
  submit(server, 0, std::move(request));
}

void Communicator::on_catalogue(uint32_t index, Catalogue catalogue) {
  Server& server = servers_[index];
  const auto entries = static_cast<uint32_t>(catalogue.entries.size());
  server.targets.resize(entries);
  server.sums.resize(std::min(catalogue.trained, entries));
  for (uint32_t i = 0; i < entries; ++i) {
    server.targets[i].received.assign(std::max(1U, pieces_of(catalogue.entries[i].bytes())), 0);
    if (i < server.sums.size()) ++server.lanes[i % config_.data_lanes].trained;
  }
  step_ = std::max(step_, catalogue.step);
  catalogues_[index] = std::move(catalogue);
  --catalogues_missing_;
}

RemoteVariable Communicator::find(uint32_t server, std::string_view name) const {
  const auto& entries = catalogues_.at(server).entries;
  for (uint32_t i = 0; i < entries.size(); ++i) {
    if (entries[i].name == name) return {server, i};
  }
  throw_unknown(catalogues_[server], server, name, false);
}

RemoteVariable Communicator::find_gradient(uint32_t server, std::string_view gradient) const {
  const auto& entries = catalogues_.at(server).entries;
  for (uint32_t i = 0; i < entries.size(); ++i) {
    if (entries[i].gradient == gradient) return {server, i};
  }
  throw_unknown(catalogues_[server], server, gradient, true);
}

void Communicator::check_value_bytes(RemoteVariable variable, uint64_t bytes,
                                     std::string_view op) const {
  const CatalogueEntry& entry = catalogues_[variable.server].entries[variable.variable];
  if (entry.bytes() == bytes) return;
  throw_error(ErrorCode::kShapeMismatch,
              {.what = "a tensor and its server's slice differ in size",
               .where = str_cat(op, " of ", entry.name, " on server ", variable.server),
               .expected = str_cat(entry.bytes(), " bytes"),
               .got = str_cat(bytes, " bytes"),
               .fix = "transpile every role of the job from the same program and configuration"});
}

// ---- a step

void Communicator::push(RemoteVariable slice, int shard, const std::byte* gradient,
                        uint64_t bytes) {
  check_value_bytes(slice, bytes, "send");
  const CatalogueEntry& entry = catalogues_[slice.server].entries[slice.variable];
  auto& sums = servers_[slice.server].sums.at(slice.variable);
  if (!sums) {
    sums = std::make_unique<PartialSums>(nodes_, static_cast<int>(config_.shards()), entry.dtype,
                                         bytes);
  }
  const auto ready = sums->add(shard, gradient);
  if (ready) gather(slice, ready->node, ready->sum, bytes);
}

void Communicator::gather(RemoteVariable slice, ShardRange node, const std::byte* sum,
                          uint64_t bytes) {
  Server& server = servers_[slice.server];
  Lane& lane = lane_of(slice);
  const uint32_t pieces = pieces_of(bytes);
  for (uint32_t piece = 0; piece < pieces; ++piece) {
    Message& message = lane.gathered.emplace_back();
    message.header.verb = Verb::kPush;
    message.header.flags = transport::kFlagMore;
    message.header.step = step_ + 1;
    message.header.epoch = config_.epoch;
    message.header.shard_begin = static_cast<uint32_t>(node.begin);
    message.header.shard_end = static_cast<uint32_t>(node.end);
    message.header.variable = slice.variable;
    message.header.piece = piece;
    message.payload = {sum + piece_offset(piece), piece_bytes(bytes, piece), nullptr};
  }
  server.pushed += pieces;
  gathered_ += pieces;
  lane.bytes += bytes;
  if (lane.bytes >= config_.flush_bytes) {
    send_gathered(slice.server, slice.variable % config_.data_lanes);
  }
}

void Communicator::send_gathered(uint32_t server, uint32_t index) {
  Lane& lane = servers_[server].lanes[index];
  if (lane.gathered.empty()) return;
  lane.gathered.back().header.flags &= ~transport::kFlagMore;
  gathered_ -= lane.gathered.size();
  lane.bytes = 0;
  Request request;
  request.frames = std::exchange(lane.gathered, {});
  submit(server, index, std::move(request));
}

void Communicator::flush() {
  for (uint32_t server = 0; server < servers_.size(); ++server) {
    for (uint32_t lane = 0; lane < config_.data_lanes; ++lane) send_gathered(server, lane);
  }
}

void Communicator::receive(RemoteVariable variable, std::byte* memory, uint64_t bytes) {
  check_value_bytes(variable, bytes, "recv");
  Target& target = servers_[variable.server].targets[variable.variable];
  auto& wanted = lane_of(variable).wanted;
  if (std::find(wanted.begin(), wanted.end(), variable.variable) == wanted.end()) {
    wanted.push_back(variable.variable);
  }
  target.memory = memory;
  target.bytes = bytes;
}

Message Communicator::get_message(uint32_t server, uint32_t index, uint64_t step) const {
  const Lane& lane = servers_[server].lanes[index];
  Message message;
  message.header.verb = Verb::kGet;
  message.header.step = step;
  message.header.epoch = config_.epoch;
  const uint32_t trained = catalogues_[server].trained;
  const bool all = lane.wanted.size() == lane.trained &&
                   std::all_of(lane.wanted.begin(), lane.wanted.end(),
                               [trained](uint32_t variable) { return variable < trained; });
  if (lane.wanted.empty()) {
    message.header.variable = kNoVariables;
  } else if (all) {
    message.header.variable = kAllVariables;
  } else if (lane.wanted.size() == 1) {
    message.header.variable = lane.wanted.front();
  } else {
    message.header.variable = kListedVariables;
    message.control = encode(lane.wanted);
  }
  return message;
}

void Communicator::finish_step() {
  ++exchange_;
  stepping_ = true;
  for (uint32_t i = 0; i < servers_.size(); ++i) {
    Server& server = servers_[i];
    for (uint32_t k = 0; k < server.lanes.size(); ++k) {
      Lane& lane = server.lanes[k];
      if (k > 0 && lane.wanted.empty()) {
        send_gathered(i, k);
        continue;
      }
      Message last = get_message(i, k, step_ + 1);
      if (k == 0) {
        last.header.verb = Verb::kSendBarrier;
        last.header.piece = server.pushed;
      }
      gathered_ -= lane.gathered.size();
      lane.bytes = 0;
      std::vector<Message> frames = std::exchange(lane.gathered, {});
      lane.gathered.reserve(frames.size() + 1);
      frames.push_back(std::move(last));
      exchange(i, k, std::move(frames));
    }
    server.pushed = 0;
  }
}

void Communicator::fetch() {
  ++exchange_;
  for (uint32_t i = 0; i < servers_.size(); ++i) {
    for (uint32_t k = 0; k < config_.data_lanes; ++k) {
      if (servers_[i].lanes[k].wanted.empty()) continue;
      exchange(i, k, {get_message(i, k, step_)});
    }
  }
}

void Communicator::exchange(uint32_t server, uint32_t index, std::vector<Message> frames) {
  Lane& lane = servers_[server].lanes[index];
  for (const uint32_t variable : lane.wanted) {
    if (servers_[server].targets[variable].bytes > 0) {
      values_missing_ += pieces_of(servers_[server].targets[variable].bytes);
    }
  }
  lane.wanted.clear();
  Request request;
  request.frames = std::move(frames);
  request.reply_target = [this, server](const FrameHeader& header, ConstBytes) {
    return target_of(server, header);
  };
  request.on_reply = [this, server](const FrameHeader& header, ConstBytes, MutableBytes payload) {
    if (!payload.empty()) on_value(server, header);
  };
  submit(server, index, std::move(request));
}

PayloadTarget Communicator::target_of(uint32_t server, const FrameHeader& header) {
  const auto& targets = servers_[server].targets;
  if (header.variable < targets.size()) {
    const Target& target = targets[header.variable];
    if (target.memory != nullptr && header.piece < pieces_of(target.bytes) &&
        header.payload_bytes == piece_bytes(target.bytes, header.piece)) {
      return PayloadTarget::into(
          {target.memory + piece_offset(header.piece), header.payload_bytes});
    }
  }
  return PayloadTarget::refuse({ErrorCode::kBadFrame,
                                {.what = "a server answered with a value that was not asked for",
                                 .where = str_cat("server ", server),
                                 .expected = "a piece of a variable that is being received",
                                 .got = str_cat("variable ", header.variable, ", piece ",
                                                header.piece, ", ", header.payload_bytes, " bytes"),
                                 .fix = "run the same version in every process"}});
}

void Communicator::on_value(uint32_t server, const FrameHeader& header) {
  uint64_t& received = servers_[server].targets[header.variable].received[header.piece];
  if (received == exchange_) return;
  received = exchange_;
  --values_missing_;
}

void Communicator::assign(RemoteVariable variable, const std::byte* value, uint64_t bytes) {
  check_value_bytes(variable, bytes, "assign");
  Request request;
  const uint32_t pieces = pieces_of(bytes);
  for (uint32_t piece = 0; piece < pieces; ++piece) {
    Message& message = request.frames.emplace_back();
    message.header.verb = Verb::kInit;
    if (piece + 1 < pieces) message.header.flags = transport::kFlagMore;
    message.header.epoch = config_.epoch;
    message.header.variable = variable.variable;
    message.header.piece = piece;
    message.payload = {value + piece_offset(piece), piece_bytes(bytes, piece), nullptr};
  }
  if (pieces > 0) submit(variable.server, 0, std::move(request));
}

void Communicator::complete() {
  for (uint32_t server = 0; server < servers_.size(); ++server) {
    Request request;
    Message& message = request.frames.emplace_back();
    message.header.verb = Verb::kNotify;
    message.header.step = step_;
    message.header.epoch = config_.epoch;
    submit(server, 0, std::move(request));
  }
}

// ---- requests

void Communicator::submit(uint32_t server, uint32_t lane, Request request) {
  ++servers_[server].under_way;
  ++under_way_;
  request.on_done = [this, server](const Status& status) {
    --servers_[server].under_way;
    if (!status.ok() && status_.ok()) status_ = status;
    if (--under_way_ == 0) turn_idle();
  };
  client_.submit(server, lane, std::move(request));
}

void Communicator::turn_idle() {
  if (status_.ok() && values_missing_ != 0) {
    status_ = {ErrorCode::kInternal,
               {.what = "an answer ended before all of its values had come",
                .where = "parameter-server worker",
                .expected = "every piece of every value",
                .got = str_cat(values_missing_, " pieces are missing"),
                .fix = "run the same version in every process"}};
  }
  if (status_.ok() && stepping_) ++step_;
  stepping_ = false;
  const auto on_idle = on_idle_;  // it may set another one
  if (on_idle) on_idle();
}

std::vector<uint32_t> Communicator::waiting_for() const {
  std::vector<uint32_t> waiting;
  for (uint32_t i = 0; i < servers_.size(); ++i) {
    if (servers_[i].under_way > 0) waiting.push_back(i);
  }
  return waiting;
}

}  // namespace fleet::strategies
