#include "launch/process/gpus.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::launch {
namespace {

using Names = std::vector<std::string>;

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

std::string expected_list(const std::optional<Names>& visible) {
  return visible ? "some of " + join(*visible, ",") + ", or all" : "numbers separated by commas";
}

bool is_visible(const std::string& gpu, const std::optional<Names>& visible) {
  if (visible) return std::find(visible->begin(), visible->end(), gpu) != visible->end();
  const auto number = parse_int(gpu);
  return number && *number >= 0;
}

}  // namespace

std::optional<Names> visible_gpus(const Environment& environment, const std::string& devices) {
  Names gpus;
  // Set to nothing it hides all of them.
  const auto& variables = environment.all();
  if (const auto listed = variables.find("CUDA_VISIBLE_DEVICES"); listed != variables.end()) {
    for (const std::string& entry : split(listed->second, ',')) {
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
  if (gpus.empty()) return std::nullopt;
  return gpus;
}

Names select_gpus(const std::string& list, const std::string& option,
                  const std::optional<Names>& visible) {
  const std::string wanted(trim(list));
  if (wanted == "all" && !visible) refuse("no GPU was found", option, "a GPU", "none");
  if (visible && visible->empty()) {
    refuse("CUDA_VISIBLE_DEVICES hides all GPUs", option, "a variable that names some, or none",
           "'" + wanted + "'");
  }
  if (wanted == "all") return *visible;
  if (wanted.empty()) refuse("no GPU is named", option, expected_list(visible), "''");
  Names gpus;
  for (const std::string& entry : split(wanted, ',')) {
    const std::string gpu(trim(entry));
    if (!is_visible(gpu, visible)) {
      refuse("there is no such GPU here", option, expected_list(visible), "'" + gpu + "'");
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
