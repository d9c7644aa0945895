#include "strategies/parameter_server/server/server_lanes.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <utility>

#include "base/caught.h"
#include "base/strings.h"
#include "fluid/ops/distributed/table_ops.h"
#include "strategies/parameter_server/errors.h"
#include "strategies/parameter_server/protocol/row_payload.h"
#include "strategies/parameter_server/server/update_pool.h"

namespace fleet::strategies {
namespace {

using transport::ConstBytes;
using transport::FrameHeader;
using transport::MutableBytes;
using transport::PayloadTarget;
using transport::Session;
using transport::Verb;

// Answers of that many bytes leave before the rest of the answer is there.
constexpr size_t kFlushBytes = 128 * 1024;

template <class Control>
void send_control(Session& session, const FrameHeader& header, const Control& control) {
  transport::Message reply = transport::make_reply(header);
  reply.control = encode(control);
  session.send(std::move(reply));
}

// Of all of them together; nothing while one is busy.
std::string progress_of(const std::vector<std::shared_ptr<fluid::tables::SharedTable>>& tables) {
  fluid::tables::TableStatistics all;
  for (const auto& table : tables) {
    const auto one = table->statistics_now();
    if (!one) return "";
    all += *one;
  }
  return str_cat(" table_rows=", all.rows, " table_bytes=", all.bytes, " table_hits=", all.hits,
                 " table_misses=", all.misses, " table_admitted=", all.admitted,
                 " table_refused=", all.refused, " table_evicted=", all.evicted);
}

}  // namespace

ServerLanes::ServerLanes(const ParameterServerConfig& config, ServerModel model,
                         ServingEvents events, Logger logger)
    : config_(config),
      model_(std::move(model)),
      events_(std::move(events)),
      logger_(std::move(logger)),
      guard_(config_.on_nonfinite, str_cat("server ", config_.index), config_.observer, logger_),
      save_folders_(config_.save_folders),
      beside_frames_(beside_frames()),
      saves_(beside_frames_),
      part_writer_(save_folders_, events_.make_background(), *events_.files, logger_),
      orders_(config_.index, config_.server_num(), save_folders_, *events_.files,
              events_.make_background()),
      lanes_(std::max<size_t>(1, events_.lane_loops.size())) {
  for (size_t i = 0; i < events_.lane_loops.size(); ++i) {
    lanes_[i].outbox.emplace(*events_.lane_loops[i]);
  }
  for (ParameterEntry& entry : model_.parameter_index.entries) {
    entry.narrow_rows = config_.narrow_rows;
  }
  for (uint32_t i = 0; i < model_.shards.size(); ++i) {
    const auto table = model_.shards[i]->table();
    if (table) orders_.add_table(model_.parameter_index.entries[i].name, table);
  }
  show_tables();
}

void ServerLanes::show_tables() const {
  std::vector<std::shared_ptr<fluid::tables::SharedTable>> tables;
  for (const auto& shard : model_.shards) {
    if (shard->table()) tables.push_back(shard->table());
  }
  if (!config_.observer || tables.empty()) return;
  config_.observer->set_table_progress(
      [tables = std::move(tables)] { return progress_of(tables); });
}

// Where files are written and read: in another thread, or between other work of the data loop.
TableSaves::Run ServerLanes::beside_frames() {
  if (!events_.offload && !events_.run_later) return {};
  return [this](const std::function<void()>& work, const std::function<void()>& done) {
    const auto finish = [this, done] {
      const Lock locked = lock();
      done();
    };
    if (events_.offload) return events_.offload(work, finish);
    events_.run_later([work, finish] {
      work();
      finish();
    });
  };
}

void ServerLanes::look_at_updates(std::optional<uint32_t> sender, std::optional<uint64_t> step) {
  auto found = model_.watch == nullptr ? std::nullopt : model_.watch->take();
  if (!found) return;
  if (step) found->step = *step;
  const Status status = guard_.report(*found, sender);
  if (!status.ok() && events_.on_failure) events_.on_failure(status, found->step);
}

Loop* ServerLanes::on_open(Session& session) {
  lane_of(session).peers[session.id()] = {&session, 0};
  return nullptr;
}

void ServerLanes::on_closed(Session& session, const Status& why) {
  Lane& lane = lane_of(session);
  if (lane.peers.erase(session.id()) == 0) return;
  lane.received.drop_session(session.id());
  {
    const Lock locked = lock();
    saves_.drop_session(session.id());
  }
  if (!why.ok()) {
    logger_.debug("server", "a data lane closed",
                  {{"peer", session.describe()}, {"why", why.text().what}});
  }
  drop_session(session.id());
}

Status ServerLanes::check_sender(const Session& session, const FrameHeader& header) const {
  const transport::MemberId member = session.peer().member;
  const bool exchanges = from_server(session) && header.verb == Verb::kPush &&
                         !model_.exchanges.empty() && member.index < config_.server_num();
  const bool worker =
      member.role == transport::PeerRole::kWorker && member.index < config_.worker_num;
  if (!worker && !exchanges) {
    return bad_frame("only workers of the job may train",
                     str_cat("worker 0 to ", config_.worker_num - 1), member.to_string());
  }
  return {};
}

// Which half of a gradient had been taken in is not known: nothing that comes later is looked at.
void ServerLanes::fail(const Status& why) {
  failed_ = true;
  if (events_.on_failure) events_.on_failure(why, step() + 1);
}

PayloadTarget ServerLanes::prepare_payload(Session& session, const FrameHeader& header,
                                           ConstBytes control) {
  if (failed_) return PayloadTarget::discard();
  try {
    return prepare(session, header, control);
  } catch (const Error&) {
    throw;  // the sender's mistake
  } catch (...) {
    fail(caught_status(str_cat("server ", config_.index)));
    return PayloadTarget::discard();
  }
}

PayloadTarget ServerLanes::prepare(Session& session, const FrameHeader& header,
                                   ConstBytes control) {
  Status status = check_sender(session, header);
  if (!status.ok()) return PayloadTarget::refuse(std::move(status));
  if (header.verb == Verb::kPush) return prepare_push(session, header, control);
  if (header.verb == Verb::kInit) return prepare_initial(session, header);
  if (header.verb == Verb::kGet) return prepare_row_numbers(session, header, control);
  return PayloadTarget::refuse(bad_frame("a frame must not have a payload", "push, get or init",
                                         std::string(transport::verb_name(header.verb))));
}

Status ServerLanes::answered(Session& session, const FrameHeader& header, Status status) {
  if (status.ok() && !header.has(transport::kFlagMore)) {
    session.send(transport::make_reply(header));
  }
  return status;
}

PayloadTarget ServerLanes::prepare_initial(const Session& session, const FrameHeader& header) {
  const Lock lock(mutex_);
  if (!untouched()) return PayloadTarget::discard();  // on_frame says why
  if (header.variable >= model_.tensors.size()) {
    return PayloadTarget::refuse(bad_frame("a value came for a variable that is not here",
                                           str_cat("ids below ", model_.tensors.size()),
                                           str_cat(header.variable)));
  }
  const fluid::Tensor& tensor = *model_.tensors[header.variable];
  if (header.piece >= pieces_of(tensor.bytes()) ||
      header.payload_bytes != piece_bytes(tensor.bytes(), header.piece)) {
    return PayloadTarget::refuse(
        bad_frame("a piece of an initial value has the wrong size",
                  str_cat("a piece of ", tensor.bytes(), " bytes"),
                  str_cat("piece ", header.piece, " with ", header.payload_bytes, " bytes")));
  }
  return lane_of(session).received.lend(session.id(), header.payload_bytes);
}

void ServerLanes::on_frame(Session& session, const FrameHeader& header, ConstBytes control,
                           MutableBytes payload) {
  if (failed_) return;
  if (config_.observer) config_.observer->bytes_in += header.payload_bytes;
  try {
    Status status = check_sender(session, header);
    if (status.ok()) status = handle(session, header, control, payload);
    if (!status.ok()) refuse(session, header, status);
  } catch (const Error&) {
    throw;  // the sender's mistake
  } catch (...) {
    fail(caught_status(str_cat("server ", config_.index)));
  }
}

void ServerLanes::refuse(Session& session, const FrameHeader& header, const Status& why) const {
  logger_.warning("server", "a request was refused",
                  {{"peer", session.describe()}, {"why", why.to_string()}});
  if (header.request_id != 0) session.send(transport::make_error_reply(header, why));
}

PayloadTarget ServerLanes::prepare_row_numbers(const Session& session, const FrameHeader& header,
                                               ConstBytes control) {
  const auto wanted = read_wanted_rows(header, control);
  if (!wanted.ok()) return PayloadTarget::refuse(wanted.status());
  return lane_of(session).received.lend(session.id(), header.payload_bytes);
}

Result<std::vector<RowsOfGet>> ServerLanes::read_wanted_rows(const FrameHeader& header,
                                                             ConstBytes control) const {
  if (!header.has(kFlagRows)) {
    return bad_frame("a get of whole values has a payload", "no payload, or kFlagRows",
                     str_cat(header.payload_bytes, " bytes"));
  }
  auto wanted = decode<std::vector<RowsOfGet>>(control, "the rows of a get");
  if (!wanted.ok()) return wanted;
  const auto& entries = model_.parameter_index.entries;
  uint64_t bytes = 0;
  uint64_t growing = 0;  // rows of growing tables
  uint64_t least = 0;
  for (const RowsOfGet& each : wanted.value()) {
    if (each.variable < least || each.variable >= entries.size() ||
        entries[each.variable].shape.empty()) {
      return bad_frame("a get names rows of a variable that has none, or not in order",
                       "variables of this server with rows, strictly ascending",
                       str_cat("variable ", each.variable));
    }
    least = uint64_t{each.variable} + 1;
    const ParameterEntry& entry = entries[each.variable];
    const uint64_t most =
        entry.growing ? kMostRowsOfGet - growing : static_cast<uint64_t>(entry.height());
    if (each.rows > most) {
      return bad_frame("a get names more rows than it may", str_cat(most, " at most"),
                       str_cat(each.rows, " of variable ", each.variable));
    }
    if (each.shown && !entry.growing) {
      return bad_frame("a get tells shows of rows that are of no growing table",
                       "shows of ids of a growing table", str_cat("variable ", each.variable));
    }
    bytes += each.bytes();
    growing += entry.growing ? each.rows : 0;
  }
  if (bytes != header.payload_bytes) {
    return bad_frame("the numbers of a get's rows have the wrong size", str_cat(bytes, " bytes"),
                     str_cat(header.payload_bytes, " bytes"));
  }
  return wanted;
}

namespace {

Status check_row_numbers(const std::vector<int64_t>& rows, const ParameterEntry& entry) {
  if (entry.growing) {
    const auto wrong = std::adjacent_find(rows.begin(), rows.end(), std::greater_equal<>());
    if (wrong == rows.end()) return {};
    return bad_frame("the ids of a get are not strictly ascending", str_cat("an id above ", *wrong),
                     str_cat(*(wrong + 1)));
  }
  int64_t least = 0;
  for (const int64_t row : rows) {
    if (row < least || row >= entry.height()) {
      return bad_frame("the rows of a get are not strictly ascending inside their variable",
                       str_cat("a row from ", least, " to ", entry.height() - 1), str_cat(row));
    }
    least = row + 1;
  }
  return {};
}

}  // namespace

Status ServerLanes::read_rows(const FrameHeader& header, ConstBytes control, ConstBytes payload,
                              GetCall& call) const {
  if (header.piece > static_cast<uint32_t>(GrowingGet::kMakesRowsOnly)) {
    return bad_frame("a get says what a server does not know", "a GrowingGet",
                     str_cat("piece ", header.piece));
  }
  call.growing = static_cast<GrowingGet>(header.piece);
  const auto wanted = read_wanted_rows(header, control);
  if (!wanted.ok()) return wanted.status();
  const std::byte* from = payload.data();
  for (const RowsOfGet& each : wanted.value()) {
    std::vector<int64_t>& rows = call.rows.emplace_back(each.rows);
    if (each.rows > 0) std::memcpy(rows.data(), from, each.rows * sizeof(int64_t));
    std::vector<float>& shows = call.shows.emplace_back(each.shown ? 2 * each.rows : 0);
    if (!shows.empty()) {
      std::memcpy(shows.data(), from + each.rows * sizeof(int64_t), shows.size() * sizeof(float));
    }
    from += each.bytes();
    call.variables.push_back(each.variable);
    Status status = check_row_numbers(rows, model_.parameter_index.entries[each.variable]);
    if (!status.ok()) return status;
  }
  return {};
}

Result<GetCall> ServerLanes::read_get(const Session& session, const FrameHeader& header,
                                      ConstBytes control, ConstBytes payload) const {
  GetCall call;
  call.session = session.id();
  call.request = header.request_id;
  call.worker = session.peer().member.index;
  call.step = header.step;
  call.lane = session.peer().lane_index;
  if (header.has(kFlagRows)) {
    Status status = read_rows(header, control, payload, call);
    if (!status.ok()) return status;
    return call;
  }
  if (header.variable == kAllVariables) {
    call.all = true;
  } else if (header.variable == kListedVariables) {
    auto list = decode<std::vector<uint32_t>>(control, "the variables of a get");
    if (!list.ok()) return list.status();
    call.variables = std::move(list).value();
  } else if (header.variable != kNoVariables) {
    call.variables = {header.variable};
  }
  return call;
}

Status ServerLanes::handle_get(const Session& session, const FrameHeader& header,
                               ConstBytes control, ConstBytes payload) {
  Result<GetCall> call = read_get(session, header, control, payload);
  return call.ok() ? get(std::move(call).value()) : call.status();
}

Status ServerLanes::handle_common(Session& session, const FrameHeader& header, ConstBytes control,
                                  ConstBytes payload) {
  switch (header.verb) {
    case Verb::kGet:
      return handle_get(session, header, control, payload);
    case Verb::kInit:
      return handle_init(session, header, control, payload);
    case Verb::kNotify:
      if (header.has(kFlagTable)) return handle_table_order(session, header, control);
      return answered(session, header, complete(session.peer().member.index, header.step));
    case Verb::kSnapshot:
      return header.has(kFlagPart) ? handle_part(session, header, control)
                                   : handle_snapshot(session, header, control);
    default:
      return bad_frame("a frame has no meaning on a data lane",
                       "push, get, init, notify or snapshot, and barrier or credit of a "
                       "synchronous job",
                       std::string(transport::verb_name(header.verb)));
  }
}

void ServerLanes::tell_parameter_index(Session& session, const FrameHeader& header) {
  if (told_ == nullptr || told_step_ != step()) {
    model_.parameter_index.step = told_step_ = step();
    told_ = std::make_shared<const std::vector<std::byte>>(encode(model_.parameter_index));
  }
  for (auto& frame : transport::message_frames(transport::make_reply(header).header, told_)) {
    session.send(std::move(frame), false);
  }
  session.flush();
}

Status ServerLanes::handle_init(Session& session, const FrameHeader& header, ConstBytes control,
                                ConstBytes payload) {
  const bool is_source = header.has(kFlagPart);
  if (header.payload_bytes == 0 && header.variable != kNoVariables && !is_source) {
    tell_parameter_index(session, header);
    return {};
  }
  if (!untouched()) {
    return bad_frame("initial values come before the first step", "step 0",
                     str_cat("step ", step() + 1));
  }
  if (is_source) return handle_part_source(session, header, control);
  if (header.variable == kNoVariables) {
    if (model_.steps_before) model_.steps_before(header.step);
    return answered(session, header, {});
  }
  if (lane_of(session).received.holds(session.id(), payload)) {
    fluid::Tensor& tensor = writable(header.variable);
    std::memcpy(tensor.raw() + piece_offset(header.piece), payload.data(), payload.size());
  }
  if (!header.has(transport::kFlagMore)) session.send(transport::make_reply(header));
  tell_initial_value(header.variable);
  return {};
}

void ServerLanes::tell_initial_value(uint32_t variable) {
  if (!model_.on_value || variable >= model_.shards.size()) return;
  for (uint32_t worker = 0; worker < config_.worker_num; ++worker) {
    model_.on_value(worker, variable, value_of(variable));
  }
}

Status ServerLanes::handle_part_source(const Session& session, const FrameHeader& header,
                                       ConstBytes control) {
  auto source = decode<PartSource>(control, "a checkpoint to read");
  if (!source.ok()) return source.status();
  const auto outcome = std::make_shared<Status>();
  const auto read = [this, outcome, from = std::move(source).value()] {
    *outcome = outcome_of([&] { read_part(from); });
  };
  const auto answer = [this, outcome, header, id = session.id(), lane = session.peer().lane_index] {
    const std::string why = outcome->ok() ? "" : outcome->to_string();
    on_loop_of(id, lane, [header, why](Peer& peer) { send_control(*peer.session, header, why); });
  };
  if (beside_frames_) {
    beside_frames_(read, answer);
  } else {
    read();
    answer();
  }
  return {};
}

// In a thread of its own: large tables take long.
Status ServerLanes::handle_table_order(const Session& session, const FrameHeader& header,
                                       ConstBytes control) {
  auto order = decode<TableOrder>(control, "what a growing table is to do");
  if (!order.ok()) return order.status();
  const auto carry_out = [this, worker = session.peer().member.index,
                          what = std::move(order).value()] {
    return orders_.carry_out(worker, what, [this] {
      const Lock locked = lock();
      return untouched();
    });
  };
  const auto answer = [this, header, id = session.id(),
                       lane = session.peer().lane_index](const TableAnswer& with) {
    on_loop_of(id, lane, [header, with](Peer& peer) { send_control(*peer.session, header, with); });
  };
  if (!events_.run_later) {
    answer(carry_out());
    return {};
  }
  orders_.later([this, carry_out, answer] {
    events_.run_later([this, answer, with = carry_out()] {
      const Lock locked = lock();
      answer(with);
    });
  });
  return {};
}

void ServerLanes::read_part(const PartSource& source) {
  const auto& entries = model_.parameter_index.entries;
  const auto checkpoint = open_source(source, save_folders_, *events_.files);
  if (source.check) {
    check_values(checkpoint, entries);
    for (uint32_t i = 0; i < entries.size(); ++i) {
      if (!entries[i].growing) continue;
      check_table_form(checkpoint, entries[i].origin, *model_.shards[i]->table(), *events_.files);
    }
    return;
  }
  const auto mine = [this](uint32_t bucket) {
    return fluid::server_of_bucket(bucket, config_.server_num()) == config_.index;
  };
  const Lock locked = lock();
  if (!untouched()) {
    throw_error(ErrorCode::kPrecondition, {.what = "a step has begun while a checkpoint was read",
                                           .where = source.folder,
                                           .expected = "step 0",
                                           .got = str_cat("step ", step() + 1),
                                           .fix = "load before the first step of any worker"});
  }
  read_values(checkpoint, entries,
              [this](uint32_t variable) -> fluid::Tensor& { return writable(variable); });
  for (uint32_t i = 0; i < entries.size(); ++i) {
    if (entries[i].growing) {
      read_table(checkpoint, entries[i].origin, *model_.shards[i]->table(), mine, *events_.files);
    }
  }
  for (uint32_t i = 0; i < entries.size(); ++i) tell_initial_value(i);
}

Result<uint32_t> ServerLanes::find_saved_table(const std::string& name) const {
  const auto& tables = model_.saved_tables;
  if (tables.empty()) {
    return bad_frame("a server without distributed tables was told to save one",
                     "a server program with checkpint_block_id", name);
  }
  const auto& entries = model_.parameter_index.entries;
  const auto entry = std::find_if(entries.begin(), entries.end(),
                                  [&name](const auto& each) { return each.name == name; });
  if (entry != entries.end() && std::find(tables.begin(), tables.end(), name) != tables.end()) {
    return static_cast<uint32_t>(entry - entries.begin());
  }
  return Status(ErrorCode::kUnknownName,
                {.what = "a server has no such table to save",
                 .where = "checkpoint_notify, lookup_table",
                 .expected = "one of " + join(tables, ", "),
                 .got = str_cat("'", name, "'", did_you_mean(name, tables)),
                 .fix = "name a table with is_distributed"});
}

Status ServerLanes::handle_snapshot(Session& session, const FrameHeader& header,
                                    ConstBytes control) {
  const auto snapshot = decode<TableSnapshot>(control, "what to save");
  if (!snapshot.ok()) return snapshot.status();
  const auto table = find_saved_table(snapshot.value().table);
  if (!table.ok()) return table.status();
  const uint32_t variable = table.value();
  const auto file = std::make_shared<TableCheckpoint>(
      model_.parameter_index.entries[variable], [folders = save_folders_, what = snapshot.value()] {
        return folders.place_for(std::filesystem::path(what.folder) /
                                 str_cat(what.table, "_", what.number));
      });
  if (variable < model_.shards.size()) {
    model_.shards[variable]->show(file);
  } else {
    file->begin(*model_.tensors[variable]);  // shared: whoever changes it copies it first
  }
  const auto finish = [this, header, id = session.id(),
                       lane = session.peer().lane_index](const Status& outcome) {
    on_loop_of(id, lane, [this, header, outcome](Peer& peer) {
      const Status status = answered(*peer.session, header, outcome);
      if (!status.ok()) refuse(*peer.session, header, status);
    });
  };
  saves_.begin(session.id(), file, finish);
  return {};
}

Status ServerLanes::handle_part(Session& session, const FrameHeader& header, ConstBytes control) {
  auto decoded = decode<PartOrder>(control, "which part of a checkpoint");
  if (!decoded.ok()) return decoded.status();
  PartOrder& order = decoded.value();
  const auto& entries = model_.parameter_index.entries;
  for (const uint32_t variable : order.variables) {
    if (variable < entries.size()) continue;
    return bad_frame("a variable of a checkpoint is not here",
                     str_cat("ids below ", entries.size()), str_cat(variable));
  }
  std::string why = part_writer_.refusal(order);
  if (why.empty()) {
    ServerPart part;
    why = begin_part(order, part);
    if (why.empty()) part_writer_.start(order, std::move(part));
  }
  send_control(session, header, why);
  return {};
}

// What is saved is what is there now. Returns why that cannot be.
std::string ServerLanes::begin_part(const PartOrder& order, ServerPart& part) const {
  const auto& entries = model_.parameter_index.entries;
  const Status begun = outcome_of([&] {
    for (const uint32_t variable : order.variables) {
      const ParameterEntry& entry = entries[variable];
      if (!entry.growing) {
        add_to_part(entry, value_of(variable), part);
        continue;
      }
      part.tables[entry.origin] = std::make_shared<fluid::io::TableSave>(
          model_.shards[variable]->table(),
          fluid::io::checkpoint_table_file(order.folder, entry.origin, order.part, order.parts),
          fluid::tables::TableSaveOptions{.part = config_.index, .parts = config_.server_num()},
          *events_.files);
    }
  });
  return begun.ok() ? "" : begun.to_string();
}

fluid::Tensor& ServerLanes::writable(uint32_t variable) {
  if (variable < model_.shards.size()) return model_.shards[variable]->writable();
  fluid::Tensor spare;
  detach(*model_.tensors[variable], spare);
  return *model_.tensors[variable];
}

fluid::Tensor ServerLanes::value_of(uint32_t variable) const {
  // Only slices have versions that stay while others read them; the rest is small or rare.
  return variable < model_.shards.size() ? model_.shards[variable]->read()
                                         : model_.tensors[variable]->clone();
}

namespace {

fluid::Tensor rows_of_value(const fluid::Tensor& value, const std::vector<int64_t>& wanted,
                            uint64_t row_bytes) {
  fluid::Shape shape = value.shape();
  shape.set(0, static_cast<int64_t>(wanted.size()));
  fluid::Tensor rows(value.dtype(), shape);
  std::byte* to = rows.raw();
  for (const int64_t row : wanted) {
    std::memcpy(to, value.raw() + static_cast<uint64_t>(row) * row_bytes, row_bytes);
    to += row_bytes;
  }
  return rows;
}

}  // namespace

fluid::Tensor ServerLanes::value_for(const ServerAnswer& answer) {
  if (answer.rows == nullptr) return value_of(answer.variable);
  const ParameterEntry& entry = model_.parameter_index.entries[answer.variable];
  const fluid::Tensor rows =
      entry.growing ? rows_of_table(answer)
                    : rows_of_value(value_of(answer.variable), *answer.rows, entry.row_bytes());
  return sent_values(rows, entry.row_dtype());
}

fluid::Tensor ServerLanes::rows_of_table(const ServerAnswer& answer) {
  using fluid::tables::GrowingTable;
  fluid::tables::SharedTable& table = *model_.shards[answer.variable]->table();
  const auto count = static_cast<int64_t>(answer.rows->size());
  fluid::Tensor rows(fluid::DType::kFloat32, {count, static_cast<int64_t>(table.options().width)});
  const std::span keys(reinterpret_cast<const uint64_t*>(answer.rows->data()), answer.rows->size());
  if (answer.growing != GrowingGet::kReads && is_new_lookup(answer)) {
    std::vector<float> shows;
    std::vector<float> clicks;
    for (size_t i = 0; answer.shows != nullptr && i < answer.shows->size(); i += 2) {
      shows.push_back((*answer.shows)[i]);
      clicks.push_back((*answer.shows)[i + 1]);
    }
    table.alone([&](GrowingTable& all) {
      if (!shows.empty()) all.add_shows(keys, shows, clicks);
      all.rows(keys, rows.data<float>());
    });
  } else {
    table.reading([&](const GrowingTable& all) {
      all.find(keys, rows.data<float>(), GrowingTable::Missing::kInitial);
    });
  }
  return answer.growing == GrowingGet::kMakesRowsOnly ? fluid::Tensor() : rows;
}

// A request that comes again over another connection has been counted. A worker's requests have
// numbers that ascend; those that are under way at once are few.
bool ServerLanes::is_new_lookup(const ServerAnswer& answer) {
  constexpr uint64_t kUnderWay = 128;
  const Lock locked = lock();
  std::set<uint64_t>& counted = counted_lookups_[{answer.worker, answer.variable}];
  const uint64_t newest = counted.empty() ? 0 : *counted.rbegin();
  if (newest > kUnderWay) {
    counted.erase(counted.begin(), counted.lower_bound(newest - kUnderWay));
    if (answer.request < newest - kUnderWay) return false;
  }
  return counted.insert(answer.request).second;
}

template <class OnPeer>
void ServerLanes::on_loop_of(uint64_t session, uint32_t lane, OnPeer on_peer) {
  Lane& where = lanes_[lane % lanes_.size()];
  auto call = [&where, session, on_peer = std::move(on_peer)] {
    const auto found = where.peers.find(session);
    if (found != where.peers.end()) on_peer(found->second);
  };
  if (!where.outbox) return call();
  where.outbox->post(std::move(call));
}

void ServerLanes::send(ServerAnswer answer) {
  fluid::Tensor value;
  if (answer.has_value) value = value_for(answer);
  answer.rows = nullptr;  // are the caller's
  answer.shows = nullptr;
  on_loop_of(answer.session, answer.lane,
             [this, answer, value = std::move(value)](Peer& peer) { write(peer, answer, value); });
}

void ServerLanes::write(Peer& peer, const ServerAnswer& answer, const fluid::Tensor& value) const {
  if (config_.observer) config_.observer->bytes_out += value.bytes();
  const uint32_t pieces = std::max<uint32_t>(1, pieces_of(value.bytes()));
  for (uint32_t piece = 0; piece < pieces; ++piece) {
    transport::Message message;
    message.header.verb = Verb::kReply;
    if (!answer.last || piece + 1 < pieces) message.header.flags = transport::kFlagMore;
    message.header.request_id = answer.request;
    message.header.step = answer.step;
    message.header.variable = answer.variable;
    message.header.piece = piece;
    if (value.bytes() > 0) {
      message.payload = {value.raw() + piece_offset(piece), piece_bytes(value.bytes(), piece),
                         value.buffer().owner()};
    }
    peer.unflushed += transport::kHeaderBytes + message.payload.size;
    peer.session->send(std::move(message), false);
  }
  if (answer.last || peer.unflushed >= kFlushBytes) {
    peer.unflushed = 0;
    peer.session->flush();
  }
}

}  // namespace fleet::strategies
