#include "launch/agent_channel.h"

#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::launch {
namespace {

constexpr size_t kLengthBytes = 4;
constexpr size_t kLargestMessage = 8 << 20;
constexpr size_t kLargestFields = 1 << 20;

std::pair<sockaddr_un, socklen_t> abstract_address(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

[[noreturn]] void fail(const std::string& what, const std::string& name) {
  throw_error(ErrorCode::kInput, {.what = what,
                                  .where = "Unix socket @" + name,
                                  .expected = "a working socket of this machine",
                                  .got = std::strerror(errno),
                                  .fix = "check the limit of open files (ulimit -n)"});
}

void append_counted(std::vector<std::string>& fields, const std::vector<std::string>& items) {
  fields.push_back(str_cat(items.size()));
  fields.insert(fields.end(), items.begin(), items.end());
}

// Reads the fields of a message in order; anything missing makes ok false.
struct FieldReader {
  const std::vector<std::string>& fields;
  size_t next = 1;
  bool ok = true;

  std::string text() {
    if (next < fields.size()) return fields[next++];
    ok = false;
    return "";
  }
  std::vector<std::string> list() {
    const auto count = parse_int(text());
    if (!count || *count < 0 || static_cast<size_t>(*count) > fields.size() - next) {
      ok = false;
      return {};
    }
    const auto begin = fields.begin() + static_cast<long>(next);
    next += static_cast<size_t>(*count);
    return {begin, begin + static_cast<long>(*count)};
  }
};

}  // namespace

long long AgentMessage::number(size_t i) const {
  return i < fields.size() ? parse_int(fields[i]).value_or(0) : 0;
}

AgentMessage StartOrder::to_message() const {
  AgentMessage message{.fields = {"start", log_file, program, progress ? "1" : "0"}};
  append_counted(message.fields, argv);
  std::vector<std::string> assignments;
  for (const auto& [name, value] : set.all()) {
    assignments.push_back(name);
    assignments.push_back(value);
  }
  append_counted(message.fields, assignments);
  append_counted(message.fields, unset);
  return message;
}

std::optional<StartOrder> StartOrder::from_message(const AgentMessage& message) {
  FieldReader reader{.fields = message.fields};
  StartOrder order;
  order.log_file = reader.text();
  order.program = reader.text();
  order.progress = reader.text() == "1";
  order.argv = reader.list();
  const std::vector<std::string> assignments = reader.list();
  for (size_t i = 0; i + 1 < assignments.size(); i += 2) {
    order.set.set(assignments[i], assignments[i + 1]);
  }
  order.unset = reader.list();
  if (!reader.ok || order.argv.empty()) return std::nullopt;
  return order;
}

bool AgentChannel::send(const AgentMessage& message) {
  std::string body;
  for (const std::string& field : message.fields) {
    body += field;
    body += '\0';
  }
  std::string bytes(kLengthBytes, '\0');
  for (size_t i = 0; i < kLengthBytes; ++i) bytes[i] = static_cast<char>(body.size() >> (8 * i));
  bytes += body;
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count =
        ::send(socket_.get(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += static_cast<size_t>(count);
  }
  return true;
}

bool AgentChannel::receive(std::vector<AgentMessage>& messages) {
  char bytes[65536];
  ssize_t count = 0;
  while ((count = ::recv(socket_.get(), bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
    buffer_.append(bytes, static_cast<size_t>(count));
  }
  const bool open = count < 0 && (errno == EAGAIN || errno == EINTR);
  while (buffer_.size() >= kLengthBytes) {
    size_t length = 0;
    for (size_t i = 0; i < kLengthBytes; ++i) {
      length |= static_cast<size_t>(static_cast<unsigned char>(buffer_[i])) << (8 * i);
    }
    if (length == 0 || length > kLargestMessage) return false;
    if (buffer_.size() < kLengthBytes + length) break;
    const std::string_view body = std::string_view(buffer_).substr(kLengthBytes, length);
    if (body.back() != '\0') return false;
    AgentMessage message{.fields = split(body.substr(0, length - 1), '\0')};
    if (message.fields.empty()) message.fields.emplace_back();
    if (message.fields.size() > kLargestFields) return false;
    messages.push_back(std::move(message));
    buffer_.erase(0, kLengthBytes + length);
  }
  return open;
}

std::pair<FileDescriptor, std::string> AgentChannel::detach() {
  return {std::move(socket_), std::move(buffer_)};
}

FileDescriptor listen_abstract(const std::string& name) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto [address, size] = abstract_address(name);
  if (!socket || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    fail("cannot listen for the agents", name);
  }
  return socket;
}

FileDescriptor connect_abstract(const std::string& name) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto [address, size] = abstract_address(name);
  if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    fail("cannot reach the launcher", name);
  }
  return socket;
}

std::optional<FileDescriptor> accept_own_user(int listener, pid_t& peer) {
  FileDescriptor socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket) return std::nullopt;
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size);
  if (credentials.uid != ::geteuid()) return std::nullopt;
  const timeval limit{.tv_sec = 2, .tv_usec = 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  peer = credentials.pid;
  return socket;
}

}  // namespace fleet::launch
