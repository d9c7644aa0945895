#include "tests/testing/virtual_time/sim_disk.h"

#include <algorithm>

#include "base/strings.h"

namespace fleet::testing {
namespace {

std::error_code error_of(std::errc code) {
  return std::make_error_code(code);
}

}  // namespace

struct SimDisk::Node {
  bool is_folder = false;
  // Of a file.
  std::vector<std::byte> bytes;
  size_t synced = 0;  // of them
  // Of a folder.
  Entries entries;
  Entries synced_entries;
  std::vector<Change> changes;  // since then
};

class SimDisk::Output final : public OutputFile {
 public:
  Output(SimDisk& disk, NodePointer node, Path path)
      : disk_(disk), node_(std::move(node)), path_(std::move(path)) {}

  const Path& path() const override { return path_; }
  std::error_code append(std::span<const std::byte> bytes) override {
    const auto count = static_cast<size_t>(std::min<uint64_t>(bytes.size(), disk_.room_));
    node_->bytes.insert(node_->bytes.end(), bytes.begin(),
                        bytes.begin() + static_cast<std::ptrdiff_t>(count));
    disk_.room_ -= count;
    return count == bytes.size() ? std::error_code() : error_of(std::errc::no_space_on_device);
  }
  // No promise is made of what the disk has begun to write.
  std::error_code write_back(uint64_t, uint64_t, bool) override { return {}; }
  std::error_code sync() override {
    node_->synced = node_->bytes.size();
    return {};
  }

 private:
  SimDisk& disk_;
  NodePointer node_;
  Path path_;
};

class SimDisk::Input final : public InputFile {
 public:
  explicit Input(NodePointer node) : node_(std::move(node)) {}

  uint64_t size() const override { return node_->bytes.size(); }
  std::error_code seek(uint64_t position) override {
    at_ = static_cast<size_t>(position);
    return {};
  }
  std::error_code read(std::span<std::byte> into, size_t& got) override {
    got = 0;
    if (node_->is_folder) return error_of(std::errc::is_a_directory);
    if (at_ >= node_->bytes.size()) return {};
    got = std::min(into.size(), node_->bytes.size() - at_);
    std::copy_n(node_->bytes.begin() + static_cast<std::ptrdiff_t>(at_), got, into.begin());
    at_ += got;
    return {};
  }

 private:
  NodePointer node_;
  size_t at_ = 0;
};

SimDisk::SimDisk(Random random) : random_(std::move(random)), root_(std::make_shared<Node>()) {
  root_->is_folder = true;
}

SimDisk::~SimDisk() = default;

SimDisk::NodePointer SimDisk::find(const Path& path) const {
  NodePointer node = root_;
  for (const Path& name : path.relative_path()) {
    if (node == nullptr || !node->is_folder) return nullptr;
    const auto found = node->entries.find(name.string());
    node = found == node->entries.end() ? nullptr : found->second;
  }
  return node;
}

void SimDisk::apply(const Change& change, Entries& entries) {
  for (const auto& [name, node] : change) {
    if (node == nullptr) {
      entries.erase(name);
    } else {
      entries[name] = node;
    }
  }
}

void SimDisk::change(Node& folder, Change change) {
  apply(change, folder.entries);
  folder.changes.push_back(std::move(change));
}

std::error_code SimDisk::create_folder(const Path& folder) {
  if (find(folder) != nullptr) return error_of(std::errc::file_exists);
  const NodePointer parent = find(folder.parent_path());
  if (parent == nullptr) return error_of(std::errc::no_such_file_or_directory);
  auto made = std::make_shared<Node>();
  made->is_folder = true;
  change(*parent, {{folder.filename().string(), std::move(made)}});
  return {};
}

std::unique_ptr<OutputFile> SimDisk::create(const Path& beginning, std::error_code& error) {
  const NodePointer folder = find(beginning.parent_path());
  if (folder == nullptr) {
    error = error_of(std::errc::no_such_file_or_directory);
    return nullptr;
  }
  error = {};
  const Path path = beginning.string() + str_cat(++names_);
  auto node = std::make_shared<Node>();
  change(*folder, {{path.filename().string(), node}});
  return std::make_unique<Output>(*this, std::move(node), path);
}

std::unique_ptr<InputFile> SimDisk::open(const Path& file, std::error_code& error) {
  NodePointer node = find(file);
  error = node == nullptr ? error_of(std::errc::no_such_file_or_directory) : std::error_code();
  return error ? nullptr : std::make_unique<Input>(std::move(node));
}

// Within one folder, as everything here is renamed; a folder that is in the way must be empty.
std::error_code SimDisk::rename(const Path& from, const Path& to) {
  const NodePointer node = find(from);
  const NodePointer folder = find(to.parent_path());
  if (node == nullptr || folder == nullptr) return error_of(std::errc::no_such_file_or_directory);
  if (from.parent_path() != to.parent_path()) return error_of(std::errc::cross_device_link);
  const NodePointer there = find(to);
  if (there != nullptr && there->is_folder && !there->entries.empty()) {
    return error_of(std::errc::directory_not_empty);
  }
  change(*folder, {{from.filename().string(), nullptr}, {to.filename().string(), node}});
  return {};
}

std::error_code SimDisk::exchange(const Path& a, const Path& b) {
  const NodePointer first = find(a);
  const NodePointer second = find(b);
  if (first == nullptr || second == nullptr) return error_of(std::errc::no_such_file_or_directory);
  if (a.parent_path() != b.parent_path()) return error_of(std::errc::cross_device_link);
  change(*find(a.parent_path()), {{a.filename().string(), second}, {b.filename().string(), first}});
  return {};
}

std::error_code SimDisk::remove(const Path& file) {
  const NodePointer node = find(file);
  if (node == nullptr) return {};
  if (node->is_folder && !node->entries.empty()) return error_of(std::errc::directory_not_empty);
  change(*find(file.parent_path()), {{file.filename().string(), nullptr}});
  return {};
}

std::error_code SimDisk::remove_all(const Path& folder) {
  for (const Path& path : names_in(folder)) {
    if (const std::error_code error = remove_all(path)) return error;
  }
  return remove(folder);
}

std::error_code SimDisk::sync_folder(const Path& folder) {
  const NodePointer node = find(folder);
  if (node == nullptr) return {};
  node->synced_entries = node->entries;
  node->changes.clear();
  return {};
}

std::vector<SimDisk::Path> SimDisk::names_in(const Path& folder) const {
  std::vector<Path> paths;
  const NodePointer node = find(folder);
  if (node == nullptr) return paths;
  for (const auto& [name, entry] : node->entries) paths.push_back(folder / name);
  return paths;
}

std::vector<SimDisk::Path> SimDisk::folders_in(const Path& folder) {
  std::vector<Path> paths = names_in(folder);
  std::erase_if(paths, [this](const Path& path) { return !find(path)->is_folder; });
  return paths;
}

void SimDisk::flip_bit(const Path& file, uint64_t bit) {
  std::vector<std::byte>& bytes = find(file)->bytes;
  bit %= 8 * bytes.size();
  bytes[static_cast<size_t>(bit / 8)] ^= std::byte{1} << (bit % 8);
}

void SimDisk::lose_power() {
  lose_power(*root_);
}

void SimDisk::lose_power(Node& node) {
  if (!node.is_folder) {
    const size_t lost = node.bytes.size() - node.synced;
    node.bytes.resize(node.synced + static_cast<size_t>(random_(lost + 1)));
    const size_t kept = node.bytes.size() - node.synced;
    const size_t zeros = random_(2) == 0 ? 0 : static_cast<size_t>(random_(kept + 1));
    std::fill_n(node.bytes.end() - static_cast<std::ptrdiff_t>(zeros), zeros, std::byte{0});
    node.synced = node.bytes.size();
    return;
  }
  node.changes.resize(static_cast<size_t>(random_(node.changes.size() + 1)));
  for (const Change& change : node.changes) apply(change, node.synced_entries);
  node.changes.clear();
  node.entries = node.synced_entries;
  for (const auto& [name, entry] : node.entries) lose_power(*entry);
}

}  // namespace fleet::testing
