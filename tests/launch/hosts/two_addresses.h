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

// What a program does that makes checkpoints: it says so, and saves when it is told to end.
constexpr const char* kSavingScript = R"(
if [ $me = server ]; then
  trap 'echo told to end' TERM
  while [ ! -e $MAILBOX.saved.worker0 ] || [ ! -e $MAILBOX.saved.worker1 ]; do sleep 0.05; done
  exit 0
fi
trap 'sleep 0.5; : > $MAILBOX.saved.$me; exit 75' TERM
echo "progress completed=0 saves=1 step=5" >&$FLEET_PROGRESS_FD
say $$; while :; do sleep 0.05; done)";

// Ports that are free on both; what takes one meanwhile fails the test.
class FreePorts {
 public:
  FreePorts() {
    const PortReservation free = PortReservation::any("0.0.0.0", 1);
    port_ = free.endpoints().front().port;
  }
  std::string first() const { return str_cat(port_); }
  uint16_t number() const { return port_; }

 private:
  uint16_t port_;
};

inline std::string command_line_of(pid_t pid) {
  std::ifstream file(str_cat("/proc/", pid, "/cmdline"), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace fleet::launch::testing
