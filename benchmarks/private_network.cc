#include "benchmarks/private_network.h"

#include <exception>
#include <fstream>
#include <net/if.h>
#include <sched.h>
#include <sstream>
#include <string>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "base/error.h"

namespace fleet::benchmarks {
namespace {

// Of the calling thread and of what it starts.
bool enter_private_network() {
  if (unshare(CLONE_NEWNET) != 0) return false;
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq loopback = {};
  loopback.ifr_name[0] = 'l';
  loopback.ifr_name[1] = 'o';
  bool up = fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &loopback) == 0;
  loopback.ifr_flags |= IFF_UP;
  up = up && ioctl(fd, SIOCSIFFLAGS, &loopback) == 0;
  if (fd >= 0) close(fd);
  return up;
}

double loopback_bytes() {
  std::ifstream devices("/proc/thread-self/net/dev");
  for (std::string line; std::getline(devices, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.find("lo:") == std::string::npos) continue;
    std::istringstream fields(line.substr(colon + 1));
    double received = 0;
    fields >> received;
    return received;
  }
  throw_error(ErrorCode::kInternal, {.what = "the kernel counts no bytes of a loopback"});
}

}  // namespace

bool can_count_bytes() {
  bool can = false;
  std::thread([&can] { can = enter_private_network(); }).join();
  return can;
}

double bytes_sent_by(const std::function<void()>& job) {
  double bytes = 0;
  std::exception_ptr failure;
  std::thread([&] {
    try {
      if (!enter_private_network()) {
        throw_error(ErrorCode::kInput,
                    {.what = "no network of its own for a job", .fix = "run as root"});
      }
      const double before = loopback_bytes();
      job();
      bytes = loopback_bytes() - before;
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
  return bytes;
}

}  // namespace fleet::benchmarks
