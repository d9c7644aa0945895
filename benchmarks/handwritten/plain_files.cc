#include "benchmarks/handwritten/plain_files.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <functional>
#include <sys/stat.h>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "base/error.h"
#include "base/process/file_descriptor.h"
#include "base/strings.h"

namespace fleet::benchmarks {
namespace {

constexpr size_t kPiece = size_t{8} << 20;
constexpr size_t kSmall = 4096;

enum class Disk { kAtSync, kBehind };

void require(bool done, const std::string& path) {
  if (done) return;
  throw_error(ErrorCode::kInput,
              {.what = "a file cannot be used", .where = path, .got = std::strerror(errno)});
}

void sync_folder(const std::string& folder) {
  const FileDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  require(opened && fsync(opened.get()) == 0, folder);
}

void write_file(const std::string& folder, const std::string& name, const Buffer& bytes,
                Disk disk) {
  const std::string path = folder + "/" + name;
  const std::string unfinished = path + ".tmp";
  const FileDescriptor file(
      ::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  require(static_cast<bool>(file), unfinished);
  for (size_t at = 0; at < bytes.size(); at += kPiece) {
    const size_t size = std::min(kPiece, bytes.size() - at);
    require(::write(file.get(), bytes.data() + at, size) == static_cast<ssize_t>(size), unfinished);
    if (disk == Disk::kAtSync) continue;
    sync_file_range(file.get(), static_cast<off_t>(at), static_cast<off_t>(size),
                    SYNC_FILE_RANGE_WRITE);
  }
  require(fsync(file.get()) == 0 && std::rename(unfinished.c_str(), path.c_str()) == 0, path);
  sync_folder(folder);
}

std::string large_name(int thread) {
  return str_cat("part", thread);
}

// Seconds of `work(thread)` in as many threads.
double seconds_of(int threads, const std::function<void(int)>& work) {
  std::vector<std::exception_ptr> failures(static_cast<size_t>(threads));
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> running;
  running.reserve(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      try {
        work(i);
      } catch (const Error&) {
        failures[static_cast<size_t>(i)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return took.count();
}

// Written, so that it is there; in the large pages that tensors have, too.
Buffer memory_of(size_t bytes) {
  Buffer memory(bytes);
  std::memset(memory.data(), 'x', bytes);
  return memory;
}

std::vector<Buffer> memory_of(int threads, size_t bytes) {
  std::vector<Buffer> memory;
  memory.reserve(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) memory.push_back(memory_of(bytes));
  return memory;
}

double write_s(const std::string& folder, int threads, size_t bytes, Disk disk) {
  const auto memory = memory_of(threads, bytes);
  const Buffer small = memory_of(kSmall);
  double seconds = seconds_of(threads, [&](int i) {
    write_file(folder, large_name(i), memory[static_cast<size_t>(i)], disk);
    write_file(folder, str_cat("list", i), small, disk);
  });
  return seconds + seconds_of(1, [&](int) {
           write_file(folder, "manifest", small, disk);
           write_file(folder, "latest", small, disk);
         });
}

}  // namespace

double write_plain_files_s(const std::string& folder, int threads, size_t bytes) {
  return std::min(write_s(folder, threads, bytes, Disk::kAtSync),
                  write_s(folder, threads, bytes, Disk::kBehind));
}

double write_plain_file_s(const std::string& folder, size_t bytes) {
  const Buffer memory = memory_of(bytes);
  const auto write = [&](Disk disk) {
    return seconds_of(1, [&](int i) { write_file(folder, large_name(i), memory, disk); });
  };
  return std::min(write(Disk::kAtSync), write(Disk::kBehind));
}

double read_plain_files_s(const std::string& folder, int threads, size_t bytes) {
  const auto memory = memory_of(threads, bytes);
  return seconds_of(threads, [&](int i) {
    const std::string path = folder + "/" + large_name(i);
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    require(static_cast<bool>(file), path);
    std::byte* const to = memory[static_cast<size_t>(i)].data();
    for (size_t at = 0; at < bytes; at += kPiece) {
      const size_t size = std::min(kPiece, bytes - at);
      require(::read(file.get(), to + at, size) == static_cast<ssize_t>(size), path);
    }
  });
}

}  // namespace fleet::benchmarks
