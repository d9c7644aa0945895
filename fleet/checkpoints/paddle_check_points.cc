#include "fleet/checkpoints/paddle_check_points.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/io/atomic_file.h"
#include "fluid/io/inference_model.h"

namespace fleet {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "__paddle_fleet_checkpoint__.";
constexpr const char* kParameters = "_paddle_fleet_param__";
constexpr const char* kStatus = "fleet_train_status";
constexpr size_t kLongestStatus = 64 * 1024;

fs::path folder_of(const fs::path& root, int64_t number) {
  return root / str_cat(kPrefix, number);
}

std::vector<int64_t> numbers_in(const fs::path& root) {
  std::vector<int64_t> numbers;
  std::error_code error;
  for (fs::directory_iterator at(root, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    int64_t number = -1;
    const char* last = name.data() + name.size();
    const auto read = std::from_chars(name.data() + kPrefix.size(), last, number);
    if (read.ptr == last && read.ec == std::errc() && number >= 0) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

[[noreturn]] void refuse_status(const fs::path& file, const std::string& found) {
  throw_error(ErrorCode::kCorruptFile,
              {.what = "the status of a check point cannot be read",
               .where = file.string(),
               .expected = "JSON with epoch_no, 0 or more",
               .got = found,
               .fix = str_cat("take this check point away; the one before is used then")});
}

int64_t number_at(const nlohmann::json& json, const char* key, int64_t otherwise,
                  const fs::path& file) {
  if (!json.contains(key)) return otherwise;
  if (!json[key].is_number_integer() || json[key].get<int64_t>() < 0) {
    refuse_status(file, str_cat(key, " = ", json[key].dump()));
  }
  return json[key].get<int64_t>();
}

// Paddle's own may lack the file.
TrainStatus read_status(const fs::path& file) {
  if (!fs::exists(file)) return {};
  const auto bytes = fluid::read_whole_file(file, kLongestStatus);
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  const auto json = nlohmann::json::parse(text, text + bytes.size(), nullptr, false);
  if (!json.is_object() || !json.contains("epoch_no")) {
    refuse_status(file, std::string(text, std::min<size_t>(bytes.size(), 80)));
  }
  return {.step = number_at(json, "step", 0, file),
          .epoch_no = number_at(json, "epoch_no", 0, file)};
}

void write(const fluid::Scope& scope, const fluid::Program& program, const fs::path& root,
           const TrainStatus& status) {
  const auto numbers = numbers_in(root);
  const fs::path folder = folder_of(root, numbers.empty() ? 0 : numbers.back() + 1);
  const fs::path unfinished = folder.string() + ".tmp";
  fs::remove_all(unfinished);
  fluid::io::save_paddle_persistables(unfinished, scope, program, kParameters);
  const nlohmann::json json = {{"epoch_no", status.epoch_no}, {"step", status.step}};
  const std::string text = json.dump();
  fluid::write_file_atomically(unfinished / kStatus, std::as_bytes(std::span(text)));
  fs::rename(unfinished, folder);
}

// What the file system says is about the path.
Status outcome_on(const fs::path& root, const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const Error& error) {
    return {error.code(), error.text()};
  } catch (const fs::filesystem_error& error) {
    return {ErrorCode::kInput,
            {.what = "a check point cannot be written",
             .where = root.string(),
             .expected = {},
             .got = error.code().message(),
             .fix = "check the path and the free space"}};
  }
}

}  // namespace

void PaddleCheckPoints::save(fluid::Executor& executor, const fs::path& root,
                             const TrainStatus& status) {
  runtime_.meet_to_save();
  runtime_.begin_saving(executor.scope());
  fluid::Scope gathered(&executor.scope());
  const bool writes = runtime_.gather_persistables(gathered) && first_;
  const Status outcome =
      writes ? outcome_on(root, [&] { write(gathered, origin_, root, status); }) : Status();
  runtime_.end_saving();
  const double failed = outcome.ok() ? 0 : 1;
  const bool all_well = runtime_.all_reduce_training({&failed, 1}).front() == 0;
  outcome.throw_if_error();
  if (all_well) return;
  throw_error(ErrorCode::kInput, {.what = "the first worker could not write a check point",
                                  .where = root.string(),
                                  .expected = "a check point",
                                  .got = "an error there",
                                  .fix = "see the log of the first worker"});
}

std::optional<TrainStatus> PaddleCheckPoints::load(fluid::Executor& executor,
                                                   const fs::path& root) {
  const auto numbers = first_ ? numbers_in(root) : std::vector<int64_t>();
  const double mine = !first_ ? 0 : numbers.empty() ? -1 : static_cast<double>(numbers.back());
  const auto number = static_cast<int64_t>(runtime_.all_reduce_training({&mine, 1}).front());
  if (number < 0) return std::nullopt;
  const fs::path folder = folder_of(root, number);
  const TrainStatus status = read_status(folder / kStatus);
  fluid::io::load_paddle_persistables(folder, executor, origin_, kParameters);
  runtime_.spread_persistables(executor.scope());
  return status;
}

void remove_old_check_points(const fs::path& root, int keep) {
  auto numbers = numbers_in(root);
  const size_t stay = std::min(numbers.size(), static_cast<size_t>(std::max(keep, 1)));
  numbers.resize(numbers.size() - stay);
  const Status outcome = outcome_on(root, [&] {
    for (const int64_t number : numbers) fs::remove_all(folder_of(root, number));
  });
  outcome.throw_if_error();
}

}  // namespace fleet
