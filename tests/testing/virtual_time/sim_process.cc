#include "tests/testing/virtual_time/sim_process.h"

#include <algorithm>
#include <exception>

#include "base/hash.h"

namespace fleet::testing {

using transport::IoResult;
using transport::IoState;
using transport::Link;

namespace {

class AtEnd {
 public:
  explicit AtEnd(std::function<void()> work) : work_(std::move(work)) {}
  ~AtEnd() { work_(); }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;

 private:
  std::function<void()> work_;
};

}  // namespace

// The process's loop for code that drives it: the fiber waits, and the world runs its handlers.
class SimProcess::WaitingLoop final : public transport::DrivenLoop {
 public:
  explicit WaitingLoop(SimProcess& process) : process_(process) {}

  TimePoint now() const override { return process_.loop_.now(); }
  void post(Handler handler) override { process_.loop_.post(std::move(handler)); }
  TimerId call_at(TimePoint when, Handler handler) override {
    return process_.loop_.call_at(when, std::move(handler));
  }
  void cancel(TimerId timer) override { process_.loop_.cancel(timer); }
  bool run_until(const std::function<bool()>& done, TimePoint deadline) override {
    return process_.wait(done, deadline);
  }
  // What is ready runs when the fiber waits.
  void poll() override {}

 private:
  SimProcess& process_;
};

// There is one thread: it never finds the loop taken.
class SimProcess::Requests final : public strategies::RequestLoop {
 public:
  explicit Requests(WaitingLoop& loop) : loop_(loop) {}

  transport::DrivenLoop& loop() override { return loop_; }
  void set_on_exception(transport::OnException) override {}
  bool try_run(const std::function<void()>& work) override {
    work();
    return true;
  }
  bool try_drive_until(const std::function<bool()>& done) override {
    return loop_.run_until(done, TimePoint::max());
  }
  void on_loop(const std::function<void()>& work) override { work(); }

 private:
  WaitingLoop& loop_;
};

// A link's end at this process.
class SimProcess::Wire final : public Link {
 public:
  Wire(SimProcess& process, std::unique_ptr<Link> link)
      : process_(process), link_(std::move(link)) {}

  IoResult read_some(std::span<const transport::MutableBytes> parts) override {
    return process_.alive() ? link_->read_some(parts) : IoResult{IoState::kFailed, 0};
  }
  IoResult write_some(std::span<const transport::ConstBytes> parts) override {
    if (!process_.pass_point()) return {IoState::kFailed, 0};
    const IoResult result = link_->write_some(parts);
    static_cast<void>(process_.pass_point());
    return result;
  }
  void wait_readable(Loop::Handler handler) override { link_->wait_readable(std::move(handler)); }
  void wait_writable(Loop::Handler handler) override { link_->wait_writable(std::move(handler)); }
  void close() override { link_->close(); }
  std::unique_ptr<Link> rebind(Loop&) override {
    return std::make_unique<Wire>(process_, link_->rebind(process_.loop_));
  }
  transport::LinkKind kind() const override { return link_->kind(); }
  std::string peer_name() const override { return link_->peer_name(); }
  std::optional<transport::PeerProcess> peer_process() const override {
    return link_->peer_process();
  }
  bool same_machine() const override { return link_->same_machine(); }

 private:
  SimProcess& process_;
  std::unique_ptr<Link> link_;
};

class SimProcess::WireNetwork final : public transport::Network {
 public:
  explicit WireNetwork(SimProcess& process) : process_(process) {}

  Result<std::unique_ptr<transport::Listener>> listen(Loop&, const transport::Address& address,
                                                      transport::AcceptHandler on_accept) override {
    return process_.world_.listen(
        process_.loop_, address,
        [this, on_accept = std::move(on_accept)](std::unique_ptr<Link> link) {
          on_accept(std::make_unique<Wire>(process_, std::move(link)));
        });
  }
  std::unique_ptr<transport::Connector> connect(Loop&, const transport::Address& address,
                                                transport::ConnectHandler on_done) override {
    return process_.world_.connect(
        process_.loop_, address,
        [this, on_done = std::move(on_done)](Result<std::unique_ptr<Link>> link) {
          if (!link.ok()) return on_done(link.status());
          on_done(std::unique_ptr<Link>(std::make_unique<Wire>(process_, std::move(link).value())));
        });
  }
  std::vector<transport::Address> routes(const Endpoint& endpoint) const override {
    return process_.world_.routes(endpoint);
  }

 private:
  SimProcess& process_;
};

// A file of the disk as this process writes it.
class SimProcess::File final : public OutputFile {
 public:
  File(SimProcess& process, std::unique_ptr<OutputFile> file)
      : process_(process), file_(std::move(file)) {}

  const std::filesystem::path& path() const override { return file_->path(); }
  std::error_code append(std::span<const std::byte> bytes) override;
  std::error_code write_back(uint64_t, uint64_t, bool) override { return {}; }
  std::error_code sync() override;

 private:
  SimProcess& process_;
  std::unique_ptr<OutputFile> file_;
};

// The disk as this process sees it; a process that was killed changes nothing any more.
class SimProcess::Files final : public FileSystem {
 public:
  explicit Files(SimProcess& process) : process_(process) {}

  std::error_code create_folder(const Path& folder) override {
    if (process_.alive() && disk().exists(folder)) return disk().create_folder(folder);
    return change([&] { return disk().create_folder(folder); });
  }
  std::unique_ptr<OutputFile> create(const Path& beginning, std::error_code& error) override {
    std::unique_ptr<OutputFile> made;
    error = change([&] {
      std::error_code failed;
      made = disk().create(beginning, failed);
      return failed;
    });
    return error ? nullptr : std::make_unique<File>(process_, std::move(made));
  }
  std::unique_ptr<InputFile> open(const Path& file, std::error_code& error) override {
    process_.be_slow();
    return disk().open(file, error);
  }
  std::error_code rename(const Path& from, const Path& to) override {
    return change([&] { return disk().rename(from, to); });
  }
  std::error_code exchange(const Path& a, const Path& b) override {
    return change([&] { return disk().exchange(a, b); });
  }
  std::error_code remove(const Path& file) override {
    return change([&] { return disk().remove(file); });
  }
  std::error_code remove_all(const Path& folder) override {
    std::vector<Path> paths = disk().names_in(folder);
    while (!paths.empty()) {
      const auto next =
          paths.begin() + static_cast<std::ptrdiff_t>(process_.world_.random(paths.size()));
      if (const std::error_code error = remove_all(*next)) return error;
      paths.erase(next);
    }
    return remove(folder);
  }
  std::error_code sync_folder(const Path& folder) override {
    return change([&] { return disk().sync_folder(folder); });
  }
  bool exists(const Path& path) override {
    process_.be_slow();
    return disk().exists(path);
  }
  std::vector<Path> folders_in(const Path& folder) override { return disk().folders_in(folder); }

  // `work` between two points.
  template <class Work>
  std::error_code change(const Work& work) {
    process_.be_slow();
    if (!process_.pass_point()) return std::make_error_code(std::errc::owner_dead);
    const std::error_code error = work();
    static_cast<void>(process_.pass_point());
    return error;
  }

 private:
  SimDisk& disk() { return process_.disk_; }

  SimProcess& process_;
};

std::error_code SimProcess::File::append(std::span<const std::byte> bytes) {
  process_.be_slow();
  if (!process_.alive()) return std::make_error_code(std::errc::owner_dead);
  // The last write may do a part.
  if (!process_.pass_point()) {
    return file_->append(bytes.first(static_cast<size_t>(process_.world_.random(bytes.size()))));
  }
  const std::error_code error = file_->append(bytes);
  static_cast<void>(process_.pass_point());
  return error;
}

std::error_code SimProcess::File::sync() {
  return process_.files_->change([this] { return file_->sync(); });
}

class SimProcess::FiberWork final : public Background {
 public:
  explicit FiberWork(SimProcess& process) : process_(process) {}
  ~FiberWork() override {
    FiberWork::stop();
    FiberWork::finish();
  }

  void start(std::function<void()> work) override {
    finish();
    over_ = std::make_shared<bool>(false);
    fiber_ = &process_.start([over = over_, work = std::move(work)] {
      const AtEnd at_end([over] { *over = true; });
      work();
    });
  }
  void finish() override {
    if (over_ == nullptr) return;
    if (process_.alive()) process_.wait([this] { return *over_; });
    // Of a process that was killed, whoever waits for the work ends it.
    while (!*over_ && !fiber_->over()) fiber_->resume();
    over_ = nullptr;
  }
  void stop() override { stops_ = true; }
  bool rest(Duration time) override {
    return !process_.wait([this] { return stops_; }, process_.loop_.now() + time);
  }

 private:
  SimProcess& process_;
  Fiber* fiber_ = nullptr;      // there as long as the work is not over
  std::shared_ptr<bool> over_;  // null where there is no work
  bool stops_ = false;
};

SimProcess::SimProcess(transport::SimWorld& world, SimDisk& disk, std::string name, IsLast is_last)
    : world_(world),
      disk_(disk),
      name_(std::move(name)),
      is_last_(std::move(is_last)),
      loop_(world.add_loop(name_)),
      data_loop_(std::make_unique<WaitingLoop>(*this)),
      requests_(std::make_unique<Requests>(*data_loop_)),
      network_(std::make_unique<WireNetwork>(*this)),
      files_(std::make_unique<Files>(*this)) {}

SimProcess::~SimProcess() {
  kill();
  for (Task& task : tasks_) {
    while (!task.fiber->over()) task.fiber->resume();
  }
}

void SimProcess::kill() {
  if (!alive_) return;
  alive_ = false;
  world_.kill(loop_);
}

bool SimProcess::pass_point() {
  if (alive_ && is_last_(points_++)) kill();
  return alive_;
}

void SimProcess::be_slow() {
  // Handlers do not wait.
  if (slowness_ == Duration(0) || !alive_ || Fiber::current() == nullptr) return;
  sleep(Duration(static_cast<int64_t>(world_.random(static_cast<uint64_t>(slowness_.count())))));
}

Fiber& SimProcess::start(std::function<void()> body) {
  Task& task = tasks_.emplace_back();
  task.fiber = std::make_unique<Fiber>([this, body = std::move(body)] {
    try {
      if (alive_) body();
    } catch (const ProcessKilled&) {
      // That is all there is to it.
    }
  });
  loop_.post([] {});  // so that its turn comes
  return *task.fiber;
}

void SimProcess::run_ready() {
  for (bool moved = true; moved && alive_;) {
    moved = false;
    for (auto task = tasks_.begin(); task != tasks_.end() && alive_;) {
      if (task->done == nullptr || task->late || (*task->done)()) {
        task->fiber->resume();
        moved = true;
      }
      task = task->fiber->over() ? tasks_.erase(task) : std::next(task);
    }
  }
}

bool SimProcess::wait(const std::function<bool()>& done, TimePoint deadline) {
  if (alive_ && done()) return true;
  if (Fiber::current() == nullptr) Fiber::suspend();
  const auto task = std::find_if(tasks_.begin(), tasks_.end(), [](const Task& own) {
    return own.fiber.get() == Fiber::current();
  });
  task->done = &done;
  task->late = false;
  std::optional<Loop::TimerId> timer;
  if (deadline != TimePoint::max()) {
    timer = loop_.call_at(deadline, [&late = task->late] { late = true; });
  }
  if (alive_) Fiber::suspend();
  if (timer) loop_.cancel(*timer);
  task->done = nullptr;
  if (alive_) return done();
  // What is destroyed on the way may wait again.
  if (std::uncaught_exceptions() > 0) return false;
  throw ProcessKilled();
}

void SimProcess::sleep(Duration time) {
  static_cast<void>(wait([] { return false; }, loop_.now() + time));
}

transport::DrivenLoop& SimProcess::data_loop() {
  return *data_loop_;
}
transport::Network& SimProcess::network() {
  return *network_;
}
FileSystem& SimProcess::files() {
  return *files_;
}
std::unique_ptr<Background> SimProcess::make_background() {
  return std::make_unique<FiberWork>(*this);
}

strategies::NodeEnvironment SimProcess::node(uint64_t incarnation) {
  strategies::NodeEnvironment environment;
  environment.network = network_.get();
  environment.data_loop = data_loop_.get();
  environment.control_loop = data_loop_.get();
  environment.on_control = [](const std::function<void()>& work) { work(); };
  environment.wait = [this](const std::function<bool()>& done) { wait(done); };
  environment.random = [state = mix64(incarnation)](transport::MutableBytes bytes) mutable {
    for (std::byte& byte : bytes) {
      state = mix64(state);
      byte = static_cast<std::byte>(state & 0xff);
    }
  };
  environment.incarnation = incarnation | 1U;
  return environment;
}

strategies::WorkerLoops SimProcess::worker_loops(uint64_t incarnation) {
  return {.owner = nullptr, .node = node(incarnation), .requests = requests_.get()};
}

}  // namespace fleet::testing
