#include "strategies/parameter_server/worker/local_training.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "strategies/parameter_server/protocol/local_exchange.h"
#include "strategies/parameter_server/worker/remote_places.h"

namespace fleet::strategies {
namespace {

std::vector<std::byte> bytes_of(const fluid::Tensor& tensor) {
  const fluid::Tensor host = tensor.on_host();
  return {host.raw(), host.raw() + host.bytes()};
}

template <class T>
std::span<T> elements(std::vector<std::byte>& bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

template <class T>
std::span<T> elements(fluid::Tensor& host) {
  return {host.data<T>(), static_cast<size_t>(host.numel())};
}

// Runs `work` with a value of the parameter's element type.
template <class Work>
void with_type(const RemoteTensor& parameter, const Work& work) {
  if (parameter.dtype == fluid::DType::kFloat32) return work(float{});
  if (parameter.dtype == fluid::DType::kFloat64) return work(double{});
  throw_error(ErrorCode::kDTypeMismatch, {.what = "only float32 and float64 are exchanged",
                                          .where = parameter.name,
                                          .expected = "float32 or float64",
                                          .got = std::string(fluid::dtype_name(parameter.dtype)),
                                          .fix = "train this parameter with another strategy"});
}

// The rows that are not all zeros.
fluid::SelectedRows changed_rows(const RemoteTensor& parameter,
                                 std::span<const std::byte> difference) {
  fluid::SelectedRows rows;
  rows.height = parameter.shape[0];
  const size_t row_bytes =
      difference.size() / static_cast<size_t>(std::max<int64_t>(1, rows.height));
  std::vector<std::byte> values;
  for (int64_t row = 0; row < rows.height; ++row) {
    const auto begin = difference.begin() +
                       static_cast<std::ptrdiff_t>(row) * static_cast<std::ptrdiff_t>(row_bytes);
    const auto end = begin + static_cast<std::ptrdiff_t>(row_bytes);
    if (std::all_of(begin, end, [](std::byte byte) { return byte == std::byte{0}; })) continue;
    rows.rows.push_back(row);
    values.insert(values.end(), begin, end);
  }
  fluid::Shape shape = parameter.shape;
  shape.set(0, static_cast<int64_t>(rows.rows.size()));
  rows.value = fluid::Tensor(parameter.dtype, shape);
  if (!values.empty()) std::memcpy(rows.value.raw(), values.data(), values.size());
  return rows;
}

std::vector<std::vector<uint64_t>> ids_by_server(std::span<const uint64_t> ids, size_t servers) {
  std::vector<std::vector<uint64_t>> parts(servers);
  for (const uint64_t id : ids) parts[fluid::server_of_id(id, servers)].push_back(id);
  return parts;
}

}  // namespace

LocalTraining::LocalTraining(BackgroundClient& client, const AsyncOptions& options,
                             uint32_t workers)
    : client_(client), options_(options), trainers_(workers * options.trainer_threads) {}

void LocalTraining::define() {
  if (defined_) return;
  defined_ = true;
  parameters_ = trained_variables(client_.ready());
  gradients_ = client_.add_gradients(parameters_);
  values_ = client_.add_values(parameters_);
  define_tables(client_.ready());
}

void LocalTraining::define_tables(const ServerClient& client) {
  for (const std::string& name : growing_tables(client)) {
    Table& table = tables_.emplace_back();
    table.place = one_growing_table(name, client);
    std::vector<RemoteTensor> parts;
    for (const RemoteVariable& part : table.place.tables.front().parts) {
      parts.push_back(rows_at(name, part, client));
    }
    table.gradients = client_.add_gradients(parts);
  }
}

fluid::Tensor& LocalTraining::parameter(fluid::Scope& scope, size_t index) const {
  return scope.tensor(parameters_[index].name);
}

// Another scope may lie where one was.
void LocalTraining::forget_gone() {
  std::erase_if(scopes_, [this](const auto& entry) {
    const Trainer& trainer = entry.second;
    if (!trainer.life.expired()) return false;
    lost_ += trainer.steps - trainer.exchanged;
    return true;
  });
}

void LocalTraining::begin(fluid::Scope& scope) {
  const std::lock_guard lock(mutex_);
  define();
  forget_gone();
  Trainer& trainer = scopes_[&scope];
  trainer = {.life = scope.life()};
  for (size_t i = 0; i < parameters_.size(); ++i) {
    trainer.old.push_back(bytes_of(parameter(scope, i)));
  }
  begin_rows(scope, scope, trainer);
}

// The scope gets tables without rows, as those of `like` were at first.
void LocalTraining::begin_rows(fluid::Scope& scope, const fluid::Scope& like,
                               Trainer& trainer) const {
  const bool geo = options_.mode == ServerMode::kGeo;
  for (const Table& table : tables_) {
    const std::string& name = table.place.names.front();
    const fluid::Value* value = like.find(name);
    const auto there = value == nullptr ? nullptr : fluid::tables::table_of(*value);
    if (there == nullptr) continue;  // no program here has it
    fluid::tables::TableOptions options = there->options();
    options.memory.bytes = 0;
    options.deltas = false;
    using fluid::tables::SharedTable;
    const auto rows = std::make_shared<LocalRows>(
        std::make_shared<SharedTable>(options, SharedTable::Rows::kSome),
        geo ? LocalRows::Asks::kEachRound : LocalRows::Asks::kOnce);
    scope.var(name) = fluid::tables::table_value(rows->table());
    trainer.rows[name] = rows;
  }
}

void LocalTraining::begin_from(fluid::Scope& scope, const fluid::Scope& other) {
  send_rows_of(other);
  const std::lock_guard lock(mutex_);
  forget_gone();
  const auto found = std::find_if(scopes_.begin(), scopes_.end(),
                                  [&other](const auto& entry) { return entry.first == &other; });
  if (found == scopes_.end()) return;
  Trainer& trainer = scopes_[&scope];
  trainer = {.life = scope.life(), .old = found->second.old};
  begin_rows(scope, other, trainer);
}

// Its rows go to the servers, where those that go on from it find them.
void LocalTraining::send_rows_of(const fluid::Scope& scope) {
  Trainer* trainer = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(scopes_.begin(), scopes_.end(),
                                    [&scope](const auto& entry) { return entry.first == &scope; });
    if (found != scopes_.end()) trainer = &found->second;
  }
  if (trainer == nullptr || trainer->rows.empty()) return;
  exchange_rows(*trainer);
  client_.flush();
}

LocalTraining::Trainer& LocalTraining::trainer_of(fluid::Scope& scope) {
  const std::lock_guard lock(mutex_);
  const auto found = scopes_.find(&scope);
  if (found != scopes_.end() && !found->second.life.expired()) return found->second;
  throw_error(ErrorCode::kPrecondition,
              {.what = "local training has not begun in this scope",
               .where = "GEO or EASGD",
               .expected = "the trainer's startup program was run on the executor that trains",
               .got = "a step in another scope",
               .fix = "run the startup program first; use run_trainer_threads for threads"});
}

std::vector<std::shared_ptr<KeptRows>> LocalTraining::kept_rows(fluid::Scope& scope,
                                                                const RemoteGrowingTables& tables) {
  std::vector<std::shared_ptr<KeptRows>> kept;
  const std::lock_guard lock(mutex_);
  const auto trainer = scopes_.find(&scope);
  if (trainer == scopes_.end() || trainer->second.life.expired()) return kept;
  for (const std::string& name : tables.names) {
    const auto rows = trainer->second.rows.find(name);
    if (rows == trainer->second.rows.end()) return {};
    if (tables.attrs.is_test) {
      kept.push_back(std::make_shared<RowsToRead>(rows->second));
    } else {
      kept.push_back(rows->second);
    }
  }
  return kept;
}

void LocalTraining::step(fluid::Scope& scope) {
  Trainer& trainer = trainer_of(scope);
  ++trainer.steps;
  const uint64_t every =
      options_.mode == ServerMode::kGeo ? options_.geo_update_frequency : options_.easgd_tau;
  if (trainer.under_way != nullptr && client_.is_over(trainer.under_way))
    receive_geo(scope, trainer);
  if (trainer.steps % every == 0) exchange(scope, trainer);
}

void LocalTraining::exchange(fluid::Scope& scope, Trainer& trainer) {
  if (trainer.exchanged == trainer.steps) return;
  trainer.exchanged = trainer.steps;
  if (options_.mode == ServerMode::kEasgd) return exchange_easgd(scope, trainer);
  receive_geo(scope, trainer);
  send_geo(scope, trainer);
  if (!options_.independent_recv) receive_geo(scope, trainer);
}

// `fill` writes a parameter's difference.
template <class T, class Fill>
void LocalTraining::send(size_t index, const Fill& fill) {
  const uint32_t gradient = gradients_[index];
  const RemoteTensor& parameter = parameters_[index];
  if (parameter.rows) {
    std::vector<T> difference(static_cast<size_t>(parameter.shape.numel()));
    fill(std::span(difference));
    return client_.queue_rows(gradient,
                              changed_rows(parameter, std::as_bytes(std::span(difference))));
  }
  Buffer memory = client_.memory_for(gradient, parameter.bytes());
  fill(std::span(reinterpret_cast<T*>(memory.data()), memory.size() / sizeof(T)));
  client_.queue(gradient, std::move(memory));
}

// What each server's rows changed by, which differences(server, ids) tells.
template <class Differences>
void LocalTraining::send_rows(const Table& table, const std::vector<Ids>& ids,
                              const Differences& differences) {
  for (size_t server = 0; server < ids.size(); ++server) {
    const fluid::SelectedRows rows = differences(server, ids[server]);
    if (!rows.rows.empty()) client_.queue_rows(table.gradients[server], rows);
  }
}

void LocalTraining::send_geo(fluid::Scope& scope, Trainer& trainer) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    fluid::Tensor now = parameter(scope, i).on_host();
    with_type(parameters_[i], [&]<class T>(T) {
      send<T>(i, [&](std::span<T> difference) {
        geo_difference<T>(elements<T>(now), elements<T>(trainer.old[i]), trainers_, difference);
      });
    });
  }
  exchange_rows(trainer);
  trainer.under_way = client_.begin_synchronize();
}

void LocalTraining::receive_geo(fluid::Scope& scope, Trainer& trainer) {
  if (trainer.under_way == nullptr) return;
  const SharedValues pulled = client_.finish(std::exchange(trainer.under_way, nullptr));
  for (size_t i = 0; i < parameters_.size(); ++i) {
    fluid::Tensor now = parameter(scope, i).on_host();
    with_type(parameters_[i], [&]<class T>(T) {
      geo_receive<T>((*pulled)[values_[i]].values<T>(), elements<T>(now),
                     elements<T>(trainer.old[i]));
    });
    parameter(scope, i).copy_from(now);
  }
}

// What rows of this round changed by. EASGD looks at the servers' values, of so many ids at once.
void LocalTraining::exchange_rows(const Trainer& trainer) {
  constexpr size_t kTogether = size_t{1} << 20;
  for (const Table& table : tables_) {
    const auto found = trainer.rows.find(table.place.names.front());
    if (found == trainer.rows.end()) continue;
    LocalRows& rows = *found->second;
    const Ids all = rows.take_touched();
    for (size_t at = 0; at < all.size(); at += kTogether) {
      const std::span some = std::span(all).subspan(at, std::min(kTogether, all.size() - at));
      const std::vector<Ids> ids = ids_by_server(some, table.gradients.size());
      if (options_.mode == ServerMode::kGeo) {
        send_rows(table, ids,
                  [&](size_t, const Ids& mine) { return rows.geo_differences(mine, trainers_); });
        continue;
      }
      const auto there = rows_on_servers(table, ids);
      send_rows(table, ids, [&](size_t server, const Ids& mine) {
        return rows.elastic_differences(mine, there[server].data(),
                                        easgd_alpha(options_.easgd_alpha, trainers_));
      });
    }
  }
}

// By server, the values that it has now.
std::vector<std::vector<float>> LocalTraining::rows_on_servers(const Table& table,
                                                               const std::vector<Ids>& ids) {
  std::vector<int64_t> all;
  for (const Ids& of_server : ids) all.insert(all.end(), of_server.begin(), of_server.end());
  const fluid::Tensor wanted = fluid::Tensor::from(all, {static_cast<int64_t>(all.size())});
  GrowingLookup lookup(table.place, {&wanted});
  client_.request(transport::Phase::kReceiving, "EASGD",
                  [&](ServerClient& client, transport::DoneHandler done) {
                    lookup.ask(client, GrowingGet::kReads, false, std::move(done));
                  });
  fluid::Value rows;
  lookup.fill(std::vector{&wanted}, std::vector{&rows});
  const float* from = dense(rows).data<float>();
  std::vector<std::vector<float>> values;
  for (const Ids& of_server : ids) {
    const float* const end =
        from + of_server.size() * static_cast<size_t>(table.place.tables.front().width);
    values.emplace_back(from, end);
    from = end;
  }
  return values;
}

void LocalTraining::exchange_easgd(fluid::Scope& scope, const Trainer& trainer) {
  const SharedValues centre = client_.fetch_values();
  const double alpha = easgd_alpha(options_.easgd_alpha, trainers_);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    fluid::Tensor now = parameter(scope, i).on_host();
    with_type(parameters_[i], [&]<class T>(T) {
      send<T>(i, [&](std::span<T> difference) {
        easgd_difference<T>(elements<T>(now), (*centre)[values_[i]].values<T>(), alpha, difference);
      });
    });
    parameter(scope, i).copy_from(now);
  }
  exchange_rows(trainer);
  client_.flush();
}

void LocalTraining::exchange_now(fluid::Scope& scope) {
  Trainer& trainer = trainer_of(scope);
  exchange(scope, trainer);
  receive_geo(scope, trainer);
}

void LocalTraining::take_values(fluid::Scope& scope) {
  if (options_.mode != ServerMode::kGeo) return;
  Trainer& trainer = trainer_of(scope);
  const SharedValues values = client_.fetch_values();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameter(scope, i).copy_from((*values)[values_[i]]);
    trainer.old[i] = bytes_of(parameter(scope, i));
  }
  for (const auto& [name, rows] : trainer.rows) rows->forget_differences();
}

std::vector<double> LocalTraining::counts() const {
  const std::lock_guard lock(mutex_);
  if (scopes_.size() != 1) return {};
  return {static_cast<double>(scopes_.begin()->second.steps)};
}

void LocalTraining::set_counts(std::span<const double> counts) {
  const std::lock_guard lock(mutex_);
  if (counts.size() != 1 || scopes_.size() != 1) return;
  Trainer& trainer = scopes_.begin()->second;
  trainer.steps = trainer.exchanged = static_cast<uint64_t>(counts.front());
}

void LocalTraining::leave(fluid::Scope& scope) {
  exchange_now(scope);
  const std::lock_guard lock(mutex_);
  scopes_.erase(&scope);
}

void LocalTraining::leave_to(fluid::Scope& scope, fluid::Scope& heir) {
  exchange_now(scope);
  take_values(scope);
  const std::lock_guard lock(mutex_);
  const auto left = scopes_.find(&scope);
  const auto goes_on = scopes_.find(&heir);
  if (goes_on != scopes_.end()) {
    goes_on->second.old = std::move(left->second.old);
    goes_on->second.rows = std::move(left->second.rows);
    for (const auto& [name, rows] : goes_on->second.rows) {
      heir.var(name) = fluid::tables::table_value(rows->table());
    }
  }
  scopes_.erase(left);
}

void LocalTraining::leave_all() {
  while (true) {
    fluid::Scope* scope = nullptr;
    {
      const std::lock_guard lock(mutex_);
      forget_gone();
      if (scopes_.empty()) return;
      scope = scopes_.begin()->first;
    }
    leave(*scope);
  }
}

void LocalTraining::check_lost() const {
  const std::lock_guard lock(mutex_);
  if (lost_ == 0) return;
  throw_error(
      ErrorCode::kPrecondition,
      {.what = str_cat("the executor that trained is gone, and the servers do not have what "
                       "its last ",
                       lost_, lost_ == 1 ? " step" : " steps", " changed"),
       .where = str_cat("stop_worker, ", to_string(options_.mode)),
       .expected = "the executor that trained, and its scope, live until stop_worker() "
                   "has returned",
       .got = "they were destroyed before",
       .fix = "call stop_worker() before the executor goes out of scope"});
}

}  // namespace fleet::strategies
