// A disk in memory, as a crash leaves it: what was synced stays; of the rest, whatever the seed
// says. It is full, slow or damaged when it is told to be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/files/file_system.h"

namespace fleet::testing {

// One thread. Names of folders and files are absolute.
//
// A folder keeps the order of its changes: after a loss of power those before some point of the
// order are there, and all before its last sync. A file has what it had at its last sync, then a
// part of what was appended since, in which a stretch may be zeros.
class SimDisk : public FileSystem {
 public:
  using Random = std::function<uint64_t(uint64_t below)>;
  explicit SimDisk(Random random);
  ~SimDisk() override;

  void lose_power();
  // Bytes that may still be appended; the write that has no room does a part and fails.
  void set_room(uint64_t bytes) { room_ = bytes; }
  // Changes one bit of a file; its number is `bit` modulo their count.
  void flip_bit(const Path& file, uint64_t bit);
  // Names in a folder, in their order.
  std::vector<Path> names_in(const Path& folder) const;

  // FileSystem
  std::error_code create_folder(const Path& folder) override;
  std::unique_ptr<OutputFile> create(const Path& beginning, std::error_code& error) override;
  std::unique_ptr<InputFile> open(const Path& file, std::error_code& error) override;
  std::error_code rename(const Path& from, const Path& to) override;
  std::error_code exchange(const Path& a, const Path& b) override;
  std::error_code remove(const Path& file) override;
  std::error_code remove_all(const Path& folder) override;
  std::error_code sync_folder(const Path& folder) override;
  bool exists(const Path& path) override { return find(path) != nullptr; }
  std::vector<Path> folders_in(const Path& folder) override;

 private:
  class Output;
  class Input;
  struct Node;
  using NodePointer = std::shared_ptr<Node>;
  using Entries = std::map<std::string, NodePointer>;
  // Names that get another node, or none, at once.
  using Change = std::vector<std::pair<std::string, NodePointer>>;

  NodePointer find(const Path& path) const;
  static void apply(const Change& change, Entries& entries);
  static void change(Node& folder, Change change);
  void lose_power(Node& node);

  Random random_;
  uint64_t room_ = std::numeric_limits<uint64_t>::max();
  uint64_t names_ = 0;
  NodePointer root_;
};

}  // namespace fleet::testing
