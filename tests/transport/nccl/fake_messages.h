// How ranks of the double of NCCL reach each other: in the memory of one process, or, between
// processes, as files of a folder.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/clock.h"

namespace fleet::transport::testing {

using FakeBytes = std::vector<std::byte>;

// Communicators are told apart by their name. Any thread may call it.
class FakeMessages {
 public:
  virtual ~FakeMessages() = default;
  virtual void join(const std::string& comm, int rank) = 0;
  virtual bool has_joined(const std::string& comm, int rank) = 0;
  virtual void post(const std::string& comm, int from, int to, FakeBytes bytes) = 0;
  // The next one, if it comes within the time.
  virtual std::optional<FakeBytes> take(const std::string& comm, int from, int to,
                                        Duration within) = 0;
};

class FakeMemory final : public FakeMessages {
 public:
  void join(const std::string& comm, int rank) override;
  bool has_joined(const std::string& comm, int rank) override;
  void post(const std::string& comm, int from, int to, FakeBytes bytes) override;
  std::optional<FakeBytes> take(const std::string& comm, int from, int to,
                                Duration within) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::pair<std::string, int>> joined_;
  std::map<std::tuple<std::string, int, int>, std::deque<FakeBytes>> messages_;
};

// One for each process.
class FakeFiles final : public FakeMessages {
 public:
  explicit FakeFiles(std::string folder) : folder_(std::move(folder)) {}

  void join(const std::string& comm, int rank) override;
  bool has_joined(const std::string& comm, int rank) override;
  void post(const std::string& comm, int from, int to, FakeBytes bytes) override;
  std::optional<FakeBytes> take(const std::string& comm, int from, int to,
                                Duration within) override;

 private:
  using Counts = std::map<std::tuple<std::string, int, int>, int>;
  std::string next_name(const std::string& comm, int from, int to, Counts& counts);
  void write(const std::string& name, const FakeBytes& bytes) const;

  std::string folder_;
  std::mutex mutex_;
  Counts posted_;
  Counts taken_;
};

}  // namespace fleet::transport::testing
