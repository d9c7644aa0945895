// What both sides of a parameter-server job are told: places, deadlines, and what must agree.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "fluid/core/dtype.h"
#include "strategies/parameter_server/finite_guard.h"
#include "strategies/parameter_server/observer.h"
#include "transport/coordinator/coordinator_client.h"
#include "transport/link/link.h"
#include "transport/session/secret.h"
#include "transport/session/session.h"

namespace fleet::strategies {

// A plain value; every process of a job has the same one but for `index`.
struct ParameterServerConfig {
  uint32_t index = 0;  // of this process among those of its role
  uint32_t worker_num = 1;
  uint32_t logical_shards = 0;    // contributors to a step; 0: one for each worker
  std::vector<Endpoint> servers;  // by server index
  std::string job_id;
  transport::Secret secret;
  // What every process must agree on, by name, such as "program" -> a hash. Compared when two
  // processes meet; a difference is refused with both values.
  std::map<std::string, std::string> facts;
  bool require_same_bits = false;
  // Connections from a worker to each server for gradients and values. A server's process serves
  // each of them in a thread of its own.
  uint32_t data_lanes = 1;
  size_t send_buffer = 0;  // bytes of each on TCP; 0: as the system has it
  // Gradients of one server are gathered until they have this many bytes, and then leave while
  // the backward pass goes on. What is smaller leaves with the step's barrier, in one write.
  size_t flush_bytes = 64 * 1024;
  // A step that pushes so many bytes to a server asks it for values on a lane of their own, behind
  // all data lanes: they come while other gradients still leave.
  size_t separate_get_bytes = 1024 * 1024;

  // What float32 values of rows travel as: ParameterEntry::narrow_rows of every variable.
  fluid::DType narrow_rows = fluid::DType::kFloat32;

  // Of an asynchronous or half-asynchronous worker: it uses a row of a growing table that it looked
  // up for so many of its steps more before it asks again. 0: it asks in each step.
  uint32_t hot_row_steps = 0;

  // Memory of a synchronous server for gradients that wait to be summed, over all data lanes.
  uint64_t gradient_window_bytes = uint64_t{32} * 1024 * 1024;

  // Slices of that many bytes are updated in other threads, where there are any: so many, or what
  // the environment thinks.
  size_t offload_update_bytes = 1024 * 1024;
  std::optional<unsigned> update_threads;

  // Folders of this server in which checkpoint_notify may have it write, with what is in them.
  std::vector<std::string> save_folders = {"."};

  Duration rpc_deadline = std::chrono::seconds(180);
  Duration heartbeat_interval = std::chrono::seconds(1);
  Duration heartbeat_timeout = std::chrono::seconds(10);
  Duration stall_report = std::chrono::seconds(8);
  Duration stall_deadline = std::chrono::minutes(30);
  transport::ReconnectGrace reconnect_grace;

  // When an update of a server makes a value that is not finite.
  OnNonfinite on_nonfinite = OnNonfinite::kStop;

  // Of this process; may be null.
  std::shared_ptr<JobObserver> observer;

  uint32_t shards() const { return logical_shards == 0 ? worker_num : logical_shards; }
  uint32_t server_num() const { return static_cast<uint32_t>(servers.size()); }
};

// File descriptors that a process of the job has open: its connections, and some for the rest.
uint64_t descriptors_of(const ParameterServerConfig& config, transport::PeerRole role);

// How this process introduces itself to its peers.
transport::Hello make_hello(const ParameterServerConfig& config, transport::PeerRole role,
                            uint64_t incarnation);

// Where a node of the cluster runs: real loops and sockets, or a simulated world.
struct NodeEnvironment {
  transport::Network* network = nullptr;
  // Driven by the thread that trains or serves.
  transport::DrivenLoop* data_loop = nullptr;
  // Heartbeats, admission, verdicts. May be the data loop (in a simulation).
  Loop* control_loop = nullptr;
  // Runs a function on the control loop's thread and returns when it is done.
  std::function<void(const std::function<void()>&)> on_control;
  // Of a server's data lanes after the first, each with a thread of its own; empty: the data loop
  // serves all. Nothing runs on them before start_lanes() or after end_lanes(), which lets what was
  // posted before run.
  std::vector<Loop*> lane_loops;
  std::function<void()> start_lanes;
  std::function<void()> end_lanes;
  // Ends the threads of the loops, for good; empty where they have none of their own.
  std::function<void()> end_threads;
  // Returns when `done()`, whose answer changes in handlers of the control loop; for the thread
  // that trains. Empty: it sleeps until then.
  std::function<void(const std::function<bool()>& done)> wait;
  // Runs what is ready on the data loop without waiting; may be empty.
  std::function<void()> poll;
  // For nonces; the operating system's when empty.
  std::function<void(transport::MutableBytes)> random;
  uint64_t incarnation = 0;
  // Threads that a server may have for large updates.
  unsigned update_threads = 0;
};

// For the coordinator's client of this process.
transport::CoordinatorClientOptions make_member_options(const ParameterServerConfig& config,
                                                        const NodeEnvironment& environment,
                                                        transport::PeerRole role,
                                                        const Endpoint& coordinator);

}  // namespace fleet::strategies
