// Reference-counted memory for tensors and payloads.
#pragma once

#include <cstddef>
#include <memory>

namespace fleet {

// Where memory comes from and goes back to. Implementations are shared between threads.
class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual std::byte* allocate(size_t bytes) = 0;  // throws std::bad_alloc
  virtual void deallocate(std::byte* memory, size_t bytes) noexcept = 0;
};

// Host memory, aligned to 64 bytes; blocks of 4 MiB or more to 2 MiB, on huge pages where there are
// some.
Allocator& host_allocator();

// A block of memory shared by its handles, freed with the last one. The count is thread-safe,
// the bytes are not. A default-made Buffer is empty.
class Buffer {
 public:
  Buffer() = default;
  // Uninitialised memory. The allocator must outlive the buffer.
  explicit Buffer(size_t bytes, Allocator& allocator = host_allocator());
  // A view of memory that `owner` keeps alive.
  Buffer(std::byte* data, size_t bytes, std::shared_ptr<const void> owner);

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  explicit operator bool() const { return data_ != nullptr; }
  // True when no other handle shares the memory. What other threads did with theirs before they
  // dropped them has happened before the return.
  bool unique() const;
  // Keeps the memory alive, for example while a socket reads from it.
  const std::shared_ptr<const void>& owner() const { return owner_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  std::shared_ptr<const void> owner_;
};

}  // namespace fleet
