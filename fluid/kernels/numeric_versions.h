// What the bits of results depend on beside the program.
#pragma once

#include <map>
#include <string>

namespace fleet::fluid {

// By name: Fleet's version and build (the linker's build id of the program or library that it is
// part of), the vector loops it uses, oneDNN's version and instruction set, DNNL_MAX_CPU_ISA, and
// the C library, whose mathematical functions are used.
std::map<std::string, std::string> numeric_versions();

}  // namespace fleet::fluid
