#include "benchmarks/engine/torch_peer.h"

#include <filesystem>
#include <functional>
#include <sstream>

#include "base/error.h"
#include "base/strings.h"
#include "benchmarks/harness/process.h"

namespace fleet::benchmarks {
namespace {

constexpr const char* kOpenMpBlas = "/usr/lib/x86_64-linux-gnu/openblas-openmp";
constexpr const char* kFirst = "torch_steps";
constexpr const char* kSecond = "torch2_steps";

bool there(const std::string& program) {
  return std::filesystem::exists(program_folder() + "/" + program);
}

// Ways of a net to compute the same (torch/torch_steps.cc).
std::vector<std::string> forms_of(const std::string& net, const std::string& program) {
  if (net == "lenet" || net == "resnet20") return {"plain", "channels_last"};
  if (net == "lm_vocab30k") return {"plain", "sparse"};
  if (net == "ctr_dnn_one_table" || net == "ctr_dnn_26_tables") return {"sparse", "rows"};
  if (net == "lstm_ragged") return {"plain", "padded"};
  if (net == "transformer" && program == kSecond) return {"plain", "fused"};
  return {"plain"};
}

void add_debian(const Step& step, const std::string& form, std::vector<TorchSetup>& setups) {
  const TorchSetup setup = {.program = kFirst, .own_threads = step.threads, .form = form};
  setups.push_back(setup);
  if (std::filesystem::exists(kOpenMpBlas)) {
    setups.push_back(setup);
    setups.back().openmp_blas = true;
    setups.back().blas_threads = step.threads;
  }
  if (step.threads > 1) {
    setups.push_back({.program = kFirst, .blas_threads = step.threads, .form = form});
  }
}

std::string output_of(const Step& step, const TorchSetup& setup, const std::string& seconds) {
  std::vector<std::string> environment = {str_cat("OMP_NUM_THREADS=", setup.own_threads),
                                          str_cat("MKL_NUM_THREADS=", setup.own_threads),
                                          str_cat("OPENBLAS_NUM_THREADS=", setup.blas_threads)};
  if (setup.keeps_memory) {
    // The largest that it takes, and more than a step needs.
    environment.emplace_back("MALLOC_MMAP_THRESHOLD_=33554432");
    environment.emplace_back("MALLOC_TRIM_THRESHOLD_=4294967296");
  }
  if (setup.openmp_blas) environment.push_back(str_cat("LD_LIBRARY_PATH=", kOpenMpBlas));
  return run_to_success(
             {program_folder() + "/" + setup.program, step.net, std::to_string(step.rows),
              std::to_string(setup.own_threads), seconds, setup.form},
             environment)
      .output;
}

[[noreturn]] void no_numbers(const TorchSetup& setup) {
  throw_error(ErrorCode::kInternal,
              {.what = "the LibTorch peer printed no numbers", .where = setup.text()});
}

TorchSetup greatest(const std::vector<TorchSetup>& setups,
                    const std::function<double(const TorchSetup&)>& worth) {
  const TorchSetup* best = nullptr;
  double most = 0;
  for (const TorchSetup& setup : setups) {
    const double here = worth(setup);
    if (best != nullptr && here <= most) continue;
    best = &setup;
    most = here;
  }
  return *best;
}

}  // namespace

std::string TorchSetup::text() const {
  return str_cat(program, ", ", own_threads, " threads and ", blas_threads, " of its BLAS",
                 openmp_blas ? " (OpenMP)" : "", ", ", form, keeps_memory ? ", memory kept" : "");
}

std::vector<TorchSetup> torch_setups(const Step& step) {
  std::vector<TorchSetup> setups;
  if (there(kFirst)) {
    for (const std::string& form : forms_of(step.net, kFirst)) add_debian(step, form, setups);
  }
  if (there(kSecond)) {
    for (const std::string& form : forms_of(step.net, kSecond)) {
      setups.push_back({.program = kSecond, .own_threads = step.threads, .form = form});
    }
  }
  return setups;
}

Rate torch_rate(const Step& step, const TorchSetup& setup, double seconds) {
  std::istringstream text(output_of(step, setup, std::to_string(seconds)));
  Rate rate;
  if (text >> rate.wall >> rate.processor) return rate;
  no_numbers(setup);
}

TorchSetup fastest(const Step& step, const std::vector<TorchSetup>& setups, double seconds) {
  std::vector<TorchSetup> all = setups;
  for (TorchSetup setup : setups) {
    setup.keeps_memory = true;
    all.push_back(setup);
  }
  return greatest(all,
                  [&](const TorchSetup& setup) { return torch_rate(step, setup, seconds).wall; });
}

double torch_peak_kilobytes(const Step& step, const TorchSetup& setup) {
  if (const auto kilobytes = parse_double(trim(output_of(step, setup, "peak")))) return *kilobytes;
  no_numbers(setup);
}

TorchSetup leanest(const Step& step, const std::vector<TorchSetup>& setups) {
  return greatest(setups,
                  [&](const TorchSetup& setup) { return -torch_peak_kilobytes(step, setup); });
}

std::string setup_note(const TorchSetup& best, size_t of) {
  return str_cat(
      "the best of ", of, " ways: ", best.text(),
      there(kSecond) ? "" : "; without PyTorch 2, which is not installed (pip install torch)");
}

}  // namespace fleet::benchmarks
