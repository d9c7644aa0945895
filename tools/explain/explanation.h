// What a transpiler made of a program, and why: plain values, to be drawn as text, JSON, Graphviz
// or a page (tools/explain/render.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fluid/program/program.h"

namespace fleet::explain {

// What became of an op of the local program, or where another op comes from.
enum class Origin {
  kKept,     // as in the local program
  kChanged,  // an op of the local program, with other names or attributes
  kMoved,    // an op of the local program that now runs in another process
  kAdded,    // the transpiler's own
};
std::string_view to_string(Origin origin);  // "kept", …

struct ExplainedOp {
  int32_t block = 0;
  size_t position = 0;  // in its block
  std::string type;
  std::string role;
  std::string label;  // short: "send fc_w@GRAD.block1 -> server 0"
  std::string text;   // whole: Operator::to_string()
  Origin origin = Origin::kKept;
  // Of block 0 of the local program: the op that this one is. -1: none.
  int local = -1;
  std::string pass;  // that added or changed it; empty for kept ops
  std::string why;   // a sentence or two; empty for kept ops
};

// One program of one process.
struct ExplainedProgram {
  std::string process;           // "local", "trainer 0", "server 1"
  int server = -1;               // its number, for a server's
  std::vector<ExplainedOp> ops;  // block by block, those that can run
  fluid::Program program;
};

// The programs of the processes that are shown, first those of every step, then those that run
// once. Every other trainer's and server's are alike.
struct ProgramSet {
  ExplainedProgram local;
  ExplainedProgram trainer;
  std::vector<ExplainedProgram> servers;
};

struct ExplainedPass {
  std::string program;  // "trainer 0, main"
  std::string name;
  std::string purpose;
  size_t added = 0;
  size_t removed = 0;
  size_t changed = 0;
};

// A part of a variable, and where it lives.
struct PlacedPart {
  std::string variable;
  std::string slice;  // its name on the server
  std::string kind;   // "parameter", "optimizer", "statistic", "table"
  std::string dtype;
  std::vector<int64_t> shape;
  int64_t first_row = 0;  // of the variable's own rows
  int64_t rows = 0;
  int64_t bytes = 0;
  int server = 0;
  // The gradient is selected rows, and trainers look rows up: bytes do not travel every step.
  bool sparse = false;
};

struct ServerLoad {
  std::string endpoint;
  size_t slices = 0;
  int64_t parameter_bytes = 0;
  int64_t state_bytes = 0;  // of optimizers, and statistics
  double share = 0;         // of all servers' parameter bytes
  // Of an average step, payload only.
  double bytes_in = 0;
  double bytes_out = 0;
  double exchange_out = 0;  // to other servers
};

struct Traffic {
  // Of one trainer, an average step, payload only.
  double trainer_out = 0;
  double trainer_in = 0;
  double total = 0;        // of all processes, each byte counted where it is sent
  bool at_most = false;    // the runtime may merge or skip
  bool estimated = false;  // sparse rows depend on the data
  std::string note;        // one sentence
};

// An op of a program that runs on a device, or a copy that the executor makes before it.
struct OpAtPlace {
  int32_t block = 0;
  std::string label;  // of a copy: the variable
  bool copies = false;
  bool on_device = false;  // of a copy: where to
  std::string reason;      // why an op is on the host
  double bytes = 0;        // of a copy, in a step; negative where shapes do not tell
};

struct HostOps {
  std::string reason;
  size_t ops = 0;
  std::vector<std::string> types;  // sorted
};

// What runs where when the executor's place is a device, and what crosses in a step.
struct ProgramPlaces {
  std::string process;
  std::string place;           // "cuda:0"
  std::vector<OpAtPlace> ops;  // in the order in which they run
  size_t on_device = 0;
  std::vector<HostOps> on_host;  // by reason, most ops first
  double fed = 0;                // bytes that are fed to the device
  double to_device = 0;          // bytes of copies
  double to_host = 0;
  size_t unknown = 0;      // copies whose bytes shapes do not tell
  bool estimated = false;  // rows of sequences, or how often blocks run, depend on the data
};

struct Warning {
  std::string what;
  std::string advice;
};

struct Explanation {
  std::string title;
  std::string mode;      // "synchronous parameter servers"
  std::string sentence;  // what a step does
  int trainers = 1;
  int shards = 1;
  int64_t parameter_elements = 0;
  int64_t parameter_bytes = 0;
  std::vector<std::pair<std::string, std::string>> options;  // those that are not default

  ProgramSet main;
  ProgramSet startup;
  std::vector<ExplainedPass> passes;

  std::vector<PlacedPart> placement;
  std::vector<ServerLoad> servers;
  double imbalance = 1;  // the largest server's parameter bytes by the mean of all
  Traffic traffic;
  std::vector<Warning> warnings;
  std::vector<ProgramPlaces> places;  // the local program's and the trainer's, if asked for
  // Processes of a real job that ran the very programs that are shown.
  std::vector<std::string> confirmed;
};

// Servers send each other something within a step.
bool exchanges_numbers(const Explanation& explanation);

}  // namespace fleet::explain
