// A picture of a worker's steps: when it computed, and what its link carried meanwhile.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/shaped_network.h"

namespace fleet::benchmarks {

struct Timeline {
  std::string title;
  double link_mbit = 1000;
  std::vector<TrafficSample> samples;  // in order of time
  // Begin and end of each step, one after the other, in the samples' seconds.
  std::vector<double> steps;
};

// An SVG file of the last `shown` steps, readable on light and dark backgrounds. False when it
// cannot be written.
bool write_timeline(const Timeline& timeline, int shown, const std::string& path);

}  // namespace fleet::benchmarks
