#include "strategies/parameter_server/client/server_client.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/strings.h"
#include "strategies/parameter_server/client/request_group.h"
#include "strategies/parameter_server/protocol/row_payload.h"
#include "transport/rpc/long_message.h"

namespace fleet::strategies {
namespace {

using transport::ConstBytes;
using transport::FrameHeader;
using transport::Message;
using transport::MutableBytes;
using transport::PayloadTarget;
using transport::Request;
using transport::Verb;

transport::ChannelOptions channel_options(const ParameterServerConfig& config,
                                          const transport::Hello& hello, uint32_t server,
                                          uint32_t lane) {
  transport::ChannelOptions options;
  options.endpoint = config.servers[server];
  options.hello = hello;
  options.hello.lane = transport::LaneKind::kData;
  options.hello.lane_index = lane;
  options.hello.callee = transport::MemberId{transport::PeerRole::kServer, server};
  options.secret = config.secret;
  options.send_buffer = config.send_buffer;
  options.rpc_deadline = config.rpc_deadline;
  options.tell_unreachable = lane == 0;
  return options;
}

[[noreturn]] void throw_unknown(const ParameterIndex& parameter_index, uint32_t server,
                                std::string_view name, bool gradient) {
  std::vector<std::string> names;
  for (const auto& entry : parameter_index.entries)
    names.push_back(gradient ? entry.gradient : entry.name);
  throw_error(ErrorCode::kUnknownName,
              {.what = str_cat("server ", server, " does not keep what the program names"),
               .where = std::string(name),
               .expected = str_cat("one of ", join(names, ", ")),
               .got = str_cat(name, did_you_mean(name, names)),
               .fix = "transpile every role of the job from the same program and configuration"});
}

transport::Payload piece_of(const transport::Payload& whole, uint32_t piece) {
  if (whole.size == 0) return {};
  return {whole.data + piece_offset(piece), piece_bytes(whole.size, piece), whole.owner};
}

}  // namespace

ServerClient::ServerClient(Loop& loop, transport::Network& network,
                           const ParameterServerConfig& config, const transport::Hello& hello,
                           const std::function<void(MutableBytes)>& random, const Logger& logger)
    : config_(config),
      parameter_indexes_(config.server_num()),
      value_bytes_(config.server_num()),
      names_(config.server_num()),
      gradients_(config.server_num()),
      under_way_at_(config.server_num()),
      parameter_indexes_missing_(config.server_num()) {
  for (uint32_t server = 0; server < config.server_num(); ++server) {
    for (uint32_t lane = 0; lane <= config.data_lanes; ++lane) {
      transport::ChannelOptions options = channel_options(config, hello, server, lane);
      options.random = random;
      channels_.push_back(std::make_unique<transport::Channel>(loop, network, std::move(options),
                                                               transport::ChannelEvents{}, logger));
    }
  }
  if (config_.observer == nullptr) return;
  watch_ = config_.observer->waits.watch("requests", loop, [this] { return waits(); });
}

void ServerClient::start() {
  for (size_t i = 0; i < channels_.size(); ++i) {
    if (i % (config_.data_lanes + 1) < config_.data_lanes) channels_[i]->start();
  }
  for (uint32_t server = 0; server < config_.server_num(); ++server) ask_parameter_index(server);
}

void ServerClient::ask_parameter_index(uint32_t server) {
  Request request;
  request.frames.push_back(make_message(Verb::kInit, 0));
  const auto reader = std::make_shared<transport::MessageReader>();
  request.reply_target = [reader](const FrameHeader& header, ConstBytes) {
    return reader->target(header);
  };
  request.on_reply = [this, server, reader](const FrameHeader& header, ConstBytes control,
                                            MutableBytes) {
    const auto whole = reader->take(header, control);
    if (!whole) return;
    auto parameter_index =
        decode<ParameterIndex>(*whole, str_cat("the parameter index of server ", server));
    if (parameter_index.ok()) {
      keep_parameter_index(server, std::move(parameter_index).value());
      --parameter_indexes_missing_;
      on_parameter_index(server);
    } else {
      fail_all(parameter_index.status());
    }
  };
  submit(server, 0, std::move(request));
}

void ServerClient::keep_parameter_index(uint32_t server, ParameterIndex parameter_index) {
  parameter_indexes_[server] = std::move(parameter_index);
  const auto& entries = parameter_indexes_[server].entries;
  for (uint32_t i = 0; i < entries.size(); ++i) {
    value_bytes_[server].push_back(entries[i].bytes());
    names_[server].emplace(entries[i].name, i);
    if (!entries[i].gradient.empty()) gradients_[server].emplace(entries[i].gradient, i);
  }
}

RemoteVariable ServerClient::find(uint32_t server, std::string_view name) const {
  const auto found = names_.at(server).find(name);
  if (found != names_[server].end()) return {server, found->second};
  throw_unknown(parameter_indexes_[server], server, name, false);
}

RemoteVariable ServerClient::find_gradient(uint32_t server, std::string_view gradient) const {
  const auto found = gradients_.at(server).find(gradient);
  if (found != gradients_[server].end()) return {server, found->second};
  throw_unknown(parameter_indexes_[server], server, gradient, true);
}

void ServerClient::check_value_bytes(RemoteVariable variable, uint64_t bytes,
                                     std::string_view op) const {
  const uint64_t wanted = value_bytes_[variable.server][variable.variable];
  if (wanted == bytes) return;
  const ParameterEntry& entry = parameter_indexes_[variable.server].entries[variable.variable];
  throw_error(ErrorCode::kShapeMismatch,
              {.what = "a tensor and its server's slice differ in size",
               .where = str_cat(op, " of ", entry.name, " on server ", variable.server),
               .expected = str_cat(wanted, " bytes"),
               .got = str_cat(bytes, " bytes"),
               .fix = "transpile every role of the job from the same program and configuration"});
}

void ServerClient::assign(RemoteVariable variable, const std::byte* value, uint64_t bytes) {
  check_value_bytes(variable, bytes, "assign");
  Request request;
  const uint32_t pieces = pieces_of(bytes);
  for (uint32_t piece = 0; piece < pieces; ++piece) {
    Message& message = request.frames.emplace_back(make_message(Verb::kInit, 0));
    if (piece + 1 < pieces) message.header.flags = transport::kFlagMore;
    message.header.variable = variable.variable;
    message.header.piece = piece;
    message.payload = piece_of({value, bytes, nullptr}, piece);
  }
  if (pieces > 0) submit(variable.server, 0, std::move(request));
}

void ServerClient::set_steps_before(uint64_t steps, transport::DoneHandler on_done) {
  RequestGroup requests(std::move(on_done));
  for (uint32_t server = 0; server < config_.server_num(); ++server) {
    Request request;
    Message& message = request.frames.emplace_back(make_message(Verb::kInit, steps));
    message.header.variable = kNoVariables;
    request.on_done = requests.add();
    submit(server, 0, std::move(request));
  }
  requests.begun();
}

// What a get of rows waits for: pieces of each variable's values, on their way to the caller's
// memory.
class ServerClient::RowsReader {
 public:
  void add(const RowsWanted& wanted, const ParameterEntry& entry, bool has_values) {
    if (!has_values) return;
    Values& values = values_.emplace_back();
    values.variable = wanted.variable;
    values.bytes = wanted.rows.size() * entry.sent_row_bytes();
    values.dtype = entry.row_dtype();
    values.to = wanted.memory;
    if (values.dtype != entry.dtype) values.narrow = Buffer(values.bytes);
    values.arrived.resize(pieces_of(values.bytes));
  }

  PayloadTarget target(uint32_t server, const FrameHeader& header) {
    Values* values = find(header.variable);
    if (values == nullptr) return target_of(server, header, nullptr, 0);
    std::byte* memory = values->narrow ? values->narrow.data() : values->to;
    return target_of(server, header, memory, values->bytes);
  }
  void note(const FrameHeader& header) { find(header.variable)->arrived[header.piece] = true; }
  // Pieces that have not come.
  uint64_t missing() const {
    uint64_t missing = 0;
    for (const Values& values : values_) {
      missing +=
          static_cast<uint64_t>(std::count(values.arrived.begin(), values.arrived.end(), false));
    }
    return missing;
  }
  void widen() const {
    for (const Values& values : values_) {
      if (!values.narrow) continue;
      values_of_sent(values.narrow.data(), values.dtype,
                     values.bytes / fluid::dtype_size(values.dtype),
                     reinterpret_cast<float*>(values.to));
    }
  }

 private:
  struct Values {
    uint32_t variable = 0;
    uint64_t bytes = 0;  // on the wire
    fluid::DType dtype = fluid::DType::kFloat32;
    std::byte* to = nullptr;
    Buffer narrow;  // where they are 16-bit values
    std::vector<bool> arrived;
  };
  Values* find(uint32_t variable) {
    const auto found = std::lower_bound(
        values_.begin(), values_.end(), variable,
        [](const Values& each, uint32_t number) { return each.variable < number; });
    return found != values_.end() && found->variable == variable ? &*found : nullptr;
  }

  std::vector<Values> values_;  // ascending by variable
};

void ServerClient::get_rows(RemoteVariable variable, std::vector<int64_t> rows, std::byte* memory,
                            transport::DoneHandler on_done) {
  ask_rows(variable.server, {{variable.variable, std::move(rows), memory}}, GrowingGet::kReads,
           rows_step(), std::move(on_done));
}

void ServerClient::get_growing_rows(uint32_t server, std::vector<RowsWanted> wanted,
                                    GrowingGet what, bool ahead,
                                    const std::function<transport::DoneHandler()>& next_on_done) {
  std::sort(wanted.begin(), wanted.end(),
            [](const RowsWanted& a, const RowsWanted& b) { return a.variable < b.variable; });
  std::vector<std::vector<RowsWanted>> lanes(config_.data_lanes);
  for (RowsWanted& each : wanted) {
    lanes[lane_of({server, each.variable})].push_back(std::move(each));
  }
  for (const auto& lane : lanes) {
    if (!lane.empty()) ask_rows(server, lane, what, rows_step() + (ahead ? 1 : 0), next_on_done());
  }
}

void ServerClient::ask_rows(uint32_t server, const std::vector<RowsWanted>& wanted, GrowingGet what,
                            uint64_t step, transport::DoneHandler on_done) {
  const auto reader = std::make_shared<RowsReader>();
  const auto bytes = std::make_shared<std::vector<std::byte>>();
  std::vector<RowsOfGet> counts;
  for (const RowsWanted& each : wanted) {
    reader->add(each, parameter_indexes_[server].entries[each.variable],
                what != GrowingGet::kMakesRowsOnly);
    const auto append = [&bytes](const auto& numbers) {
      const auto* begin = reinterpret_cast<const std::byte*>(numbers.data());
      bytes->insert(bytes->end(), begin, begin + numbers.size() * sizeof(numbers.front()));
    };
    append(each.rows);
    append(each.shows);
    counts.push_back({each.variable, each.rows.size(), !each.shows.empty()});
  }
  Request request;
  Message& message = request.frames.emplace_back(make_message(Verb::kGet, step));
  message.header.flags = kFlagRows;
  message.header.variable = kListedVariables;
  message.header.piece = static_cast<uint32_t>(what);
  message.control = encode(counts);
  message.payload = {bytes->data(), bytes->size(), bytes};
  request.reply_target = [reader, server](const FrameHeader& header, ConstBytes) {
    return reader->target(server, header);
  };
  request.on_reply = [reader](const FrameHeader& header, ConstBytes, MutableBytes payload) {
    if (!payload.empty()) reader->note(header);
  };
  request.on_done = [this, reader, then = std::move(on_done)](const Status& status) {
    const uint64_t missing = reader->missing();
    if (status.ok() && missing > 0) fail(incomplete("parameter-server worker", missing));
    if (status.ok() && missing == 0) reader->widen();
    if (then) then(status.ok() ? status_ : status);
  };
  submit(server, lane_of({server, wanted.front().variable}), std::move(request));
}

Status ServerClient::incomplete(std::string where, uint64_t pieces) {
  return {ErrorCode::kInternal,
          {.what = "an answer ended before all of its values had come",
           .where = std::move(where),
           .expected = "every piece of every value",
           .got = str_cat(pieces, " pieces are missing"),
           .fix = "run the same version in every process"}};
}

void ServerClient::save_table(uint32_t server, const TableSnapshot& snapshot,
                              transport::DoneHandler on_done) {
  Request request;
  request.frames.push_back(make_message(Verb::kSnapshot, rows_step()));
  request.frames.back().control = encode(snapshot);
  request.on_done = std::move(on_done);
  submit(server, 0, std::move(request));
}

void ServerClient::save_parts(const PartOrder& first, std::string& why,
                              transport::DoneHandler on_done) {
  RequestGroup requests(std::move(on_done));
  std::set<std::string_view> whole;
  for (uint32_t server = 0; server < config_.server_num(); ++server) {
    PartOrder order = first;
    order.part += static_cast<int32_t>(server);
    const auto& entries = parameter_indexes_[server].entries;
    for (uint32_t i = 0; i < entries.size(); ++i) {
      const bool copied = entries[i].is_whole() && !whole.insert(entries[i].origin).second;
      if (!copied) order.variables.push_back(i);
    }
    Message message = make_message(Verb::kSnapshot, rows_step());
    message.control = encode(order);
    submit_order(server, std::move(message), why, requests.add());
  }
  requests.begun();
}

void ServerClient::load_parts(const PartSource& source, std::string& why,
                              transport::DoneHandler on_done) {
  RequestGroup requests(std::move(on_done));
  for (uint32_t server = 0; server < config_.server_num(); ++server) {
    Message message = make_message(Verb::kInit, 0);
    message.control = encode(source);
    submit_order(server, std::move(message), why, requests.add());
  }
  requests.begun();
}

void ServerClient::submit_order(uint32_t server, Message order, std::string& why,
                                transport::DoneHandler on_done) {
  Request request;
  order.header.flags = kFlagPart;
  request.frames.push_back(std::move(order));
  request.on_reply = [&why, server](const FrameHeader&, ConstBytes control, MutableBytes) {
    const auto refused = decode<std::string>(control, "the answer to a part of a checkpoint");
    if (refused.ok() && refused.value().empty()) return;
    why = str_cat("server ", server, ": ",
                  refused.ok() ? refused.value() : refused.status().to_string());
  };
  request.on_done = std::move(on_done);
  submit(server, 0, std::move(request));
}

void ServerClient::order_tables(const OrderOfServer& order, std::vector<TableAnswer>& answers,
                                transport::DoneHandler on_done) {
  answers.resize(config_.server_num());
  RequestGroup requests(std::move(on_done));
  for (uint32_t server = 0; server < config_.server_num(); ++server) {
    Request request;
    Message message = make_message(Verb::kNotify, rows_step());
    message.header.flags = kFlagTable;
    message.control = encode(order(server));
    request.frames.push_back(std::move(message));
    request.on_reply = [&answer = answers[server]](const FrameHeader&, ConstBytes control,
                                                   MutableBytes) {
      auto decoded = decode<TableAnswer>(control, "what became of a growing table");
      if (decoded.ok()) {
        answer = std::move(decoded).value();
      } else {
        answer.why = decoded.status().to_string();
      }
    };
    request.on_done = requests.add();
    submit(server, 0, std::move(request));
  }
  requests.begun();
}

void ServerClient::complete() {
  for (uint32_t server = 0; server < config_.server_num(); ++server) {
    Request request;
    request.frames.push_back(make_message(Verb::kNotify, step_));
    submit(server, 0, std::move(request));
  }
}

// ---- frames

Message ServerClient::make_message(Verb verb, uint64_t step) const {
  Message message;
  message.header.verb = verb;
  message.header.step = step;
  return message;
}

Message ServerClient::make_push(RemoteVariable slice, uint64_t step, ShardRange shards,
                                const transport::Payload& whole, uint32_t piece,
                                const uint64_t* rows) const {
  Message message = make_message(Verb::kPush, step);
  message.header.flags = transport::kFlagMore;
  message.header.shard_begin = static_cast<uint32_t>(shards.begin);
  message.header.shard_end = static_cast<uint32_t>(shards.end);
  message.header.variable = slice.variable;
  message.header.piece = piece;
  if (rows != nullptr) {
    message.header.flags |= kFlagRows;
    message.control = encode(*rows);
  }
  message.payload = piece_of(whole, piece);
  return message;
}

Message ServerClient::make_get(uint32_t server, uint32_t lane, uint64_t step,
                               const std::vector<uint32_t>& variables) const {
  Message message = make_message(Verb::kGet, step);
  const uint32_t trained = parameter_indexes_[server].trained;
  const uint32_t lanes = config_.data_lanes;
  const uint32_t trained_here = trained > lane ? (trained - lane + lanes - 1) / lanes : 0;
  const bool all = variables.size() == trained_here &&
                   std::all_of(variables.begin(), variables.end(),
                               [trained](uint32_t variable) { return variable < trained; });
  if (variables.empty()) {
    message.header.variable = kNoVariables;
  } else if (all) {
    message.header.variable = kAllVariables;
  } else if (variables.size() == 1) {
    message.header.variable = variables.front();
  } else {
    message.header.variable = kListedVariables;
    message.control = encode(variables);
  }
  return message;
}

PayloadTarget ServerClient::target_of(uint32_t server, const FrameHeader& header, std::byte* memory,
                                      uint64_t bytes) {
  if (memory != nullptr && header.piece < pieces_of(bytes) &&
      header.payload_bytes == piece_bytes(bytes, header.piece)) {
    return PayloadTarget::into({memory + piece_offset(header.piece), header.payload_bytes});
  }
  return PayloadTarget::refuse({ErrorCode::kBadFrame,
                                {.what = "a server answered with a value that was not asked for",
                                 .where = str_cat("server ", server),
                                 .expected = "a piece of a variable that is being received",
                                 .got = str_cat("variable ", header.variable, ", piece ",
                                                header.piece, ", ", header.payload_bytes, " bytes"),
                                 .fix = "run the same version in every process"}});
}

// ---- requests under way

void ServerClient::submit(uint32_t server, uint32_t lane, Request request) {
  ++under_way_at_[server];
  ++under_way_;
  request.on_done = [this, server, then = std::move(request.on_done)](const Status& status) {
    if (then) then(status);
    if (!status.ok()) fail(status);
    --under_way_at_[server];
    if (--under_way_ == 0) turn_idle();
  };
  transport::Channel& channel = *channels_[size_t{server} * (config_.data_lanes + 1) + lane];
  if (lane == config_.data_lanes) channel.start();
  channel.submit(std::move(request));
}

void ServerClient::turn_idle() {
  before_idle();
  const auto on_idle = on_idle_;  // it may set another one
  if (on_idle) on_idle();
}

std::vector<std::string> ServerClient::waits() const {
  std::vector<std::string> lines;
  for (const auto& channel : channels_) {
    for (std::string& line : channel->waits()) lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<uint32_t> ServerClient::waiting_for() const {
  std::vector<uint32_t> waiting;
  for (uint32_t i = 0; i < under_way_at_.size(); ++i) {
    if (under_way_at_[i] > 0) waiting.push_back(i);
  }
  return waiting;
}

}  // namespace fleet::strategies
