// A stream of a device, as collective operations of tensors in its memory use it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/buffer.h"
#include "base/shard_tree.h"
#include "transport/collective/collective.h"

namespace fleet::transport {

// A point of a stream's work.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  // True when the work before it is done. Throws Error when the device failed.
  virtual bool done() = 0;
  // What the calling thread puts on the device next begins when the work before it is done. False
  // where the device cannot wait for it.
  virtual bool lead_compute() = 0;
};

// Everything but events is put on the stream in order, and done later. Memory is the device's. Used
// by one thread.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;

  // As NCCL calls it.
  virtual void* stream() = 0;
  // Memory of the device. Given back in the stream's order: what was put on it before still has it.
  virtual Buffer allocate(size_t bytes) = 0;
  // What follows begins when the work that the calling thread has put on the device is done.
  virtual void follow_compute() = 0;
  // out[i] = the sum of arrays[k][i] along the shard tree, where arrays[k] belongs to nodes[k]: all
  // nodes of a tree, in shard order. 16-bit types are added up in float and rounded once. `out` may
  // be one of the arrays.
  virtual void sum(std::span<const ShardRange> nodes, ElementType type,
                   std::span<const void* const> arrays, void* out, size_t count) = 0;
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  virtual void clear(void* to, size_t bytes) = 0;
  // values[i] = values[i] times the factor, which is rounded to their type first; float32 and
  // float64.
  virtual void multiply(ElementType type, void* values, size_t count, double factor) = 0;
  virtual std::unique_ptr<DeviceEvent> mark() = 0;
  // What the calling thread puts on the device next begins when the work on the stream is done.
  virtual void lead_compute() = 0;
  // Waits until everything on the stream is done, well or not.
  virtual void finish() noexcept = 0;
};

}  // namespace fleet::transport
