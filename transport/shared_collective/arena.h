// The memory in which a rank gives messages to the other ranks of its machine: a file without a
// name (memfd_create), sealed so that it keeps its size, mapped by all of them.
//
// Only its owner writes it, apart from the bell, which every rank may ring: the others map the rest
// for reading. It ends with the last process that maps it, so a rank that is killed leaves nothing.
//
//   bell | state of the owner | lines, one for each rank | rings, one for each rank | heap
//
// What is read from another rank's arena may be anything, at any time: each value is read once and
// checked before it is used.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/process/file_descriptor.h"
#include "base/status.h"

namespace fleet::transport {

// How the ranks of a group lay their arenas out; the same at every rank.
struct ArenaLayout {
  // Of ranks' threads that sleep: counted up by whoever has something for them.
  struct Bell {
    std::atomic<uint32_t> rings;
  };
  struct State {
    alignas(64) std::atomic<uint32_t> sleeps;
    alignas(64) std::atomic<uint32_t> has_left;
    // Bytes of the text that says why the owner failed; 0 as long as it has not.
    std::atomic<uint32_t> failure_bytes;
    std::array<std::byte, 4096> failure;
  };
  // Between the owner and one other rank.
  struct Line {
    alignas(64) std::atomic<uint64_t> put;    // slots that the owner has filled for it
    alignas(64) std::atomic<uint64_t> taken;  // slots that the owner has emptied of its ring
    std::atomic<uint64_t> returned;           // grants of it that the owner has given back
  };
  // The beginning of a slot; the bytes follow.
  struct SlotHeader {
    uint64_t sequence;
    uint64_t count;
    uint64_t message_bytes;
    uint64_t request;
    uint32_t number;
    uint32_t slot_bytes;  // in this slot
    uint8_t frame;
    uint8_t kind;
    uint8_t type;
  };

  static constexpr size_t kSlotBytes = 8192;
  static constexpr size_t kPayloadBytes = kSlotBytes - 64;
  static constexpr uint64_t kSlots = 32;  // of a ring
  static_assert(sizeof(SlotHeader) <= 64);

  int ranks = 0;
  uint64_t heap_bytes = 0;

  size_t state_at() const;
  size_t line_at(int rank) const;
  size_t slot_at(int rank, uint64_t number) const;  // of the ring for a rank
  size_t heap_at() const;
  size_t bytes() const { return heap_at() + heap_bytes; }
};

// One rank's arena as it lies in this process. Unmapped at the end.
class Arena {
 public:
  // This rank's own, with memory behind all of it but the heap. kNotSupported where the machine
  // cannot do it.
  static Result<std::shared_ptr<Arena>> make(const ArenaLayout& layout);
  // Another rank's. kBadFrame unless it is sealed and of the size that the layout says.
  static Result<std::shared_ptr<Arena>> map(FileDescriptor file, const ArenaLayout& layout);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  int file() const { return file_.get(); }
  const ArenaLayout& layout() const { return layout_; }
  // Any rank writes the bell; the rest is for its owner to write.
  ArenaLayout::Bell& bell() const { return at<ArenaLayout::Bell>(0); }
  ArenaLayout::State& state() const { return at<ArenaLayout::State>(layout_.state_at()); }
  ArenaLayout::Line& line(int rank) const { return at<ArenaLayout::Line>(layout_.line_at(rank)); }
  std::byte* slot(int rank, uint64_t number) const {
    return memory_ + layout_.slot_at(rank, number);
  }
  std::byte* heap() const { return memory_ + layout_.heap_at(); }

  // The owner's thread sleeps until somebody rings after `heard` rings, or for `limit_ns`.
  void sleep(uint32_t heard, int64_t limit_ns) const;
  // Wakes it if it sleeps.
  void ring() const;

 private:
  Arena(FileDescriptor file, const ArenaLayout& layout) : file_(std::move(file)), layout_(layout) {}
  Status map_memory(bool own);
  template <class T>
  T& at(size_t offset) const {
    return *reinterpret_cast<T*>(memory_ + offset);
  }

  FileDescriptor file_;
  ArenaLayout layout_;
  std::byte* memory_ = nullptr;
};

}  // namespace fleet::transport
