// Figures that lie in the tree: what peers are known to reach, and the best that this project
// reached of what has a fixed limit. They tell a measurement that went wrong, and a regression
// below a generous limit.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace fleet::benchmarks {

// "avx512" or "avx2".
std::string instruction_set();
// The processor's name with its family and model, as /proc/cpuinfo says them.
std::string processor_name();

class Stored {
 public:
  Stored() = default;
  // Reads a file of this form; throws ResourceError for any other:
  //   {"peers": {"<instruction set or processor>": {"<row>": {"<peer>": <value>}}},
  //    "best": {"<processor>": {"<row>": <value>}}}
  static Stored read(const std::filesystem::path& file);
  void write(const std::filesystem::path& file) const;

  // What the row's peer is known to reach there.
  std::optional<double> peer(const std::string& machine, const std::string& row,
                             const std::string& peer) const;
  // The best of a row on that processor.
  std::optional<double> best(const std::string& processor, const std::string& row) const;
  void set_peer(const std::string& machine, const std::string& row, const std::string& peer,
                double value);
  void set_best(const std::string& processor, const std::string& row, double value);

 private:
  using Values = std::map<std::string, double>;
  std::map<std::string, std::map<std::string, Values>> peers_;
  std::map<std::string, Values> best_;
};

}  // namespace fleet::benchmarks
