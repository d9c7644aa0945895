// What tests of whole jobs look at.
#pragma once

#include <gtest/gtest.h>
#include <set>
#include <string>
#include <vector>

#include "base/strings.h"
#include "launch/process/process_tree.h"
#include "tests/launch/launcher_process.h"

namespace fleet::launch::testing {

// Every process of a job has the mailbox of its test in its environment.
inline void expect_nothing_left(const Workplace& place) {
  for (const pid_t pid : marked_processes("MAILBOX=" + place.path("mailbox"))) {
    EXPECT_TRUE(gone(pid)) << pid;
  }
}

// The values of NAME=value lines of a log, in order.
inline std::vector<std::string> values_in(const std::string& log, const std::string& name) {
  std::vector<std::string> values;
  for (const std::string& line : split(log, '\n')) {
    if (line.starts_with(name + "=")) values.push_back(line.substr(name.size() + 1));
  }
  return values;
}

inline void expect_all_different(const std::vector<std::string>& values, size_t count) {
  EXPECT_EQ(values.size(), count) << join(values, " ");
  EXPECT_EQ(std::set<std::string>(values.begin(), values.end()).size(), values.size())
      << join(values, " ");
}

}  // namespace fleet::launch::testing
