#include "benchmarks/harness/stored.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strings.h"
#include "tools/json_fields.h"

namespace fleet::benchmarks {
namespace {

const double* find(const std::map<std::string, double>& values, const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? nullptr : &found->second;
}

}  // namespace

std::string instruction_set() {
  return __builtin_cpu_supports("avx512f") ? "avx512" : "avx2";
}

std::string processor_name() {
  std::map<std::string, std::string> facts;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    facts[std::string(trim(line.substr(0, colon)))] = trim(line.substr(colon + 1));
  }
  return str_cat(facts["model name"], ", family ", facts["cpu family"], " model ", facts["model"]);
}

Stored Stored::read(const std::filesystem::path& file) {
  const auto json = nlohmann::json::parse(tools::read_text(file), nullptr, false);
  Stored stored;
  try {
    json.at("peers").get_to(stored.peers_);
    json.at("best").get_to(stored.best_);
  } catch (const nlohmann::json::exception& error) {
    tools::bad_json(file.string(), "an object with \"peers\" and \"best\"", error.what());
  }
  return stored;
}

void Stored::write(const std::filesystem::path& file) const {
  const nlohmann::json json = {{"peers", peers_}, {"best", best_}};
  if (std::ofstream(file) << json.dump(2) << "\n" << std::flush) return;
  throw_error(ErrorCode::kInput, {.what = "a file cannot be written", .where = file.string()});
}

std::optional<double> Stored::peer(const std::string& machine, const std::string& row,
                                   const std::string& peer) const {
  const auto rows = peers_.find(machine);
  if (rows == peers_.end()) return std::nullopt;
  const auto values = rows->second.find(row);
  if (values == rows->second.end()) return std::nullopt;
  const double* value = find(values->second, peer);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<double> Stored::best(const std::string& processor, const std::string& row) const {
  const auto rows = best_.find(processor);
  const double* value = rows == best_.end() ? nullptr : find(rows->second, row);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

void Stored::set_peer(const std::string& machine, const std::string& row, const std::string& peer,
                      double value) {
  peers_[machine][row][peer] = value;
}

void Stored::set_best(const std::string& processor, const std::string& row, double value) {
  best_[processor][row] = value;
}

}  // namespace fleet::benchmarks
