// The FLAGS_* and FLEET_* variables that steer the runtime, read once into a struct that can
// print itself with the origin of each value. What a process is (its role) is the role maker's.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/environment.h"
#include "strategies/config/fleet_runtime_config.h"

namespace fleet::strategies {

struct RuntimeConfig {
  // Bounds one request without any progress, connecting included (FLAGS_rpc_deadline).
  int64_t rpc_deadline_ms = 180000;
  int64_t heartbeat_interval_ms = 1000;  // FLEET_HEARTBEAT_INTERVAL_MS
  // A process that sends no heartbeat for so long is lost (FLEET_HEARTBEAT_TIMEOUT_MS).
  int64_t heartbeat_timeout_ms = 10000;
  // How long a process of another machine whose connection broke may take to come back
  // (FLEET_RECONNECT_GRACE_MS); at most 250 ms where its death is proven.
  int64_t reconnect_grace_ms = 3000;
  // A process that lives but does not advance is reported this often (FLEET_STALL_REPORT_MS) …
  int64_t stall_report_ms = 8000;
  // … and ends the job after this long (FLEET_STALL_DEADLINE_MS).
  int64_t stall_deadline_ms = 1800000;
  // "auto", "tcp" or "unix" (FLEET_TRANSPORT).
  std::string transport = "auto";
  // "auto", "mpi" or "sockets" (FLEET_COLLECTIVES).
  std::string collectives = "auto";
  // The network interface whose address this machine is known by, or several with ',' between them,
  // of which the first that is there counts (FLEET_SOCKET_IFNAME); empty: routes decide.
  std::string socket_ifname;
  // Data connections from a worker to each server (FLEET_DATA_LANES); the same in every process.
  int64_t data_lanes = 1;
  // "float32", "float16" or "bfloat16": what rows of tables and of their gradients travel as
  // between workers and servers (FLEET_SPARSE_ROWS); the same in every process.
  std::string sparse_rows = "float32";
  // A worker of an asynchronous or half-asynchronous job uses a row of a growing table that it
  // looked up for so many of its steps more (FLEET_HOT_ROW_STEPS); 0: it asks in each step.
  int64_t hot_row_steps = 0;
  // Bytes that each of the data connections has under way at most, on TCP (FLEET_SEND_BUFFER); 0:
  // the system's.
  int64_t send_buffer = 0;
  // Accept peers that prove nothing (FLEET_INSECURE).
  bool insecure = false;
  // Frames on links that others could reach carry a tag made with the job's secret
  // (FLEET_FRAME_INTEGRITY), and are encrypted, too (FLEET_FRAME_ENCRYPTION).
  bool frame_integrity = true;
  bool frame_encryption = false;
  // NCCL is given a key for its own TCP sockets (FLEET_NCCL_ENCRYPTION); the same in every rank.
  bool nccl_encryption = false;
  // Refuse a job whose processes have other instruction sets, builds or libraries
  // (FLEET_REQUIRE_SAME_BITS); else a difference is named in the log.
  bool require_same_bits = false;
  std::string job_id;           // FLEET_JOB_ID
  std::string job_secret;       // FLEET_JOB_SECRET; never printed
  std::string job_secret_file;  // FLEET_JOB_SECRET_FILE
  // "stop" or "warn": what follows when a loss or a parameter is not finite (FLEET_ON_NONFINITE).
  std::string on_nonfinite = "stop";
  std::string resume = "latest";  // what fleet::resume begins with (FLEET_RESUME)
  std::string log_level;          // FLEET_LOG_LEVEL; empty: info on rank 0, warning elsewhere
  // Programs are written into this folder when it is set (FLEET_DUMP_PROGRAM).
  std::string dump_program;
  // Folders in which a server may save what checkpoint_notify names, with ':' between them
  // (FLEET_SERVER_FOLDERS); empty: its working directory.
  std::string server_folders;
  // Trainer threads of a worker (CPU_NUM).
  int64_t cpu_num = 1;
  // Report the first op and variable that turns NaN or infinite (FLAGS_check_nan_inf). Executors
  // read it themselves.
  bool check_nan_inf = false;

  // What FLAGS_communicator_* and FLAGS_rpc_* say; strategies put what the code says over it.
  TrainerRuntimeConfig trainer;
  ServerRuntimeConfig server;

  // Name of the variable that set a field, by field name; a field that is not here has its default.
  std::map<std::string, std::string> origins;

  // Throws UsageError that names the variable, its value and what is expected.
  static RuntimeConfig from_environment(const Environment& environment);
  // A line for each field: name, value and origin. The secret is hidden.
  std::string to_string() const;
};

}  // namespace fleet::strategies
