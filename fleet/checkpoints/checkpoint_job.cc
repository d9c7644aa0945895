#include "fleet/checkpoints/checkpoint_job.h"

#include <algorithm>
#include <csignal>
#include <functional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fleet/checkpoints/values.h"
#include "fluid/data/data_loader.h"
#include "fluid/io/persistables.h"

namespace fleet {
namespace {

using fluid::NamedTensors;
using fluid::Tensor;
using fluid::io::CheckpointInfo;
using fluid::io::CheckpointReader;
using fluid::io::CheckpointRetention;
using fluid::io::CheckpointStore;
using std::filesystem::path;

// For the parts of other workers, after this one's.
constexpr Duration kCommitTime = std::chrono::minutes(10);
constexpr Duration kShortestLook = std::chrono::milliseconds(1);
constexpr Duration kLongestLook = std::chrono::milliseconds(50);
constexpr Duration kSay = std::chrono::seconds(10);

constexpr const char* kComponent = "checkpoint";

size_t bytes_of(const fluid::VarDesc& var) {
  return static_cast<size_t>(std::max<int64_t>(var.shape.numel(), 0)) *
         fluid::dtype_size(var.dtype);
}

// A checkpoint before it may be whole. What else is wrong, is with the program or the folder.
bool is_damage(const Status& status) {
  return status.code() == ErrorCode::kCorruptFile || status.code() == ErrorCode::kInput;
}
// What the first worker says in place of a step.
constexpr int kNoCheckpoint = -1;
constexpr int kNoneUsable = -2;
// What the worker says that asks servers to write their parts: they do; one does not, and they are
// not asked again; it could not begin this checkpoint.
constexpr double kServersWrite = 0;
constexpr double kServersRefuse = 1;
constexpr double kNotBegun = 2;
// Of a worker, more than all that find damage.
constexpr double kOtherProgram = 1e6;

// With the own reason, where there is one.
[[noreturn]] void throw_unreadable(const Status& status, const path& folder) {
  status.throw_if_error();
  throw_error(ErrorCode::kInput, {.what = "another worker cannot use the checkpoint",
                                  .where = folder.string(),
                                  .expected = "a checkpoint that fits all workers",
                                  .got = "an error there",
                                  .fix = "see the logs of the other workers"});
}

[[noreturn]] void throw_none_usable(const path& folder) {
  throw_error(
      ErrorCode::kInput,
      {.what = "none of the checkpoints can be used",
       .where = folder.string(),
       .expected = "one that is whole, undamaged and finite",
       .got = "others; the log says why",
       .fix = "mend what the log names; FLEET_RESUME=none, or another folder, begins anew"});
}

[[noreturn]] void throw_no_checkpoint(const std::string& folder) {
  throw_error(ErrorCode::kInput, {.what = "there is no checkpoint to go on from",
                                  .where = "FLEET_RESUME",
                                  .expected = "a checkpoint, or a folder of them",
                                  .got = folder,
                                  .fix = "name one, or leave it out: latest and none are words"});
}

void leave_out(const std::vector<std::string>& others, std::vector<std::string>& names) {
  const std::set<std::string> out(others.begin(), others.end());
  std::erase_if(names, [&out](const std::string& name) { return out.contains(name); });
}

}  // namespace

// Writes one checkpoint at a time.
class CheckpointJob::Writer {
 public:
  Writer(const Logger& logger, const Surroundings& surroundings)
      : logger_(logger), clock_(*surroundings.clock), background_(surroundings.make_background()) {}

  struct Work {
    CheckpointStore store{""};
    path folder;  // of the parts
    CheckpointInfo info;
    CheckpointRetention retention;
    int part = 0;
    int parts = 1;
    NamedTensors tensors;
    fluid::io::CheckpointTables tables;
    Status begun;  // how `tables` went
  };

  // After finish().
  void start(Work work) {
    background_->start([this, work = std::make_shared<Work>(std::move(work))] { run(*work); });
  }
  // How the last one went.
  Status finish() {
    background_->finish();
    return std::exchange(outcome_, Status());
  }
  // What the last one wrote, after finish(): memory for the next, which costs more to get from the
  // system than to fill.
  NamedTensors take_memory() { return std::exchange(memory_, {}); }

 private:
  void run(Work& work) {
    const TimePoint begin = clock_.now();
    FileSystem& files = work.store.files();
    try {
      work.begun.throw_if_error();
      fluid::io::write_checkpoint_part(work.folder, work.part, work.parts, work.tensors, files, {},
                                       work.tables);
      memory_ = std::move(work.tensors);
      if (work.part != 0 || !wait_for_parts(work)) return;
      const Status behind = work.store.commit(work.folder, work.info, work.parts, work.retention);
      if (!behind.ok()) {
        logger_.warning(kComponent, "saved, but not all behind it went well",
                        {{"step", work.info.step}, {"why", behind.to_string()}});
      }
      logger_.info(kComponent, "saved",
                   {{"step", work.info.step},
                    {"folder", work.store.root().string()},
                    {"seconds", std::chrono::duration<double>(clock_.now() - begin).count()}});
    } catch (const Error& error) {
      fluid::io::give_up_checkpoint_part(work.folder, work.part, work.parts, error.what(), files,
                                         work.tables);
      outcome_ = Status(error.code(), error.text());
    } catch (const std::exception& error) {
      fluid::io::give_up_checkpoint_part(work.folder, work.part, work.parts, error.what(), files,
                                         work.tables);
      outcome_ = Status(ErrorCode::kInput, {.what = "a checkpoint cannot be written",
                                            .where = work.folder.string(),
                                            .expected = {},
                                            .got = error.what(),
                                            .fix = "check the path and the free space"});
    }
    if (outcome_.ok()) return;
    logger_.warning(kComponent, "not saved; the checkpoints before stay",
                    {{"step", work.info.step}, {"why", outcome_.to_string()}});
  }

  // False when the job ends meanwhile.
  bool wait_for_parts(const Work& work) {
    const TimePoint end = clock_.now() + kCommitTime;
    TimePoint say = clock_.now() + kSay;
    for (Duration look = kShortestLook;; look = std::min(2 * look, kLongestLook)) {
      const std::vector<int> missing =
          fluid::io::missing_checkpoint_parts(work.folder, work.parts, work.store.files());
      if (missing.empty()) return true;
      const TimePoint now = clock_.now();
      if (now > end) {
        throw_error(ErrorCode::kDeadline,
                    {.what = "parts of a checkpoint have not come",
                     .where = work.folder.string(),
                     .expected = str_cat(work.parts, " parts"),
                     .got = str_cat("all but ", join(missing, ", ")),
                     .fix = "give a folder on a file system that all workers share"});
      }
      if (now > say) {
        logger_.info(kComponent, "waiting for parts of other workers",
                     {{"step", work.info.step}, {"parts", join(missing, ",")}});
        say = now + kSay;
      }
      if (!background_->rest(look)) return false;
    }
  }

  const Logger logger_;
  const Clock& clock_;
  Status outcome_;
  NamedTensors memory_;
  const std::unique_ptr<Background> background_;  // ends before the others do
};

CheckpointJob::CheckpointJob(Job job)
    : job_(std::move(job)),
      own_(job_.origin, job_.runtime, job_.cluster),
      servers_write_(job_.cluster.server_num > 0),
      writer_(std::make_unique<Writer>(job_.logger, job_.surroundings)),
      saves_(std::make_shared<bool>(true)) {}

CheckpointJob::~CheckpointJob() = default;

double CheckpointJob::sum(double value) {
  return job_.runtime.all_reduce_training({&value, 1}).front();
}

// ---- saving

CheckpointInfo CheckpointJob::info_of(const TrainStatus& status) const {
  CheckpointInfo info{.step = status.step,
                      .epoch = status.epoch_no,
                      .mode = std::string(role_maker::to_string(job_.cluster.mode)),
                      .program = str_cat(job_.origin.hash()),
                      .strategy = job_.strategy,
                      .workers = job_.cluster.worker_num,
                      .servers = job_.cluster.server_num,
                      .logical_shards = job_.runtime.shards().total,
                      .readers = {},
                      .values = status.values};
  for (const auto& [name, reader] : policy_.readers) info.readers[name] = reader->position();
  return info;
}

// All have come here when it returns.
CheckpointJob::Meeting CheckpointJob::meet(int64_t step) {
  const auto count = static_cast<size_t>(job_.cluster.worker_num);
  const auto own = static_cast<size_t>(job_.cluster.index);
  // By worker: whether it is there, its step, what it has seen, whether it was told to end. Then a
  // random number, whose sum all know.
  std::vector<double> all(4 * count + 1);
  all[4 * count] = static_cast<double>(surroundings().random());
  all[own] = 1;
  all[count + own] = static_cast<double>(step);
  all[2 * count + own] = static_cast<double>(job_.runtime.saves_asked());
  all[3 * count + own] = told_to_end() ? 1 : 0;
  all = job_.runtime.all_reduce_training(all);
  Meeting meeting{.name = str_cat(static_cast<uint64_t>(all[4 * count]))};
  steps_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const bool is_there = all[i] != 0;
    if (is_there) meeting.workers.push_back(static_cast<int>(i));
    if (is_there || all[count + i] != 0) steps_[i] = static_cast<int64_t>(all[count + i]);
    meeting.saves = std::max(meeting.saves, static_cast<uint64_t>(all[2 * count + i]));
    meeting.ends = meeting.ends || all[3 * count + i] != 0;
  }
  meeting.steps = steps_;
  meeting.step = *std::max_element(steps_.begin(), steps_.end());
  return meeting;
}

// In the places of meet(), without being there.
void CheckpointJob::leave_step_behind() {
  const auto count = static_cast<size_t>(job_.cluster.worker_num);
  std::vector<double> left(4 * count + 1);
  left[count + static_cast<size_t>(job_.cluster.index)] = static_cast<double>(step_);
  job_.runtime.leave_behind(left);
}

// What one of the writers writes: of equal bytes, as far as that goes.
std::vector<std::string> CheckpointJob::share(size_t place, size_t writers) const {
  const std::set<std::string> own = own_.variables();
  auto vars = fluid::persistables(job_.origin);
  std::stable_sort(vars.begin(), vars.end(),
                   [](const auto* a, const auto* b) { return bytes_of(*a) > bytes_of(*b); });
  std::vector<size_t> bytes(writers);
  std::vector<std::string> mine;
  for (const fluid::VarDesc* var : vars) {
    const auto least = std::min_element(bytes.begin(), bytes.end()) - bytes.begin();
    const auto writer = own.contains(var->name) ? size_t{0} : static_cast<size_t>(least);
    bytes[writer] += bytes_of(*var);
    if (writer == place) mine.push_back(var->name);
  }
  size_t next = 0;
  for (const std::string& name : job_.runtime.server_variables()) {
    if (desc_of(name) == nullptr && next++ % writers == place) mine.push_back(name);
  }
  return mine;
}

// Null for what servers alone have.
const fluid::VarDesc* CheckpointJob::desc_of(const std::string& name) const {
  return job_.origin.global_block().find_var(name);
}

// Memory of their own, so that training may go on.
NamedTensors CheckpointJob::read_share(fluid::Scope& scope, const std::vector<std::string>& names) {
  fluid::Scope gathered(&scope);
  job_.runtime.read_values(names, gathered);
  NamedTensors kept = writer_->take_memory();
  NamedTensors values;
  for (const std::string& name : names) {
    fluid::require_value_here(gathered, name);
    const Tensor* value = tensor_in(gathered, name);
    if (value == nullptr) {
      throw_error(ErrorCode::kPrecondition, {.what = "a persistable variable has no value yet",
                                             .where = "variable '" + name + "'",
                                             .expected = "a value",
                                             .got = "nothing",
                                             .fix = "run the startup program first"});
    }
    const bool fetched = tensor_in(scope, name) != value || !value->place().is_cpu();
    values.emplace(name, fetched ? value->on_host() : copy_in(std::move(kept[name]), *value));
  }
  std::vector<int64_t> positions;
  for (const auto& [_, reader] : policy_.readers) positions.push_back(reader->position());
  own_.save(scope, positions, values);
  return values;
}

// Of those that save, the first asks the servers, and tells the others.
bool CheckpointJob::servers_write(const Meeting& meeting, const path& folder) {
  if (!servers_write_) return false;
  const bool asks = meeting.workers.front() == job_.cluster.index;
  const double answer =
      sum(asks ? ask_servers(folder, static_cast<int>(meeting.workers.size())) : kServersWrite);
  servers_write_ = answer != kServersRefuse;
  return answer == kServersWrite;
}

double CheckpointJob::ask_servers(const path& folder, int workers) {
  try {
    fluid::io::begin_checkpoint(folder, *surroundings().files);
  } catch (const ResourceError&) {
    return kNotBegun;  // what workers write will say why
  }
  // Servers may be in other folders.
  const std::string why = job_.runtime.write_server_parts(
      std::filesystem::absolute(folder).string(), workers, workers + job_.cluster.server_num);
  if (why.empty()) return kServersWrite;
  job_.logger.info(kComponent, "workers write what servers keep",
                   {{"folder", folder.string()}, {"why", why}});
  return kServersRefuse;
}

CheckpointJob::Meeting CheckpointJob::save_now(fluid::Executor& executor,
                                               const CheckpointStore& store, CheckpointInfo info,
                                               const CheckpointRetention& retention) {
  executor.look_at_steps();
  finish();
  job_.runtime.begin_saving(executor.scope());
  Meeting meeting = meet(info.step);
  const std::vector<int>& writers = meeting.workers;
  info.worker_steps = meeting.steps;
  info.step = meeting.step;
  const auto place =
      std::find(writers.begin(), writers.end(), job_.cluster.index) - writers.begin();
  path folder = store.unfinished(info.step, meeting.name);
  const bool by_servers = servers_write(meeting, folder);
  // Where one server does not write, others may be writing into that folder.
  const bool servers_may = !by_servers && job_.cluster.server_num > 0;
  if (servers_may) folder = store.unfinished(info.step, meeting.name + "-workers");
  auto names = share(static_cast<size_t>(place), writers.size());
  if (by_servers) leave_out(job_.runtime.server_variables(), names);
  NamedTensors tensors = read_share(executor.scope(), names);
  Writer::Work work{
      .store = store,
      .folder = folder,
      .info = std::move(info),
      .retention = retention,
      .part = static_cast<int>(place),
      .parts = static_cast<int>(writers.size()) + (by_servers ? job_.cluster.server_num : 0),
      .tensors = std::move(tensors),
      .tables = {},
      .begun = {}};
  // Workers without servers have the same tables.
  if (job_.cluster.server_num > 0) {
    if (!by_servers) work.begun = servers_must("write");
  } else if (place == 0) {
    work.begun = begin_tables(executor.scope(), work.folder, work.parts, work.tables);
  }
  job_.runtime.end_saving();
  writer_->start(std::move(work));
  return meeting;
}

// Growing tables of servers go through no worker. Fails where the program has one.
Status CheckpointJob::servers_must(const char* what) const {
  const auto tables = fluid::growing_tables(job_.origin);
  if (tables.empty()) return {};
  return {ErrorCode::kPrecondition,
          {.what = str_cat("servers alone can ", what,
                           " their growing tables, and one of them does "
                           "not; its log, or this one's, says why"),
           .where = "variable '" + tables.front()->name + "'",
           .expected = "a folder that all servers see and may write to (FLEET_SERVER_FOLDERS)",
           .got = "none",
           .fix = "give the job such a folder"}};
}

// A growing table that is damaged, or that no server sees.
Status CheckpointJob::why_servers_cannot(const CheckpointReader& checkpoint) const {
  for (const fluid::VarDesc* var : fluid::growing_tables(job_.origin)) {
    if (Status status = checkpoint.check_table(var->name); !status.ok()) return status;
  }
  return servers_must("read");
}

// They are written as they are now, while training goes on.
Status CheckpointJob::begin_tables(const fluid::Scope& scope, const path& folder, int parts,
                                   fluid::io::CheckpointTables& tables) const {
  try {
    for (const fluid::VarDesc* var : fluid::growing_tables(job_.origin)) {
      tables[var->name] = std::make_shared<fluid::io::TableSave>(
          fluid::growing_table(scope, var->name),
          fluid::io::checkpoint_table_file(folder, var->name, 0, parts),
          fluid::tables::TableSaveOptions(), *surroundings().files);
    }
  } catch (const ResourceError& error) {
    return {error.code(), error.text()};
  }
  return {};
}

void CheckpointJob::save(fluid::Executor& executor, const path& folder, const TrainStatus& status) {
  job_.runtime.meet_to_save();
  CheckpointInfo info = info_of(status);
  if (info.step == 0) info.step = static_cast<int64_t>(executor.steps_run(job_.main));
  save_now(executor, store_in(folder), std::move(info), {.keep = 0, .keep_every = 0});
  const Status outcome = writer_->finish();
  (void)writer_->take_memory();
  // Nobody goes on before it is there, and nobody alone after it failed.
  const bool failed = sum(outcome.ok() ? 0 : 1) > 0;
  outcome.throw_if_error();
  if (!failed) return;
  throw_error(ErrorCode::kInput, {.what = "another worker could not write its part of a checkpoint",
                                  .where = folder.string(),
                                  .expected = "all parts",
                                  .got = "an error there",
                                  .fix = "see the logs of the other workers"});
}

void CheckpointJob::stop() {
  *saves_ = false;
  job_.runtime.set_on_save(nullptr);
  to_save_.reset();
  to_end_.reset();
  finish();
  if (step_ > 0) leave_step_behind();
}

void CheckpointJob::finish() {
  (void)writer_->finish();  // it has said what went wrong
}

// ---- loading

// Variables whose values this worker needs on its own scope.
std::vector<std::string> CheckpointJob::wanted(const fluid::Scope& scope) const {
  const bool servers = job_.cluster.server_num > 0;
  std::vector<std::string> names;
  for (const fluid::VarDesc* var : fluid::persistables(job_.origin)) {
    if (scope.keeper(var->name) != nullptr) continue;
    if (servers && tensor_in(scope, var->name) == nullptr) continue;
    names.push_back(var->name);
  }
  return names;
}

// Whether all servers can. The first worker asks them, and tells the others.
bool CheckpointJob::servers_read(const Result<CheckpointReader>& checkpoint) {
  if (job_.cluster.server_num == 0) return false;
  std::string why = "the first worker cannot read it";
  if (first() && checkpoint.ok()) {
    const path& folder = checkpoint.value().folder();
    why = job_.runtime.check_server_parts(std::filesystem::absolute(folder).string(),
                                          checkpoint.value().checksum());
    if (!why.empty()) {
      job_.logger.info(kComponent, "workers read what servers keep",
                       {{"folder", folder.string()}, {"why", why}});
    }
  }
  return sum(first() && why.empty() ? 1 : 0) > 0;
}

// Nothing is changed but `checked`.
Status CheckpointJob::check_one(const path& folder, const fluid::Scope& scope, Checked& checked) {
  auto opened = CheckpointReader::open(folder, *surroundings().files);
  checked.by_servers = servers_read(opened);
  if (!opened.ok()) return opened.status();
  checked.checkpoint = std::move(opened).value();
  const CheckpointReader& checkpoint = *checked.checkpoint;
  // Null for what servers alone have.
  const auto fits = [&](const std::string& name) {
    const fluid::VarDesc* var = desc_of(name);
    return var == nullptr ? Status() : check_value(checkpoint, name, *var);
  };
  const std::vector<std::string> theirs = job_.runtime.server_variables();
  for (const std::string& name : theirs) {
    if (Status status = fits(name); !status.ok()) return status;
  }
  if (!theirs.empty() && !checked.by_servers) {
    checked.given = share(static_cast<size_t>(job_.cluster.index),
                          static_cast<size_t>(job_.cluster.worker_num));
    std::erase_if(checked.given, [&](const std::string& name) {
      return std::find(theirs.begin(), theirs.end(), name) == theirs.end() ||
             !checkpoint.tensors().contains(name);
    });
  }
  checked.wanted = wanted(scope);
  std::set<std::string> names(checked.wanted.begin(), checked.wanted.end());
  names.insert(checked.given.begin(), checked.given.end());
  if (checked.by_servers) {
    for (const std::string& name : theirs) names.erase(name);  // are checked
  }
  for (const std::string& name : names) {
    if (Status status = fits(name); !status.ok()) return status;
    if (Status status = checkpoint.check(name); !status.ok()) return status;
  }
  Status tables = job_.cluster.server_num == 0 ? read_tables(checkpoint, scope, checked.tables)
                  : checked.by_servers         ? Status()
                                               : why_servers_cannot(checkpoint);
  if (!tables.ok()) return tables;
  return own_.read(checkpoint, checked.own);
}

// Growing tables of the program, of the options that the scope's have.
Status CheckpointJob::read_tables(const CheckpointReader& checkpoint, const fluid::Scope& scope,
                                  fluid::io::NamedTables& read) const {
  for (const fluid::VarDesc* var : fluid::growing_tables(job_.origin)) {
    const auto files = checkpoint.tables().find(var->name);
    if (files == checkpoint.tables().end()) return checkpoint.check_table(var->name);
    try {
      read[var->name] = fluid::io::load_growing_table(
          fluid::growing_table(scope, var->name)->options(), files->second, *surroundings().files);
    } catch (const ResourceError& error) {
      return {error.code(), error.text()};
    } catch (const UsageError& error) {
      return {error.code(), error.text()};
    }
  }
  return {};
}

void CheckpointJob::give(const Checked& checked) {
  for (const std::string& name : checked.given) {
    fluid::Scope given;
    read_to(given, *checked.checkpoint, name);
    job_.runtime.give_values({&name, 1}, given);
  }
}

TrainStatus CheckpointJob::take(fluid::Executor& executor, const Checked& checked) {
  const CheckpointReader& checkpoint = *checked.checkpoint;
  const CheckpointInfo& info = checkpoint.info();
  fluid::Scope& scope = executor.scope();
  if (checked.by_servers && first()) {
    job_.runtime.read_server_parts(std::filesystem::absolute(checkpoint.folder()).string(),
                                   checkpoint.checksum());
  }
  give(checked);
  for (const std::string& name : checked.wanted) read_to(scope, checkpoint, name);
  for (const auto& [name, table] : checked.tables) {
    scope.var(name) = fluid::tables::table_value(table);
  }
  if (first()) job_.runtime.set_steps_before(updates_of(info));
  own_.take_variables(checked.own, scope);
  job_.runtime.start_from(scope);
  own_.take_counts(checked.own);
  loaded_ = info.step;
  const int64_t step = own_step(info);
  step_ = step;
  executor.set_steps_run(job_.main, static_cast<uint64_t>(step));
  seek_readers(info, step, own_.positions(checked.own));
  if (info.program != str_cat(job_.origin.hash())) {
    job_.logger.warning(kComponent, "the program is not the one that was saved; its variables fit",
                        {{"step", info.step}});
  }
  return {.step = step, .epoch_no = info.epoch, .values = info.values};
}

// To where this worker's were, or to where those of one with this step would be.
void CheckpointJob::seek_readers(const CheckpointInfo& info, int64_t step,
                                 const std::vector<int64_t>& own) {
  size_t next = 0;
  for (const auto& [name, reader] : policy_.readers) {
    const auto position = info.readers.find(name);
    if (own.size() == policy_.readers.size()) {
      reader->seek(own[next++]);
    } else if (position != info.readers.end()) {
      reader->seek(std::max<int64_t>(0, position->second + step - info.step));
    }
  }
}

// Steps that servers have counted, or no fewer.
uint64_t CheckpointJob::updates_of(const CheckpointInfo& info) const {
  if (job_.runtime.in_step()) return static_cast<uint64_t>(info.step);
  const auto workers = static_cast<uint64_t>(std::max(info.workers, 1));
  return static_cast<uint64_t>(info.step) * workers;
}

// Where as many workers go on as there were, and need not be in step, each from its own.
int64_t CheckpointJob::own_step(const CheckpointInfo& info) const {
  const auto& steps = info.worker_steps;
  const bool as_many =
      !job_.runtime.in_step() && static_cast<int>(steps.size()) == job_.cluster.worker_num;
  const int64_t own = as_many ? steps[static_cast<size_t>(job_.cluster.index)] : 0;
  return own > 0 ? own : info.step;
}

// All workers take the same one.
TrainStatus CheckpointJob::load_one(fluid::Executor& executor, const path& folder) {
  Checked checked;
  const Status status = check_one(folder, executor.scope(), checked);
  const bool failed = sum(status.ok() ? 0 : 1) > 0;
  if (failed) throw_unreadable(status, folder);
  return take(executor, checked);
}

// The first worker says which is tried next; the step before a damaged one, where there is one.
std::optional<TrainStatus> CheckpointJob::load_newest(fluid::Executor& executor,
                                                      const CheckpointStore& store) {
  std::vector<fluid::io::StoredCheckpoint> stored;
  if (first()) stored = store.list();
  size_t next = 0;
  const auto usable = [&](const path& folder) {
    const auto reader = CheckpointReader::open(folder, *surroundings().files);
    if (!reader.ok() || reader.value().finite()) return true;  // what is damaged is said below
    job_.logger.warning(kComponent, "passed over: it has values that are not finite",
                        {{"folder", folder.string()}});
    return false;
  };
  while (true) {
    while (next < stored.size() && !usable(stored[next].folder)) ++next;
    const double mine = !first()               ? 0
                        : next < stored.size() ? static_cast<double>(stored[next].step)
                        : stored.empty()       ? kNoCheckpoint
                                               : kNoneUsable;
    const auto step = static_cast<int64_t>(sum(mine));
    if (step == kNoCheckpoint) return std::nullopt;
    if (step == kNoneUsable) throw_none_usable(store.root());
    const path folder = store.folder_of(step);
    Checked checked;
    const Status status = check_one(folder, executor.scope(), checked);
    const bool damaged = is_damage(status);
    if (damaged) {
      job_.logger.warning(kComponent, "cannot be used; an older one is looked for",
                          {{"folder", folder.string()}, {"why", status.to_string()}});
    }
    const double failures = sum(status.ok() ? 0 : damaged ? 1 : kOtherProgram);
    if (failures == 0) return take(executor, checked);
    if (failures >= kOtherProgram) throw_unreadable(status, folder);
    ++next;
  }
}

std::optional<TrainStatus> CheckpointJob::load(fluid::Executor& executor, const path& folder) {
  const bool is_one =
      first() && surroundings().files->exists(folder / fluid::io::kCheckpointManifest);
  if (sum(is_one ? 1 : 0) > 0) return load_one(executor, folder);
  return load_newest(executor, store_in(folder));
}

TrainStatus CheckpointJob::resume(fluid::Executor& executor, const CheckpointPolicy& policy,
                                  const std::string& from) {
  policy_ = policy;
  if (policy.folder.empty()) return {};
  const CheckpointStore store = store_in(policy.folder);
  if (first()) store.clean();
  TrainStatus status;
  if (from == "latest") {
    status = load_newest(executor, store).value_or(TrainStatus());
  } else if (from != "none") {
    auto named = load(executor, from);
    if (!named) throw_no_checkpoint(from);
    status = *std::move(named);
  }
  // Those of a run that this one does not go on with are neither taken up nor taken away.
  if (from != "latest" && first()) store.set_aside(loaded_);
  if (status.step > 0) {
    job_.logger.info(kComponent, "going on", {{"step", status.step}, {"folder", policy.folder}});
  }
  if (policy.on_signals) {
    to_save_.emplace(SIGUSR2);
    to_end_.emplace(SIGTERM);
  }
  const std::chrono::duration<double> every(policy.every_seconds);
  times_.emplace(job_.runtime, first(),
                 SaveTimes::Options{.every_steps = policy.every_steps,
                                    .every = std::chrono::duration_cast<Duration>(every),
                                    .asked = policy.on_signals},
                 status.step, *surroundings().clock);
  const std::weak_ptr<bool> saves(saves_);
  executor.set_after_run(job_.main, [this, store, saves](fluid::Executor& self, uint64_t steps) {
    const auto still = saves.lock();
    if (!still || !*still) return;
    step_ = static_cast<int64_t>(steps);
    if (times_->after_step(step_, told_to_save())) save_for_all(self, store, step_);
  });
  job_.runtime.set_on_save([this, store, saves, &executor] {
    const auto still = saves.lock();
    if (!still || !*still) return;
    save_for_all(executor, store, static_cast<int64_t>(executor.steps_run(job_.main)));
  });
  return status;
}

bool CheckpointJob::told_to_save() {
  const uint64_t seen = to_save_ ? to_save_->count() : 0;
  return seen > saves_seen_ || told_to_end();
}

// All do so now: it was time, or one has asked.
void CheckpointJob::save_for_all(fluid::Executor& executor, const CheckpointStore& store,
                                 int64_t step) {
  saves_seen_ = to_save_ ? to_save_->count() : 0;
  TrainStatus now{.step = step};
  if (policy_.values) now.values = policy_.values();
  const Meeting meeting = save_now(executor, store, info_of(now),
                                   {.keep = policy_.keep, .keep_every = policy_.keep_every_steps});
  times_->saved(meeting.step, meeting.saves);
  job_.runtime.saved(meeting.saves);
  if (meeting.ends) end(step);
}

// All workers end, with what they have saved.
void CheckpointJob::end(int64_t step) {
  const Status outcome = writer_->finish();
  const bool saved = sum(outcome.ok() ? 0 : 1) == 0;
  job_.stop_worker();
  throw_error(saved ? ErrorCode::kCancelled : ErrorCode::kInput,
              {.what = str_cat("a worker of the job was told to end (SIGTERM); a checkpoint ",
                               saved ? "was made" : "could not be made"),
               .where = str_cat(job_.cluster.process_name(), ", step ", step),
               .expected = {},
               .got = outcome.text().what,
               .fix = "start the job again: fleet::resume goes on from the newest checkpoint"});
}

}  // namespace fleet
