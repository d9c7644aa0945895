// Which ops run on a device and which on the host, and what is copied between the two.
#pragma once

#include <string>
#include <vector>

#include "tools/explain/explain.h"

namespace fleet::explain {

// Fills Explanation::places for the local program and the trainer's, as they are in `out`. Ops of
// `unknown` types have no kernels but on the CPU.
void place_ops(const ExplainOptions& options, const std::vector<std::string>& unknown,
               Explanation& out);

// How many ops run where and why, and what crosses in a step.
std::vector<std::string> place_sentences(const ProgramPlaces& places);
// Of a copy: "4.0 kB", or that shapes do not tell.
std::string copied_bytes(const OpAtPlace& copy);

}  // namespace fleet::explain
