#include "transport/shared_collective/arena.h"

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/strings.h"

namespace fleet::transport {
namespace {

constexpr size_t kPage = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

size_t whole_pages(size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

Status cannot(const char* call, int error, size_t bytes) {
  return Status(ErrorCode::kNotSupported,
                {.what = "this machine gives ranks no memory to share",
                 .where = call,
                 .expected = str_cat(bytes, " bytes, most of them without memory behind them yet"),
                 .got = std::strerror(error),
                 .fix = "see limits of memory, address space and file sizes (ulimit -a), and what "
                        "the container forbids"});
}

// A larger file would end this process with SIGXFSZ.
bool may_be_so_large(size_t bytes) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= bytes;
}

}  // namespace

size_t ArenaLayout::state_at() const {
  return kPage;
}

size_t ArenaLayout::line_at(int rank) const {
  return state_at() + whole_pages(sizeof(State)) + static_cast<size_t>(rank) * sizeof(Line);
}

size_t ArenaLayout::slot_at(int rank, uint64_t number) const {
  const size_t ring = static_cast<size_t>(rank) * kSlots + number % kSlots;
  return whole_pages(line_at(ranks)) + ring * kSlotBytes;
}

size_t ArenaLayout::heap_at() const {
  return slot_at(ranks, 0);
}

Result<std::shared_ptr<Arena>> Arena::make(const ArenaLayout& layout) {
  const size_t bytes = layout.bytes();
  if (!may_be_so_large(bytes)) return cannot("RLIMIT_FSIZE", EFBIG, bytes);
  FileDescriptor file(::memfd_create("fleet-ranks", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return cannot("memfd_create", errno, bytes);
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    return cannot("ftruncate", errno, bytes);
  }
  if (::fallocate(file.get(), 0, 0, static_cast<off_t>(layout.heap_at())) != 0) {
    return cannot("fallocate", errno, layout.heap_at());
  }
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) return cannot("F_ADD_SEALS", errno, bytes);
  std::shared_ptr<Arena> made(new Arena(std::move(file), layout));
  const Status mapped = made->map_memory(true);
  if (!mapped.ok()) return mapped;
  return made;
}

Result<std::shared_ptr<Arena>> Arena::map(FileDescriptor file, const ArenaLayout& layout) {
  struct stat found {};
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  const bool read = seals >= 0 && ::fstat(file.get(), &found) == 0;
  const bool fits =
      read && (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) == (F_SEAL_SHRINK | F_SEAL_GROW);
  if (!fits || static_cast<uint64_t>(found.st_size) != layout.bytes()) {
    return Status(
        ErrorCode::kBadFrame,
        {.what = "a rank gave memory of another form than this one's",
         .where = "Arena::map",
         .expected = str_cat("a sealed memory file of ", layout.bytes(), " bytes"),
         .got = fits ? str_cat(found.st_size, " bytes") : "a file that may change its size",
         .fix = "run the same version of Fleet at every rank"});
  }
  std::shared_ptr<Arena> made(new Arena(std::move(file), layout));
  const Status mapped = made->map_memory(false);
  if (!mapped.ok()) return mapped;
  return made;
}

// The heap stays out of core files: most of it has no memory behind it, and would get it there.
Status Arena::map_memory(bool own) {
  const size_t bytes = layout_.bytes();
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (mapped == MAP_FAILED) return cannot("mmap", errno, bytes);
  memory_ = static_cast<std::byte*>(mapped);
  if (!own && ::mprotect(memory_ + kPage, bytes - kPage, PROT_READ) != 0) {
    return cannot("mprotect", errno, bytes);
  }
  if (::madvise(memory_, bytes, MADV_DONTDUMP) != 0) return cannot("madvise", errno, bytes);
  return {};
}

Arena::~Arena() {
  if (memory_ != nullptr) ::munmap(memory_, layout_.bytes());
}

void Arena::sleep(uint32_t heard, int64_t limit_ns) const {
  if (limit_ns <= 0) return;
  constexpr int64_t kSecond = 1'000'000'000;
  const timespec limit{.tv_sec = limit_ns / kSecond, .tv_nsec = limit_ns % kSecond};
  ::syscall(SYS_futex, &bell().rings, FUTEX_WAIT, heard, &limit, nullptr, 0);
}

void Arena::ring() const {
  if (state().sleeps.load() == 0) return;
  bell().rings.fetch_add(1);
  ::syscall(SYS_futex, &bell().rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace fleet::transport
