// TCP and abstract Unix sockets over AsioLoop.
#pragma once

#include "transport/link/asio_loop.h"
#include "transport/link/link.h"

namespace fleet::transport {

// Stateless; loops given to it must be AsioLoops. May be shared between threads.
class AsioNetwork final : public Network {
 public:
  explicit AsioNetwork(TransportChoice choice = TransportChoice::kAuto) : choice_(choice) {}

  Result<std::unique_ptr<Listener>> listen(Loop& loop, const Address& address,
                                           AcceptHandler on_accept) override;
  std::unique_ptr<Connector> connect(Loop& loop, const Address& address,
                                     ConnectHandler on_done) override;
  std::vector<Address> routes(const Endpoint& endpoint) const override;

 private:
  TransportChoice choice_;
};

}  // namespace fleet::transport
