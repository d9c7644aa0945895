#include <algorithm>
#include <array>
#include <bit>
#include <sched.h>
#include <time.h>

#include "base/hash.h"
#include "base/strings.h"
#include "transport/mpi/mpi_messages_impl.h"

namespace fleet::transport::mpi_detail {
namespace {

constexpr size_t kLargestMessage = size_t{1} << 30;
// The parts of a tag, from the lowest: kind, type, a hash of the count, and the number.
constexpr int kKinds = 8;
constexpr int kTypes = 8;
constexpr int kCounts = 512;
constexpr int kOfNumber = kKinds * kTypes * kCounts;
constexpr int kRollCallKind = kKinds - 1;
// A waiting rank looks for messages of other operations after so many naps, since each look costs
// as much as some messages.
constexpr uint32_t kNapsBetweenLooks = 64;
// Operations whose names are known when another rank's turns out to be different.
constexpr size_t kRecent = 64;

void check(int code, int peer) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw_error(ErrorCode::kPeerLost,
              {.what = peer >= 0 ? str_cat("a message between this rank and rank ", peer, " failed")
                                 : "a message between ranks failed",
               .where = "MPI",
               .expected = "a message of the agreed size",
               .got = std::string(text.data(), static_cast<size_t>(length)),
               .fix = "read the logs of the other ranks; all must run the same program"});
}

}  // namespace

bool pass_time(bool oversubscribed, Duration idle) {
  constexpr Duration kSpin = std::chrono::microseconds(200);
  constexpr Duration kNap = std::chrono::milliseconds(50);
  if (idle > kSpin) {
    const timespec span{0, idle > kNap ? 100'000 : 10'000};
    nanosleep(&span, nullptr);
    return true;
  }
  if (oversubscribed) sched_yield();
  return false;
}

Tags::Tags(int upper_bound)
    : numbers_(std::bit_floor((static_cast<uint64_t>(upper_bound) + 1) / kOfNumber)) {}

int Tags::of(const OperationId& id) const {
  const bool rolls = id.sequence >= kRollCallSequence;
  const uint64_t kind = rolls ? kRollCallKind : static_cast<uint64_t>(id.kind);
  uint64_t tag = numbers_ == 0 ? 0 : id.sequence & (numbers_ - 1);
  tag = tag * kCounts + mix64(id.count) % kCounts;
  tag = tag * kTypes + static_cast<uint64_t>(id.type);
  return static_cast<int>(tag * kKinds + kind);
}

bool Tags::same_number(int tag, int other) {
  return tag / kOfNumber == other / kOfNumber;
}

bool Tags::is_roll_call(int tag) {
  return tag % kKinds == kRollCallKind;
}

std::string Tags::to_string(int tag, int ours) {
  const auto kind = static_cast<CollectiveKind>(tag % kKinds);
  if (kind == CollectiveKind::kBarrier) return std::string(name_of(kind));
  const bool typed = kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter;
  const auto type = static_cast<ElementType>(tag / kKinds % kTypes);
  const bool same = tag % (kKinds * kTypes) == ours % (kKinds * kTypes);
  return str_cat(name_of(kind), same ? " of another number of " : " of ",
                 typed ? name_of(type) : std::string_view("bytes"));
}

class MpiPeer::Messages : public MessageSet {
 public:
  Messages(MpiPeer& peer, int tag) : peer_(peer), tag_(tag) {
    if (peer.unused_.empty()) return;
    requests_ = std::move(peer.unused_.back());
    peer.unused_.pop_back();
  }
  // Who asked for messages that will not come takes that back; of a lost job, MPI may still need
  // everything.
  ~Messages() override {
    const bool over = peer_.session_.lost() || !MpiSession::is_open();
    for (size_t i = 0; i < requests_.handles.size() && !over; ++i) {
      MPI_Request& handle = requests_.handles[i];
      if (handle == MPI_REQUEST_NULL) continue;
      if (requests_.peers[i].sends) MPI_Cancel(&handle);
      MPI_Request_free(&handle);
    }
    requests_.handles.clear();
    requests_.peers.clear();
    peer_.unused_.push_back(std::move(requests_));
  }

  void send(int to, std::span<const std::byte> bytes) override {
    do {
      const auto now = bytes.first(std::min(bytes.size(), kLargestMessage));
      check(MPI_Isend(now.data(), static_cast<int>(now.size()), MPI_BYTE, to, tag_, peer_.comm_,
                      &requests_.handles.emplace_back(MPI_REQUEST_NULL)),
            to);
      requests_.peers.push_back({to, false});
      bytes = bytes.subspan(now.size());
    } while (!bytes.empty());
  }

  void receive(int from, std::span<std::byte> bytes) override {
    do {
      const auto now = bytes.first(std::min(bytes.size(), kLargestMessage));
      check(MPI_Irecv(now.data(), static_cast<int>(now.size()), MPI_BYTE, from, tag_, peer_.comm_,
                      &requests_.handles.emplace_back(MPI_REQUEST_NULL)),
            from);
      requests_.peers.push_back({from, true});
      bytes = bytes.subspan(now.size());
    } while (!bytes.empty());
  }

  bool test() override {
    auto& handles = requests_.handles;
    if (handles.empty()) return true;
    int done = 0;
    check(MPI_Testall(static_cast<int>(handles.size()), handles.data(), &done, MPI_STATUSES_IGNORE),
          -1);
    if (done == 0) return false;
    ++peer_.progress_;
    handles.clear();
    requests_.peers.clear();
    return true;
  }

  void unfinished(std::vector<int>& ranks) override {
    std::vector<int> receivers;
    bool someone_sends = false;
    for (size_t i = 0; i < requests_.handles.size(); ++i) {
      int done = 0;
      if (requests_.handles[i] == MPI_REQUEST_NULL) continue;
      const bool known =
          MPI_Request_get_status(requests_.handles[i], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS;
      if (known && done != 0) continue;
      const Requests::Peer& peer = requests_.peers[i];
      (peer.sends ? ranks : receivers).push_back(peer.rank);
      someone_sends = someone_sends || peer.sends;
    }
    if (!someone_sends) ranks.insert(ranks.end(), receivers.begin(), receivers.end());
  }

 private:
  MpiPeer& peer_;
  int tag_;
  Requests requests_;
};

MpiPeer::MpiPeer(MpiSession& session, MPI_Comm comm, int tag_upper_bound)
    : session_(session), comm_(comm), tags_(tag_upper_bound) {}

MpiPeer::~MpiPeer() {
  if (session_.lost() || !MpiSession::is_open()) return;
  const auto guard = session_.lock();
  MPI_Comm_free(&comm_);
}

std::unique_ptr<MessageSet> MpiPeer::messages(const OperationId& operation) {
  if (operation.sequence < kRollCallSequence) {
    recent_.resize(std::max(recent_.size(), operation.sequence % kRecent + 1), operation);
    recent_[operation.sequence % kRecent] = operation;
  }
  return std::make_unique<Messages>(*this, tags_.of(operation));
}

void MpiPeer::rest(Duration idle, TimePoint) {
  naps_ = pass_time(session_.oversubscribed(), idle) ? naps_ + 1 : 0;
}

void MpiPeer::poll() {
  if (naps_ % kNapsBetweenLooks == kNapsBetweenLooks - 1) find_other_operations();
}

void MpiPeer::find_other_operations() const {
  for (int peer = 0; peer < size(); ++peer) {
    int found = 0;
    MPI_Status status;
    check(MPI_Iprobe(peer, MPI_ANY_TAG, comm_, &found, &status), peer);
    if (found == 0 || Tags::is_roll_call(status.MPI_TAG)) continue;
    for (const OperationId& ours : recent_) {
      const int tag = tags_.of(ours);
      if (tag == status.MPI_TAG || !Tags::same_number(tag, status.MPI_TAG)) continue;
      const std::string theirs = Tags::to_string(status.MPI_TAG, tag);
      different_operations(ours, rank(), theirs, peer).throw_if_error();
    }
  }
}

void MpiPeer::give_up(std::vector<std::shared_ptr<const void>> memory) {
  session_.mark_lost();
  for (auto& block : memory) session_.keep(std::move(block));
}

}  // namespace fleet::transport::mpi_detail
