// Peers that are Python programs, in this folder.
#pragma once

#include <string>
#include <vector>

namespace fleet::benchmarks {

// What they run with: FLEET_BENCH_PYTHON, else python3.
std::string python();

struct PythonPackage {
  std::string module;
  std::string name;     // as people call it
  std::string install;  // pip's name of it
};
PythonPackage pytorch();
PythonPackage jax();

// Why peers in it cannot run; empty when they can.
std::string missing(const PythonPackage& package);

// The path of one of the programs.
std::string peer_file(const std::string& program);
// Runs one of the programs, with one OpenMP thread a process, and returns the numbers that it
// printed. Throws when it fails or prints none.
std::vector<double> run_python(const std::string& program,
                               const std::vector<std::string>& arguments);

}  // namespace fleet::benchmarks
