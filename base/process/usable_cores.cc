#include "base/process/usable_cores.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sched.h>
#include <sstream>
#include <unistd.h>

#include "base/strings.h"

namespace fleet {
namespace {

// Of a job, on this machine.
struct LocalProcesses {
  int count = 1;
  int index = 0;
  bool may_be_bound = false;  // to some of the machine's cores each
};

std::optional<int> number(const Environment& environment, std::string_view name) {
  const auto text = environment.get(name);
  const auto value = text ? parse_int(*text) : std::nullopt;
  if (!value || *value < 0 || *value > 1'000'000) return std::nullopt;
  return static_cast<int>(*value);
}

std::optional<LocalProcesses> numbered(const Environment& environment, std::string_view count_name,
                                       std::string_view index_name, bool may_be_bound) {
  const auto count = number(environment, count_name);
  if (!count || *count < 1) return std::nullopt;
  const int index = number(environment, index_name).value_or(0);
  return LocalProcesses{*count, std::min(index, *count - 1), may_be_bound};
}

// "4(x2),3": four tasks on each of the first two nodes, three on the next.
std::optional<int> tasks_of_node(std::string_view list, int node) {
  for (const std::string& entry : split(list, ',')) {
    const size_t bracket = entry.find("(x");
    const auto tasks = parse_int(std::string_view(entry).substr(0, bracket));
    const auto nodes =
        bracket == std::string::npos
            ? 1
            : parse_int(std::string_view(entry).substr(bracket + 2, entry.find(')') - bracket - 2));
    if (!tasks || !nodes) return std::nullopt;
    if (node < *nodes) return static_cast<int>(*tasks);
    node -= static_cast<int>(*nodes);
  }
  return std::nullopt;
}

std::optional<LocalProcesses> slurm_tasks(const Environment& environment) {
  const auto list = environment.get("SLURM_STEP_TASKS_PER_NODE");
  const auto node = number(environment, "SLURM_NODEID");
  if (!list || !node) return std::nullopt;
  const auto count = tasks_of_node(*list, *node);
  if (!count || *count < 1) return std::nullopt;
  const int index = number(environment, "SLURM_LOCALID").value_or(0);
  return LocalProcesses{*count, std::min(index, *count - 1), true};
}

std::string host_of(const std::string& endpoint) {
  return endpoint.substr(0, endpoint.rfind(':'));
}

std::optional<LocalProcesses> listed(const Environment& environment) {
  const auto list = environment.get("PADDLE_TRAINER_ENDPOINTS");
  const auto own = environment.get("PADDLE_CURRENT_ENDPOINT");
  if (!list || !own) return std::nullopt;
  LocalProcesses here{.count = 0};
  for (const std::string& endpoint : split(*list, ',')) {
    if (endpoint == *own) here.index = here.count;
    if (host_of(endpoint) == host_of(*own)) ++here.count;
  }
  if (here.count < 1) return std::nullopt;
  return here;
}

LocalProcesses local_processes(const Environment& environment) {
  if (auto set = numbered(environment, "FLEET_LOCAL_PROCESSES", "FLEET_LOCAL_INDEX", false)) {
    return *set;
  }
  if (auto mpi =
          numbered(environment, "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", true)) {
    return *mpi;
  }
  if (auto torchrun = numbered(environment, "LOCAL_WORLD_SIZE", "LOCAL_RANK", false)) {
    return *torchrun;
  }
  if (auto tasks = slurm_tasks(environment)) return *tasks;
  return listed(environment).value_or(LocalProcesses{});
}

// How many processes run on the same cores, where each is bound to so many of the machine's or all
// to none.
int sharers(const LocalProcesses& here, const Cores& cores, int of_machine) {
  if (!here.may_be_bound) return here.count;
  const auto bound = static_cast<int64_t>(cores.usable.size());
  const int64_t all = std::max<int64_t>(of_machine, bound);
  return static_cast<int>((here.count * bound + all - 1) / all);
}

std::string first_line(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// The least quota of this process's control group and those above it.
int quota_of_process() {
  std::ifstream groups("/proc/self/cgroup");
  std::string path;
  for (std::string line; std::getline(groups, line);) {
    if (line.starts_with("0::")) path = line.substr(3);
  }
  int least = 0;
  while (true) {
    const int quota = quota_of(first_line("/sys/fs/cgroup" + path + "/cpu.max"));
    if (quota > 0) least = least == 0 ? quota : std::min(least, quota);
    if (path.empty()) return least;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

std::vector<int> cores_to_run_on() {
  for (int room = CPU_SETSIZE; room <= (1 << 20); room *= 2) {
    cpu_set_t* const set = CPU_ALLOC(static_cast<size_t>(room));
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(room));
    CPU_ZERO_S(bytes, set);
    const bool fits = sched_getaffinity(0, bytes, set) == 0;
    std::vector<int> cores;
    for (int core = 0; fits && core < room; ++core) {
      if (CPU_ISSET_S(static_cast<size_t>(core), bytes, set)) cores.push_back(core);
    }
    CPU_FREE(set);
    if (fits) return cores;
  }
  return {0};
}

}  // namespace

int quota_of(const std::string& cpu_max) {
  std::istringstream in(cpu_max);
  double time = 0;
  double period = 0;
  if (!(in >> time >> period) || time <= 0 || period <= 0) return 0;
  return std::max(1, static_cast<int>(time / period));
}

Cores Cores::of_process() {
  // Files that are read once; who makes many executors asks as often.
  static const int kQuota = quota_of_process();
  static const auto kOfMachine = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  return {.usable = cores_to_run_on(), .quota = kQuota, .of_machine = kOfMachine};
}

int Cores::count() const {
  const auto all = static_cast<int>(std::max<size_t>(1, usable.size()));
  return quota > 0 ? std::min(all, quota) : all;
}

int usable_cores() {
  return Cores::of_process().count();
}

CoreShare core_share(const Environment& environment, const Cores& cores) {
  const LocalProcesses here = local_processes(environment);
  // Slurm's job may have a part of the machine.
  const int of_machine = std::min(
      cores.of_machine, number(environment, "SLURM_CPUS_ON_NODE").value_or(cores.of_machine));
  const int among = std::max(1, sharers(here, cores, of_machine));
  CoreShare share{.count = std::max(1, cores.count() / among)};
  const bool known = among == 1 || among == here.count;
  const auto size = static_cast<size_t>(share.count);
  const size_t first = among == 1 ? 0 : static_cast<size_t>(here.index) * size;
  const bool limited = cores.count() < static_cast<int>(cores.usable.size());
  if (!known || limited || first + size > cores.usable.size()) return share;
  const auto begin = cores.usable.begin() + static_cast<std::ptrdiff_t>(first);
  share.cores.assign(begin, begin + share.count);
  return share;
}

}  // namespace fleet
