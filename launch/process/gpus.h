// Which GPUs the ranks of a node are given.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"

namespace fleet::launch {

// What CUDA shows a process: the entries of CUDA_VISIBLE_DEVICES where it is set, else the numbers
// of the driver's devices, files nvidia0, nvidia1 … of the folder. Nothing where neither says
// anything: a driver may have other files.
std::optional<std::vector<std::string>> visible_gpus(const Environment& environment,
                                                     const std::string& devices = "/dev");

// The GPUs that a comma-separated list asks for, or "all", as entries of CUDA_VISIBLE_DEVICES.
// `option` is named in errors. Throws UsageError for one that is not visible, one that is named
// twice, and a list of none. A number is taken as it is where it is not known what is visible.
std::vector<std::string> select_gpus(const std::string& list, const std::string& option,
                                     const std::optional<std::vector<std::string>>& visible);

// Of the rank at this position of the node: CUDA_VISIBLE_DEVICES with the GPUs of all its ranks,
// and FLAGS_selected_gpus, the rank's own among them, as CUDA numbers them.
Environment gpu_variables(const std::vector<std::string>& gpus, size_t rank);

}  // namespace fleet::launch
