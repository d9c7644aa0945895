#include "tools/explain/read_input.h"

#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/io/atomic_file.h"

namespace fleet::explain {
namespace {

namespace fs = std::filesystem;
using fluid::Program;

constexpr size_t kMostBytes = size_t{1} << 32;
constexpr std::string_view kMain = ".origin_main.json";
constexpr std::string_view kStartup = ".origin_startup.json";
constexpr std::string_view kCluster = ".cluster.json";

Program read_program(const fs::path& file) {
  const auto bytes = fluid::read_whole_file(file, kMostBytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  auto program =
      text.starts_with('{') ? Program::from_json(text) : Program::from_bytes(std::span(bytes));
  if (program.ok()) return std::move(program).value();
  ErrorText problem = program.status().text();
  problem.where = "file " + file.string();
  throw_error(program.status().code(), std::move(problem));
}

Program read_local(const fs::path& file) {
  Program program = read_program(file);
  if (!program.distribution().is_distributed) return program;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "this program has been transpiled already",
               .where = "file " + file.string(),
               .expected = "the local program, as minimize completed it",
               .got = str_cat("a program of ", program.distribution().trainers, " trainers"),
               .fix = "give the file that ends in .origin_main.json, or the folder"});
}

// "worker_0" of "worker_0.origin_main.json", by its suffix.
std::set<std::string> processes_with(const fs::path& folder, std::string_view suffix) {
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(suffix)) found.insert(name.substr(0, name.size() - suffix.size()));
  }
  return found;
}

// Workers before servers.
std::string first_of(const std::set<std::string>& processes) {
  return processes.empty()                ? std::string()
         : *processes.rbegin() < "worker" ? *processes.begin()
                                          : *processes.lower_bound("worker");
}

std::string process_name(const std::string& dumped, bool with_servers) {
  const std::string index = dumped.substr(dumped.find('_') + 1);
  if (dumped.starts_with("server")) return "server " + index;
  return (with_servers ? "trainer " : "rank ") + index;
}

Input read_folder(const fs::path& folder) {
  const std::string process = first_of(processes_with(folder, kMain));
  if (process.empty()) {
    throw_error(ErrorCode::kInput,
                {.what = "there is no program to explain in this folder",
                 .where = "folder " + folder.string(),
                 .expected = str_cat("a file <process>", kMain),
                 .got = "none",
                 .fix = "run the job with FLEET_DUMP_PROGRAM set to the folder"});
  }
  Input input;
  input.title = folder.filename().empty() ? folder.parent_path().filename().string()
                                          : folder.filename().string();
  input.main = read_local(folder / str_cat(process, kMain));
  input.startup = read_program(folder / str_cat(process, kStartup));
  const fs::path job = folder / str_cat(process, kCluster);
  if (fs::exists(job)) input.job = strategies::read_job(job);
  if (!input.job || !input.job->config) return input;
  const bool with_servers = input.job->servers > 0;
  for (const std::string& dumped : processes_with(folder, ".main.json")) {
    input.ran.emplace(process_name(dumped, with_servers),
                      read_program(folder / (dumped + ".main.json")));
  }
  return input;
}

}  // namespace

Input read_input(const fs::path& path, const fs::path& startup) {
  Input input;
  if (fs::is_directory(path)) {
    input = read_folder(path);
  } else {
    input.main = read_local(path);
    const std::string name = path.filename().string();
    const bool dumped = name.ends_with(kMain);
    input.title = dumped ? name.substr(0, name.size() - kMain.size()) : path.stem().string();
    if (dumped) {
      const fs::path beside = path.parent_path() / (input.title + std::string(kStartup));
      if (fs::exists(beside)) input.startup = read_program(beside);
    }
  }
  if (!startup.empty()) input.startup = read_local(startup);
  return input;
}

}  // namespace fleet::explain
