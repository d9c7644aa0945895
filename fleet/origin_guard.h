// Marks a program that was rewritten for a distributed job and must not be run itself.
#pragma once

#include "fluid/program/runtime.h"

namespace fleet {

class OriginGuard final : public fluid::ProgramRuntime {
 public:
  const char* refusal() const override {
    return "this is the program before it was rewritten for the job; run "
           "fluid::default_main_program() after minimize, or a clone for test of this one";
  }
};

}  // namespace fleet
