// Two network namespaces joined by a link of a chosen speed, and what happens on it. Needs root.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fleet::benchmarks {

// Two hosts, 10.77.0.1 and 10.77.0.2; each sends to the other at no more than the rate, which a
// token bucket keeps. They go away with the object.
class ShapedNetwork {
 public:
  // Throws when this process may not make namespaces.
  explicit ShapedNetwork(int megabits);
  ~ShapedNetwork();
  ShapedNetwork(const ShapedNetwork&) = delete;
  ShapedNetwork& operator=(const ShapedNetwork&) = delete;

  static constexpr const char* kFirstAddress = "10.77.0.1";
  static constexpr const char* kSecondAddress = "10.77.0.2";

  // For a shell: runs what follows on that host.
  std::string on_first() const { return "ip netns exec " + first_ + " "; }
  std::string on_second() const { return "ip netns exec " + second_ + " "; }

 private:
  void remove() const;

  std::string first_;
  std::string second_;
};

// What a process and its host's links did over time. Seconds are those of the steady clock.
struct TrafficSample {
  double at = 0;
  uint64_t received = 0;  // bytes since the namespace was made
  uint64_t sent = 0;
  uint64_t cpu_ns = 0;  // of the process
};

TrafficSample sample_traffic(int process);

}  // namespace fleet::benchmarks
