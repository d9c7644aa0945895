#include <algorithm>
#include <cstring>

#include "transport/collective/pipeline_impl.h"

namespace fleet::transport::collective_detail {
namespace {

// Places are ranks counted from the root, which is place 0.
class TreeBroadcast : public Pipeline {
 public:
  TreeBroadcast(Group& group, const OperationId& id, std::span<std::byte> bytes, int root,
                Pieces pieces)
      : Pipeline(group, id, std::max<size_t>(1, (bytes.size() + pieces.bytes - 1) / pieces.bytes),
                 pieces.window),
        bytes_(bytes),
        piece_(pieces.bytes) {
    const int place = (group.rank + group.size - root) % group.size;
    const size_t count = (bytes.size() + pieces.bytes - 1) / pieces.bytes;
    if (count <= 1) {
      join_binomial(place, root);
    } else {
      join_branches(place, root, count < static_cast<size_t>(group.size) ? 2 : 1);
    }
    start();
  }

 private:
  // The parent of a place is itself with its lowest bit cleared. Whoever is far from the leaves
  // comes first.
  void join_binomial(int place, int root) {
    if (place != 0) parent_ = ((place & (place - 1)) + root) % group_.size;
    for (int bit = 1; place + bit < group_.size && (place & bit) == 0; bit *= 2) {
      children_.insert(children_.begin(), (place + bit + root) % group_.size);
    }
  }
  // One branch is a chain.
  void join_branches(int place, int root, int branches) {
    if (place != 0) parent_ = ((place - 1) / branches + root) % group_.size;
    for (int child = branches * place + 1; child <= branches * place + branches; ++child) {
      if (child < group_.size) children_.push_back((child + root) % group_.size);
    }
  }

  std::span<std::byte> piece(const Round& round) const {
    const size_t begin = round.number * piece_;
    return bytes_.subspan(begin, std::min(piece_, bytes_.size() - begin));
  }
  void begin(Round& round) override {
    if (parent_ >= 0) round.messages->receive(parent_, piece(round));
  }
  void relay(Round& round) override {
    for (const int child : children_) round.messages->send(child, piece(round));
  }

  std::span<std::byte> bytes_;
  size_t piece_;
  int parent_ = -1;
  std::vector<int> children_;
};

void copy(std::span<std::byte> out, std::span<const std::byte> in) {
  if (!in.empty() && out.data() != in.data()) std::memcpy(out.data(), in.data(), in.size());
}

class DirectAllGather : public Machine {
 public:
  DirectAllGather(Group& group, const OperationId& id, std::span<const std::byte> mine,
                  std::span<std::byte> all)
      : messages_(group.peers.messages(id)) {
    const size_t each = mine.size();
    for (int step = 1; step < group.size; ++step) {
      const int from = (group.rank + group.size - step) % group.size;
      messages_->receive(from, all.subspan(static_cast<size_t>(from) * each, each));
    }
    for (int step = 1; step < group.size; ++step) {
      messages_->send((group.rank + step) % group.size, mine);
    }
    copy(all.subspan(static_cast<size_t>(group.rank) * each, each), mine);
  }
  bool advance() override { return messages_->test(); }
  void waits_for(std::vector<int>& ranks) override { messages_->unfinished(ranks); }

 private:
  std::unique_ptr<MessageSet> messages_;
};

class DoublingAllGather : public Machine {
 public:
  DoublingAllGather(Group& group, const OperationId& id, std::span<const std::byte> mine,
                    std::span<std::byte> all)
      : group_(group),
        messages_(group.peers.messages(id)),
        scratch_(group.scratch, mine.size() * static_cast<size_t>(group.size)),
        each_(mine.size()),
        all_(all) {
    copy(blocks(0, 1), mine);
    post();
  }

  bool advance() override {
    while (messages_->test()) {
      known_ = std::min(2 * known_, group_.size);
      if (known_ == group_.size) {
        const auto before = static_cast<int>(group_.size - group_.rank);
        copy(all_.subspan(static_cast<size_t>(group_.rank) * each_), blocks(0, before));
        copy(all_, blocks(before, group_.rank));
        return true;
      }
      post();
    }
    return false;
  }
  void waits_for(std::vector<int>& ranks) override { messages_->unfinished(ranks); }

 private:
  // Blocks by their distance from this rank.
  std::span<std::byte> blocks(int first, int count) {
    return {scratch_.data() + static_cast<size_t>(first) * each_,
            static_cast<size_t>(count) * each_};
  }
  void post() {
    const int count = std::min(known_, group_.size - known_);
    messages_->receive((group_.rank + known_) % group_.size, blocks(known_, count));
    messages_->send((group_.rank + group_.size - known_) % group_.size, blocks(0, count));
  }

  Group& group_;
  std::unique_ptr<MessageSet> messages_;
  Scratch scratch_;
  size_t each_;
  std::span<std::byte> all_;
  int known_ = 1;
};

}  // namespace

std::unique_ptr<Machine> tree_broadcast(Group& group, const OperationId& id,
                                        std::span<std::byte> bytes, int root, Pieces pieces) {
  return std::make_unique<TreeBroadcast>(group, id, bytes, root, pieces);
}

std::unique_ptr<Machine> direct_all_gather(Group& group, const OperationId& id,
                                           std::span<const std::byte> mine,
                                           std::span<std::byte> all) {
  return std::make_unique<DirectAllGather>(group, id, mine, all);
}

std::unique_ptr<Machine> doubling_all_gather(Group& group, const OperationId& id,
                                             std::span<const std::byte> mine,
                                             std::span<std::byte> all) {
  return std::make_unique<DoublingAllGather>(group, id, mine, all);
}

}  // namespace fleet::transport::collective_detail
