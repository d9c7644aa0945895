// A TCP port that nobody else holds. Internal to role_maker.
#pragma once

namespace fleet::role_maker {

// Holds a port by a bound socket, so that no other process gets it, until it is destroyed.
class PortReservation {
 public:
  PortReservation() = default;
  // A free port, outside the range from which the kernel serves outgoing connections where there
  // is room, so that none of those takes it later. Throws ResourceError when there is none.
  static PortReservation any();

  int port() const { return port_; }

  PortReservation(PortReservation&& other) noexcept;
  PortReservation& operator=(PortReservation&& other) noexcept;
  ~PortReservation();

 private:
  bool bind_to(int port);

  int socket_ = -1;
  int port_ = 0;
};

}  // namespace fleet::role_maker
