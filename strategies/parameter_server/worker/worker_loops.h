// The loops and the network that a worker's exchange runs on: those of a process, or of a
// simulation.
#pragma once

#include <functional>
#include <memory>

#include "strategies/parameter_server/async_options.h"
#include "strategies/parameter_server/config.h"
#include "transport/link/asio_loop.h"

namespace fleet::strategies {

// A loop for requests of threads that compute in between. Handlers run one at a time; they must not
// need to know on which thread, and must not take or ask for the loop.
class RequestLoop {
 public:
  virtual ~RequestLoop() = default;
  virtual transport::DrivenLoop& loop() = 0;
  // Who is told what a handler throws, while the loop goes on. Before the first handler.
  virtual void set_on_exception(transport::OnException on_exception) = 0;
  // Runs what is ready on the loop, then `work`, on the calling thread; false, and nothing is run,
  // where another thread drives.
  virtual bool try_run(const std::function<void()>& work) = 0;
  // Drives the loop on the calling thread until `done()`, which is asked after each handler; false
  // where another thread drives, or when the loop was stopped.
  virtual bool try_drive_until(const std::function<bool()>& done) = 0;
  // Runs `work` as a handler and returns when it is done; what it throws is thrown here. After
  // end() it runs on the calling thread.
  virtual void on_loop(const std::function<void()>& work) = 0;
};

struct WorkerLoops {
  std::shared_ptr<void> owner;      // of what the others point to; may be empty
  NodeEnvironment node;             // its data loop is that of the requests
  RequestLoop* requests = nullptr;  // of asynchronous modes
};

// With threads of their own, as the mode needs them.
WorkerLoops loops_of_process(const AsyncOptions& options, transport::TransportChoice transport);

}  // namespace fleet::strategies
