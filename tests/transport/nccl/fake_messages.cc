#include "tests/transport/nccl/fake_messages.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/strings.h"

namespace fleet::transport::testing {

void FakeMemory::join(const std::string& comm, int rank) {
  const std::lock_guard guard(mutex_);
  joined_.insert({comm, rank});
}

bool FakeMemory::has_joined(const std::string& comm, int rank) {
  const std::lock_guard guard(mutex_);
  return joined_.contains({comm, rank});
}

void FakeMemory::post(const std::string& comm, int from, int to, FakeBytes bytes) {
  const std::lock_guard guard(mutex_);
  messages_[{comm, from, to}].push_back(std::move(bytes));
  changed_.notify_all();
}

std::optional<FakeBytes> FakeMemory::take(const std::string& comm, int from, int to,
                                          Duration within) {
  std::unique_lock lock(mutex_);
  auto& waiting = messages_[{comm, from, to}];
  if (!changed_.wait_for(lock, within, [&] { return !waiting.empty(); })) return std::nullopt;
  FakeBytes bytes = std::move(waiting.front());
  waiting.pop_front();
  return bytes;
}

void FakeFiles::join(const std::string& comm, int rank) {
  write(str_cat(comm, ".joined.", rank), {});
}

bool FakeFiles::has_joined(const std::string& comm, int rank) {
  return std::filesystem::exists(str_cat(folder_, "/", comm, ".joined.", rank));
}

void FakeFiles::post(const std::string& comm, int from, int to, FakeBytes bytes) {
  write(next_name(comm, from, to, posted_), bytes);
}

std::optional<FakeBytes> FakeFiles::take(const std::string& comm, int from, int to,
                                         Duration within) {
  const std::string path = folder_ + "/" + next_name(comm, from, to, taken_);
  const TimePoint deadline = steady_clock().now() + within;
  while (!std::filesystem::exists(path)) {
    if (steady_clock().now() >= deadline) {
      const std::lock_guard guard(mutex_);
      --taken_[{comm, from, to}];
      return std::nullopt;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  std::ifstream file(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  std::filesystem::remove(path);
  const auto* const data = reinterpret_cast<const std::byte*>(text.data());
  return FakeBytes(data, data + text.size());
}

std::string FakeFiles::next_name(const std::string& comm, int from, int to, Counts& counts) {
  const std::lock_guard guard(mutex_);
  return str_cat(comm, ".", from, ".", to, ".", counts[{comm, from, to}]++);
}

// Whole, or not at all.
void FakeFiles::write(const std::string& name, const FakeBytes& bytes) const {
  const std::string path = folder_ + "/" + name;
  std::ofstream(path + ".new", std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  std::filesystem::rename(path + ".new", path);
}

}  // namespace fleet::transport::testing
