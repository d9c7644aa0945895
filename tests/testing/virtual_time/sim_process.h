// A process of a simulated world whose code may block: it runs in fibers, and where it waits the
// world goes on. It may be killed before and after each message that it sends and each change that
// it makes to the disk.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "base/process/background.h"
#include "strategies/parameter_server/config.h"
#include "strategies/parameter_server/worker/worker_loops.h"
#include "tests/testing/virtual_time/fiber.h"
#include "tests/testing/virtual_time/sim_disk.h"
#include "transport/sim/sim_loop.h"

namespace fleet::testing {

// What ends the fibers of a process that was killed. Nobody but the process catches it.
struct ProcessKilled {};

// One thread. World and disk must outlive it.
class SimProcess {
 public:
  // Asked at each point: whether the process is killed there. Points have numbers from 0 on.
  using IsLast = std::function<bool(uint64_t point)>;
  SimProcess(transport::SimWorld& world, SimDisk& disk, std::string name, IsLast is_last);
  // Kills it.
  ~SimProcess();
  SimProcess(const SimProcess&) = delete;
  SimProcess& operator=(const SimProcess&) = delete;

  const std::string& name() const { return name_; }
  transport::SimLoop& loop() const { return loop_; }
  bool alive() const { return alive_; }
  uint64_t points() const { return points_; }
  // How long a change of the disk takes, or a look at it, at most.
  void set_slowness(Duration longest) { slowness_ = longest; }

  // Nothing of it is seen or written from here on, and its links close. Its fibers end where they
  // wait.
  void kill();
  // Begins a fiber, which runs with run_ready(). From outside of fibers or from one of its own.
  Fiber& start(std::function<void()> body);
  // Runs fibers as long as the wait of one is over. From outside of handlers and fibers.
  void run_ready();

  // Of a fiber's code, where the process sees the world:
  // Waits; false when `deadline` came first. Throws ProcessKilled.
  bool wait(const std::function<bool()>& done, TimePoint deadline = TimePoint::max());
  void sleep(Duration time);
  // Drives the world while it waits.
  transport::DrivenLoop& data_loop();
  transport::Network& network();
  FileSystem& files();
  std::unique_ptr<Background> make_background();
  // For nodes of a parameter-server job.
  strategies::NodeEnvironment node(uint64_t incarnation);
  strategies::WorkerLoops worker_loops(uint64_t incarnation);

 private:
  class WaitingLoop;
  class Requests;
  class Wire;
  class WireNetwork;
  class Files;
  class File;
  class FiberWork;

  struct Task {
    std::unique_ptr<Fiber> fiber;
    const std::function<bool()>* done = nullptr;  // that it waits for
    bool late = false;                            // its deadline has come
  };

  // Whether the process lives on.
  bool pass_point();
  void be_slow();

  transport::SimWorld& world_;
  SimDisk& disk_;
  const std::string name_;
  const IsLast is_last_;
  transport::SimLoop& loop_;
  bool alive_ = true;
  uint64_t points_ = 0;
  Duration slowness_{0};
  std::list<Task> tasks_;
  std::unique_ptr<WaitingLoop> data_loop_;
  std::unique_ptr<Requests> requests_;
  std::unique_ptr<WireNetwork> network_;
  std::unique_ptr<Files> files_;
};

}  // namespace fleet::testing
