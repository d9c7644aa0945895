// The programs that layers append to, and the names that they make up; both per thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "fluid/program/program.h"

namespace fleet::fluid {

// This thread's default programs; they live as long as the thread, or as the guard that set them.
Program& default_main_program();
Program& default_startup_program();

// Makes two programs the defaults of this thread while it lives. The programs must outlive it.
class ProgramGuard {
 public:
  ProgramGuard(Program& main, Program& startup);
  ~ProgramGuard();
  ProgramGuard(const ProgramGuard&) = delete;
  ProgramGuard& operator=(const ProgramGuard&) = delete;

 private:
  Program* saved_main_;
  Program* saved_startup_;
};

// Swaps the defaults of this thread for good and returns nothing; the programs must outlive the
// thread's use of them. For fleet's minimize, which makes the rewritten programs the defaults.
void set_default_programs(Program& main, Program& startup);

namespace unique_name {

// "fc_0", then "fc_1", …: the key with the number of times that this thread asked for it.
std::string generate(std::string_view key);

// Starts counting anew while it lives.
class Guard {
 public:
  Guard();
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

}  // namespace unique_name
}  // namespace fleet::fluid
