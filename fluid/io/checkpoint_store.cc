#include "fluid/io/checkpoint_store.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/io/atomic_file.h"

namespace fleet::fluid::io {
namespace {

using std::filesystem::path;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kUnfinished = ".tmp";
constexpr size_t kDigits = 9;
constexpr const char* kLatest = "latest";
// In place of JOB: what a new one takes the place of, and what is being taken away.
constexpr const char* kBefore = "before";
constexpr const char* kGone = "gone";
constexpr std::string_view kAside = ".aside";

std::string name_of(int64_t step) {
  std::string digits = str_cat(step);
  if (digits.size() < kDigits) digits.insert(0, kDigits - digits.size(), '0');
  return str_cat(kPrefix, digits);
}

// Nothing for any other name than name_of gives.
std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || step < 0 || name != name_of(step)) return std::nullopt;
  return step;
}

// The step of "step-000000400.JOB.tmp".
std::optional<int64_t> unfinished_step_of(std::string_view name) {
  if (!name.ends_with(kUnfinished)) return std::nullopt;
  name.remove_suffix(kUnfinished.size());
  const size_t dot = name.find('.');
  return dot == std::string_view::npos ? std::nullopt : step_of(name.substr(0, dot));
}

// Folders in the root to which `step` gives one, the newest first.
std::vector<StoredCheckpoint> folders_in(
    const path& root, FileSystem& files,
    const std::function<std::optional<int64_t>(const path&)>& step) {
  std::vector<StoredCheckpoint> found;
  for (const path& folder : files.folders_in(root)) {
    if (const auto number = step(folder)) found.push_back({*number, folder});
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a.step != b.step ? a.step > b.step : a.folder < b.folder;
  });
  return found;
}

void throw_if(const std::error_code& error, const char* what, const path& where) {
  if (!error) return;
  throw_error(ErrorCode::kInput, {.what = what,
                                  .where = where.string(),
                                  .expected = {},
                                  .got = error.message(),
                                  .fix = "check the path, its permissions and the free space"});
}

// With the names of those that it is in: who made them may have ended before they were synced.
void sync_with_parents(path folder, FileSystem& files) {
  while (true) {
    static_cast<void>(files.sync_folder(folder.empty() ? "." : folder));
    if (folder.empty() || folder == folder.root_path()) return;
    folder = folder.parent_path();
  }
}

bool is_finite(const path& folder, FileSystem& files) {
  const auto reader = CheckpointReader::open(folder, files);
  return reader.ok() && reader.value().finite();
}

}  // namespace

std::vector<StoredCheckpoint> CheckpointStore::list() const {
  return folders_in(root_, *files_, [this](const path& folder) {
    const bool whole = files_->exists(folder / kCheckpointManifest);
    return whole ? step_of(folder.filename().string()) : std::nullopt;
  });
}

std::vector<StoredCheckpoint> CheckpointStore::list_unfinished() const {
  return folders_in(root_, *files_, [](const path& folder) {
    return unfinished_step_of(folder.filename().string());
  });
}

path CheckpointStore::folder_of(int64_t step) const {
  return root_ / name_of(step);
}

path CheckpointStore::unfinished(int64_t step, const std::string& job) const {
  return root_ / str_cat(name_of(step), ".", job, kUnfinished);
}

void CheckpointStore::clean(std::optional<int64_t> before) const {
  for (const StoredCheckpoint& left : list_unfinished()) {
    if (before && left.step >= *before) continue;
    const path target = folder_of(left.step);
    if (left.folder == unfinished(left.step, kBefore) && !files_->exists(target)) {
      static_cast<void>(files_->rename(left.folder, target));
      continue;
    }
    throw_if(remove(left.folder), "what is left of a checkpoint cannot be taken away", left.folder);
  }
}

// Takes the place of what is there, if anything: at once where the file system can, else that has
// another name meanwhile.
void CheckpointStore::put(const path& unfinished, int64_t step) const {
  const path target = folder_of(step);
  const path before = this->unfinished(step, kBefore);
  if (files_->exists(target)) {
    if (!files_->exchange(unfinished, target)) {
      static_cast<void>(remove(unfinished));
      return;
    }
    static_cast<void>(files_->rename(target, before));
  }
  throw_if(files_->rename(unfinished, target), "a checkpoint cannot be renamed into place", target);
  static_cast<void>(remove(before));
}

// Else what looks like a checkpoint could have lost a part.
std::error_code CheckpointStore::remove(const path& renamed) const {
  if (!files_->exists(renamed)) return {};
  static_cast<void>(files_->sync_folder(root_));
  return files_->remove_all(renamed);
}

Status CheckpointStore::commit(const path& unfinished, const CheckpointInfo& info, int parts,
                               const CheckpointRetention& retention) const {
  write_checkpoint_manifest(unfinished, info, parts, *files_);
  put(unfinished, info.step);
  sync_with_parents(root_, *files_);
  try {
    const std::string name = name_of(info.step) + "\n";
    write_file_atomically(root_ / kLatest, std::as_bytes(std::span(name)), *files_);
    retain(retention, info.step);
    // Parts of the next one may be there.
    clean(info.step);
  } catch (const ResourceError& error) {
    return {error.code(), error.text()};
  }
  return {};
}

void CheckpointStore::set_aside(int64_t step) const {
  for (const StoredCheckpoint& stored : list()) {
    if (stored.step <= step) continue;
    path aside;
    for (int number = 0; aside.empty() || files_->exists(aside); ++number) {
      aside = root_ / str_cat(name_of(stored.step), kAside, number == 0 ? "" : str_cat(number));
    }
    throw_if(files_->rename(stored.folder, aside), "a checkpoint cannot be renamed", stored.folder);
  }
}

void CheckpointStore::retain(const CheckpointRetention& retention, int64_t written) const {
  if (retention.keep <= 0) return;
  bool has_finite = false;
  int newest = 0;
  for (const StoredCheckpoint& stored : list()) {
    const bool every = retention.keep_every > 0 && stored.step % retention.keep_every == 0;
    const bool stays = newest++ < retention.keep || every || stored.step == written;
    if (stays && has_finite) continue;
    const bool finite = is_finite(stored.folder, *files_);
    if (!stays && (has_finite || !finite)) {
      // Its name first, so that no part of it looks like a whole one.
      const path gone = unfinished(stored.step, kGone);
      std::error_code error = files_->rename(stored.folder, gone);
      if (!error) error = remove(gone);
      throw_if(error, "an old checkpoint cannot be taken away", stored.folder);
    }
    has_finite = has_finite || finite;
  }
}

}  // namespace fleet::fluid::io
