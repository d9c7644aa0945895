// Where the ops and the variables of a program are when it runs on a device.
//
// An op runs on the device when a kernel computes it there. It runs on the host
//   - when the job's runtime carries it out (send, recv, …), but for sums and broadcasts of a
//     runtime that sums on devices;
//   - when it looks up rows of a table that may be on servers, or makes its gradient as rows; or of
//     a table that gets sparse gradients and is updated on the host;
//   - when it belongs to the learning rate: numbers of one element cost more there than they save;
//   - when tensors give its attributes (SlotSpec::for_attribute), which are read on the host;
//   - when it says so itself: attribute op_device "cpu", as of fill_constant;
//   - when one of its variables is an array, or selected rows that its kernels on the device do not
//     take (Kernel::takes_rows), or that are made on the host;
//   - in a block whose gradient the program computes: the executor adds those up on the host;
//   - when it has no kernel on the device for its type, unless the caller is strict.
//
// A variable has a home, the place of the op that writes it first; one that is only read is at home
// on the device if an op reads it there. Whoever runs the program copies what an op touches
// elsewhere. On the CPU, everything is on the host.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "fluid/kernels/kernel_table.h"

namespace fleet::fluid {

// Why an op runs on the host.
enum class HostReason : uint8_t {
  kNone,             // it runs on the device
  kHostPlace,        // the whole program does
  kRuntime,          // the job's runtime carries it out, or fetches what it reads from servers
  kServers,          // its values are left to the servers
  kServerTable,      // it looks up rows of a table that may be on servers
  kSparseTable,      // it looks up rows of a table that is updated on the host by rows
  kBlock,            // it runs a block, whose ops have places of their own
  kShards,           // the shards of a step meet there
  kLearningRate,     // it belongs to the learning rate
  kTensorAttribute,  // tensors give its attributes
  kAsked,            // it says so itself
  kGradientOfBlock,  // it is in a block whose gradient is computed
  kNotDense,         // a variable is no dense tensor, or is rows that no kernel takes there
  kHostRows,         // it reads selected rows that are made on the host
  kNoKernel,         // the device has no kernel for it
  kNoKernelOfType,   // the device has kernels for it, and none for the types of its variables
};
// In words, as above: "the learning rate", "no kernel on the device" …
std::string_view to_string(HostReason reason);

// Immutable. The program, as it is now, and the table must outlive it.
class OpPlaces {
 public:
  struct Options {
    bool strict = false;       // throw ProgramError (not supported) that names an op without kernel
    bool device_sums = false;  // CommRuntime::sums_on(place)
    bool tables_here = false;  // no table that the program looks rows up in is on servers
  };
  // Of the program's block and the blocks that its ops run.
  OpPlaces(const Block& block, const KernelTable& kernels, const Place& place, Options options);

  Place of(const Block& block, const Operator& op) const;
  HostReason why_host(const Block& block, const Operator& op) const;
  // Where it reads an input: where it runs, unless its kernels on the device read the slot in host
  // memory (Kernel::host_slots).
  Place of_input(const Block& block, const Operator& op, std::string_view slot) const;
  Place home(std::string_view variable) const;

 private:
  void find_host_blocks(const Block& block);
  void keep_on_host(const Block& block, const Operator& op);
  void walk(const Block& block);
  void find_host_tables(const Block& block);
  // Whatever kernels there are.
  HostReason why_always_host(const Block& block, const Operator& op) const;
  HostReason why_no_kernel(const Block& block, const Operator& op) const;
  std::span<const Kernel> kernels_of(const Block& block, const Operator& op) const;
  bool looks_up_on_host(const Block& block, const Operator& op) const;
  bool reads_rows_of_host(const Block& block, const Operator& op) const;
  void require_kernel(const Block& block, const Operator& op) const;

  const KernelTable& kernels_;
  Place place_;
  Options options_;
  std::set<int32_t> host_blocks_;
  std::set<std::string, std::less<>> host_tables_;  // looked up on the host
  std::map<std::string, Place, std::less<>> written_;
  std::map<std::string, Place, std::less<>> read_;
};

// The block in attribute sub_block of an op that the executor runs; null for other ops, and where
// the program has no such block.
const Block* block_of(const Block& block, const Operator& op);

}  // namespace fleet::fluid
