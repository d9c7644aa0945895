#include "transport/shared_collective/arena_exchange.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/process/random_hex.h"
#include "base/strings.h"

namespace fleet::transport {
namespace {

constexpr size_t kWordDigits = 32;

// What a rank says when it hands its arena over.
struct Card {
  std::array<char, kWordDigits> word;  // of the rank that it is handed to
  int32_t rank;
};

struct Invitation {
  std::string machine;
  std::string user;
  std::string name;
  std::string word;
};

std::optional<Invitation> read_invitation(const std::string& text) {
  const auto fields = split(text, ' ');
  if (fields.size() != 4 || fields[0].empty() || fields[3].size() != kWordDigits) return {};
  return Invitation{fields[0], fields[1], fields[2], fields[3]};
}

Status failed(const char* call, int error, std::string where) {
  return Status(ErrorCode::kNotSupported, {.what = "ranks cannot hand each other their memory",
                                           .where = std::move(where),
                                           .expected = str_cat(call, " between ranks of a machine"),
                                           .got = std::strerror(error),
                                           .fix = "see what the container forbids"});
}

// An abstract name, which ends with its sockets.
socklen_t fill(sockaddr_un& address, const std::string& name) {
  address = {};
  address.sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

FileDescriptor unix_socket() {
  return FileDescriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

Status check_user(int socket, const std::string& who) {
  ucred peer{};
  socklen_t size = sizeof peer;
  const bool told = ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  if (told && peer.uid == ::geteuid()) return {};
  return Status(ErrorCode::kAuthentication,
                {.what = "another user's process is where a rank should be",
                 .where = who,
                 .expected = str_cat("user ", ::geteuid()),
                 .got = told ? str_cat("user ", peer.uid) : std::string("a process of nobody"),
                 .fix = "run all ranks as the same user"});
}

// One packet with one descriptor.
union Control {
  cmsghdr header;
  std::array<char, CMSG_SPACE(sizeof(int))> bytes;
};

bool send_card(int socket, Card card, int file) {
  Control control{};
  iovec part{&card, sizeof card};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof file);
  std::memcpy(CMSG_DATA(header), &file, sizeof file);
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof card);
}

// The descriptor; none when something else came.
FileDescriptor receive_card(int socket, Card& card) {
  Control control{};
  iovec part{&card, sizeof card};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  const ssize_t size = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  cmsghdr* const header = size >= 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int))) {
    return {};
  }
  int file = -1;
  std::memcpy(&file, CMSG_DATA(header), sizeof file);
  FileDescriptor received(file);
  return size == static_cast<ssize_t>(sizeof card) ? std::move(received) : FileDescriptor();
}

bool wait_for(int socket, TimePoint deadline) {
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock().now());
    if (left.count() <= 0) return false;
    pollfd readable{socket, POLLIN, 0};
    const int64_t ms = std::min<int64_t>(left.count(), 1000);
    if (::poll(&readable, 1, static_cast<int>(ms)) > 0) return true;
  }
}

Status check_invitations(const std::vector<std::string>& invitations, int rank) {
  const auto own = read_invitation(invitations[static_cast<size_t>(rank)]);
  for (size_t other = 0; other < invitations.size(); ++other) {
    const auto theirs = read_invitation(invitations[other]);
    const bool fits = own && theirs && theirs->machine == own->machine && theirs->user == own->user;
    if (fits) continue;
    const bool elsewhere = own && theirs && theirs->machine != own->machine;
    return Status(ErrorCode::kNotSupported,
                  {.what = "ranks cannot share memory",
                   .where = str_cat("rank ", other),
                   .expected = "all ranks on one machine, of one user",
                   .got = !theirs     ? std::string("no memory to share at this rank")
                          : elsewhere ? std::string("a rank on another machine")
                                      : str_cat("a rank of user ", theirs->user),
                   .fix = {}});
  }
  return {};
}

}  // namespace

std::string this_machine() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

Status ArenaExchange::listen(int ranks) {
  name_ = str_cat("fleet-ranks-", random_hex(16));
  word_ = random_hex(kWordDigits / 2);
  listener_ = unix_socket();
  sockaddr_un address{};
  const socklen_t size = fill(address, name_);
  const bool bound =
      listener_ &&
      ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
      ::listen(listener_.get(), ranks) == 0;
  return bound ? Status() : failed("a Unix socket", errno, name_);
}

std::string ArenaExchange::invitation() const {
  return str_cat(this_machine(), ' ', ::geteuid(), ' ', name_, ' ', word_);
}

Status ArenaExchange::give(int rank, int to, const std::string& invitation, int file) const {
  const auto there = read_invitation(invitation).value();
  const std::string who = str_cat("rank ", to);
  const FileDescriptor socket = unix_socket();
  sockaddr_un address{};
  const socklen_t size = fill(address, there.name);
  const bool connected =
      socket && ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0;
  if (!connected) return failed("connect", errno, who);
  Status same = check_user(socket.get(), who);
  if (!same.ok()) return same;
  Card card{};
  card.rank = rank;
  std::memcpy(card.word.data(), there.word.data(), kWordDigits);
  return send_card(socket.get(), card, file) ? Status() : failed("sendmsg", errno, who);
}

// The arena of one more rank. A connection that does not know the word is closed, and no more.
Status ArenaExchange::take(std::vector<std::shared_ptr<const Arena>>& arenas,
                           const ArenaLayout& layout, TimePoint deadline) {
  if (!wait_for(listener_.get(), deadline)) return failed("accept", ETIMEDOUT, name_);
  const FileDescriptor socket(
      ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket || !check_user(socket.get(), "a rank that connects").ok()) return {};
  const TimePoint soon = steady_clock().now() + std::chrono::seconds(1);
  if (!wait_for(socket.get(), std::min(deadline, soon))) return {};
  Card card{};
  FileDescriptor file = receive_card(socket.get(), card);
  const bool knows = std::string_view(card.word.data(), kWordDigits) == word_;
  const auto rank = static_cast<size_t>(card.rank);
  if (!file || !knows || card.rank < 0 || rank >= arenas.size() || arenas[rank]) return {};
  auto mapped = Arena::map(std::move(file), layout);
  if (!mapped.ok()) return mapped.status();
  arenas[rank] = std::move(mapped.value());
  return {};
}

Result<std::vector<std::shared_ptr<const Arena>>> ArenaExchange::join(
    int rank, const std::shared_ptr<const Arena>& own, const std::vector<std::string>& invitations,
    TimePoint deadline) {
  const Status possible = check_invitations(invitations, rank);
  if (!possible.ok()) return possible;
  std::vector<std::shared_ptr<const Arena>> arenas(invitations.size());
  arenas[static_cast<size_t>(rank)] = own;
  for (int to = 0; to < static_cast<int>(invitations.size()); ++to) {
    if (to == rank) continue;
    const Status given = give(rank, to, invitations[static_cast<size_t>(to)], own->file());
    if (!given.ok()) return given;
  }
  while (std::count(arenas.begin(), arenas.end(), nullptr) > 0) {
    const Status taken = take(arenas, own->layout(), deadline);
    if (!taken.ok()) return taken;
  }
  return arenas;
}

}  // namespace fleet::transport
