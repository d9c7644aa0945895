// A peer made of a blocking Unix socket and no manners: it sends whatever bytes it is given, and
// can do a valid handshake by hand.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

#include "base/strings.h"
#include "transport/session/handshake.h"

namespace fleet::transport::testing {

inline std::vector<std::byte> frame_bytes(FrameHeader header, ConstBytes control = {},
                                          ConstBytes payload = {}) {
  header.control_bytes = static_cast<uint32_t>(control.size());
  header.payload_bytes = payload.size();
  const EncodedHeader encoded = encode_header(header);
  std::vector<std::byte> bytes(kHeaderBytes + control.size() + payload.size());
  std::byte* to = bytes.data();
  for (const ConstBytes part : {ConstBytes(encoded), control, payload}) {
    if (!part.empty()) std::memcpy(to, part.data(), part.size());
    to += part.size();
  }
  return bytes;
}

class RawPeer {
 public:
  explicit RawPeer(uint16_t port) : fd_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    const timeval patience{5, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = str_cat("fleet-", port);
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), size) == 0;
  }
  ~RawPeer() { ::close(fd_); }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  bool connected() const { return connected_; }

  // False once the other side has closed.
  bool send(ConstBytes bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes = bytes.subspan(static_cast<size_t>(sent));
    }
    return true;
  }

  // Says that nothing more comes, and waits until the other side has read everything and closed.
  void finish() const {
    ::shutdown(fd_, SHUT_WR);
    read_to_end();
  }

  // Everything until the other side closes, in bytes.
  size_t read_to_end() const {
    std::array<std::byte, 4096> buffer;
    size_t total = 0;
    for (ssize_t got = 0; (got = ::recv(fd_, buffer.data(), buffer.size(), 0)) > 0;) {
      total += static_cast<size_t>(got);
    }
    return total;
  }

  struct Received {
    FrameHeader header;
    std::vector<std::byte> control;
  };
  std::optional<Received> receive() const {
    EncodedHeader bytes;
    if (!read_all(bytes)) return std::nullopt;
    const auto header = decode_header(bytes);
    if (!header.ok()) return std::nullopt;
    Received frame{header.value(), std::vector<std::byte>(header.value().control_bytes)};
    std::vector<std::byte> payload(header.value().payload_bytes);
    if (!read_all(frame.control) || !read_all(payload)) return std::nullopt;
    return frame;
  }

  // True when the server has said welcome.
  bool shake_hands(const Hello& hello, const Secret& secret) const {
    HandshakeOptions options;
    options.hello = hello;
    options.secret = secret;
    Handshake handshake(Side::kConnecting, options, LinkKind::kUnix,
                        PeerProcess{::geteuid(), static_cast<uint32_t>(::getpid())});
    while (!handshake.done()) {
      const auto frame = receive();
      if (!frame) return false;
      for (const Message& answer : handshake.on_frame(frame->header, frame->control)) {
        if (!send(frame_bytes(answer.header, answer.control))) return false;
      }
      if (handshake.failed()) return false;
    }
    return true;
  }

 private:
  bool read_all(MutableBytes into) const {
    while (!into.empty()) {
      const ssize_t got = ::recv(fd_, into.data(), into.size(), 0);
      if (got <= 0) return false;
      into = into.subspan(static_cast<size_t>(got));
    }
    return true;
  }

  int fd_;
  bool connected_ = false;
};

}  // namespace fleet::transport::testing
