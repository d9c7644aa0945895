// Two hosts that are addresses of this machine, and scripts that run on them.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include "base/net/port_reservation.h"
#include "base/strings.h"

namespace fleet::launch::testing {

constexpr const char* kFirst = "127.0.0.2";
constexpr const char* kSecond = "127.0.0.3";
constexpr const char* kBoth = "127.0.0.2,127.0.0.3";

// Begins a script: `me` is server, worker0 …; say reports it with the attempt; await waits until
// another one of the attempt has been here.
const std::string kHostScript = R"(
case "$TRAINING_ROLE" in PSERVER) me=server;; *) me="worker${PADDLE_TRAINER_ID:-$RANK}";; esac
say() { echo "$me.$FLEET_RESTARTS $1" > $MAILBOX; }
been() { : > $MAILBOX.$me.$FLEET_RESTARTS; }
await() { while [ ! -e $MAILBOX.$1.$FLEET_RESTARTS ]; do sleep 0.02; done; }
step() { echo "progress step=$1" >&$FLEET_PROGRESS_FD; }
)";

// Ports that are free on both; what takes one meanwhile fails the test.
class FreePorts {
 public:
  FreePorts() {
    const PortReservation free = PortReservation::any("0.0.0.0", 1);
    port_ = free.endpoints().front().port;
  }
  std::string first() const { return str_cat(port_); }

 private:
  int port_;
};

inline std::string command_line_of(pid_t pid) {
  std::ifstream file(str_cat("/proc/", pid, "/cmdline"), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace fleet::launch::testing
