#include "base/buffer.h"

#include <cstdlib>
#include <new>
#include <sys/mman.h>
#include <utility>

namespace fleet {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;

// No whole pages below huge ones: glibc would map and unmap such a block each time, and each page
// of it be touched for the first time each time.
size_t alignment_of(size_t bytes) {
  return bytes >= 2 * kHugePage ? kHugePage : kAlignment;
}

class HostAllocator final : public Allocator {
 public:
  std::byte* allocate(size_t bytes) override {
    const size_t alignment = alignment_of(bytes);
    const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
    if (memory == nullptr) throw std::bad_alloc();
    // The first touch of a huge page takes a fraction of that of its 512 small ones. The rest that
    // does not fill one has small ones; so has all of it where the system gives no others.
    if (alignment == kHugePage) madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
    return static_cast<std::byte*>(memory);
  }
  void deallocate(std::byte* memory, size_t) noexcept override { std::free(memory); }
};

}  // namespace

Allocator& host_allocator() {
  // Never destroyed: buffers of static objects may be freed after everything else.
  static auto* const allocator = new HostAllocator;
  return *allocator;
}

Buffer::Buffer(size_t bytes, Allocator& allocator)
    : data_(allocator.allocate(bytes)),
      bytes_(bytes),
      owner_(data_, [&allocator, bytes](const void* memory) {
        allocator.deallocate(static_cast<std::byte*>(const_cast<void*>(memory)), bytes);
      }) {}

Buffer::Buffer(std::byte* data, size_t bytes, std::shared_ptr<const void> owner)
    : data_(data), bytes_(bytes), owner_(std::move(owner)) {}

bool Buffer::unique() const {
  if (owner_.use_count() != 1) return false;
  // Reading the count orders nothing, changing it does.
  const std::shared_ptr<const void> changed = owner_;
  return true;
}

}  // namespace fleet
