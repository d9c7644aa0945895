#include "benchmarks/peers/python.h"

#include <cstdlib>
#include <sstream>

#include "base/error.h"
#include "base/strings.h"
#include "benchmarks/harness/process.h"

namespace fleet::benchmarks {

std::string python() {
  const char* chosen = std::getenv("FLEET_BENCH_PYTHON");
  return chosen == nullptr || *chosen == '\0' ? "python3" : chosen;
}

PythonPackage pytorch() {
  return {.module = "torch", .name = "PyTorch", .install = "torch"};
}

PythonPackage jax() {
  return {.module = "jax", .name = "JAX", .install = "jax"};
}

std::string missing(const PythonPackage& package) {
  const auto import = str_cat("import ", package.module);
  if (run_process({"/usr/bin/env", python(), "-c", import}).exit_code == 0) return "";
  return str_cat(package.name, " is not installed for ", python(), " (pip install ",
                 package.install, ")");
}

std::string peer_file(const std::string& program) {
  return str_cat(FLEET_BENCH_PEERS, "/", program);
}

std::vector<double> run_python(const std::string& program,
                               const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {python(), peer_file(program)};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  const auto result = run_to_success(argv, {"OMP_NUM_THREADS=1", "MKL_NUM_THREADS=1"});
  std::istringstream text(result.output);
  std::vector<double> numbers;
  for (double number = 0; text >> number;) numbers.push_back(number);
  if (!numbers.empty()) return numbers;
  throw_error(ErrorCode::kInternal,
              {.what = "a peer printed no number", .where = join(argv, " "), .got = result.output});
}

}  // namespace fleet::benchmarks
