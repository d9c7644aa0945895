#include "launch/process/gpus.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::launch {
namespace {

constexpr std::string_view kDevicePrefix = "nvidia";

bool is_device(const std::string& file) {
  return file.starts_with(kDevicePrefix) && parse_int(file.substr(kDevicePrefix.size()));
}

[[noreturn]] void refuse(std::string what, const std::string& option, std::string expected,
                         const std::string& got) {
  throw_error(ErrorCode::kInvalidArgument, {.what = std::move(what),
                                            .where = option,
                                            .expected = std::move(expected),
                                            .got = got,
                                            .fix = "name GPUs that nvidia-smi lists and "
                                                   "CUDA_VISIBLE_DEVICES does not hide"});
}

}  // namespace

std::vector<std::string> visible_gpus(const Environment& environment, const std::string& devices) {
  std::vector<std::string> gpus;
  if (const auto listed = environment.get("CUDA_VISIBLE_DEVICES")) {
    for (const std::string& entry : split(*listed, ',')) {
      const std::string gpu(trim(entry));
      // CUDA sees nothing behind an entry that names no device.
      if (gpu.empty() || gpu.starts_with('-') || gpu == "NoDevFiles") break;
      gpus.push_back(gpu);
    }
    return gpus;
  }
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(devices, ignored)) {
    if (is_device(entry.path().filename().string())) gpus.push_back(str_cat(gpus.size()));
  }
  return gpus;
}

std::vector<std::string> select_gpus(const std::string& list, const std::string& option,
                                     const std::vector<std::string>& visible) {
  if (list == "all" && !visible.empty()) return visible;
  if (list == "all") refuse("this machine has no GPU", option, "a GPU", "none");
  std::vector<std::string> gpus;
  for (const std::string& entry : split(list, ',')) {
    const std::string gpu(trim(entry));
    const bool known = visible.empty()
                           ? parse_int(gpu).has_value()
                           : std::find(visible.begin(), visible.end(), gpu) != visible.end();
    if (!known) {
      refuse("there is no such GPU here", option,
             visible.empty() ? "numbers separated by commas, or all"
                             : "some of " + join(visible, ",") + ", or all",
             "'" + gpu + "'");
    }
    if (std::find(gpus.begin(), gpus.end(), gpu) != gpus.end()) {
      refuse("a GPU is named twice", option, "each GPU once", "'" + list + "'");
    }
    gpus.push_back(gpu);
  }
  return gpus;
}

Environment gpu_variables(const std::vector<std::string>& gpus, size_t rank) {
  return Environment(
      {{"CUDA_VISIBLE_DEVICES", join(gpus, ",")}, {"FLAGS_selected_gpus", str_cat(rank)}});
}

}  // namespace fleet::launch
