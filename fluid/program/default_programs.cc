#include "fluid/program/default_programs.h"

#include <map>
#include <utility>

namespace fleet::fluid {
namespace {

struct Defaults {
  Program own_main;
  Program own_startup;
  Program* main = &own_main;
  Program* startup = &own_startup;
};

Defaults& defaults() {
  thread_local Defaults state;
  return state;
}

using Counters = std::map<std::string, int, std::less<>>;

Counters& counters() {
  thread_local Counters state;
  return state;
}

}  // namespace

Program& default_main_program() {
  return *defaults().main;
}
Program& default_startup_program() {
  return *defaults().startup;
}

void set_default_programs(Program& main, Program& startup) {
  defaults().main = &main;
  defaults().startup = &startup;
}

ProgramGuard::ProgramGuard(Program& main, Program& startup)
    : saved_main_(defaults().main), saved_startup_(defaults().startup) {
  set_default_programs(main, startup);
}

ProgramGuard::~ProgramGuard() {
  set_default_programs(*saved_main_, *saved_startup_);
}

namespace unique_name {

struct Guard::Saved {
  Counters counters;
};

std::string generate(std::string_view key) {
  Counters& all = counters();
  auto found = all.find(key);
  if (found == all.end()) found = all.emplace(std::string(key), 0).first;
  return std::string(key) + "_" + std::to_string(found->second++);
}

Guard::Guard() : saved_(std::make_unique<Saved>()) {
  std::swap(saved_->counters, counters());
}
Guard::~Guard() {
  std::swap(saved_->counters, counters());
}

}  // namespace unique_name
}  // namespace fleet::fluid
