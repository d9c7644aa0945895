// Which server each slice goes to: the built-in methods, and the class to derive one's own from.
//
//   class ByName final : public transpiler::PSDispatcher {
//    public:
//     std::string name() const override { return "ByName"; }
//     std::vector<int> dispatch(std::span<const transpiler::ServerPart> parts,
//                               std::span<const std::string> servers) const override { … }
//   };
//   config.split_method = ByName();
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fluid/core/shape.h"

namespace fleet::transpiler {

// What one server is to have: a slice of a parameter, a whole one, or a statistic.
struct ServerPart {
  std::string name;      // "fc_w.block1"; that of the variable when it is not cut
  std::string variable;  // "fc_w"
  fluid::Shape shape;    // of the part
  int64_t bytes = 0;     // of its value
  // Bytes that a step moves to and from the server for it, and that its update reads there. 0 for
  // tables with sparse gradients: how many rows come is not known before.
  int64_t step_bytes = 0;
};

// Dispatches parts to servers. Every process of a job dispatches by itself: the result must depend
// on the arguments and on nothing else, and processes hold their placements against each other.
// Used by several threads at once.
class PSDispatcher {
 public:
  virtual ~PSDispatcher() = default;
  // For messages and dumps; the processes of a job compare it. None of the built-in names.
  virtual std::string name() const = 0;
  // For each part, the position of its server in `servers`, "host:port", which has one at least.
  // Parts come in the order in which trainers send them. transpile refuses another number of
  // positions, and one that is outside.
  virtual std::vector<int> dispatch(std::span<const ServerPart> parts,
                                    std::span<const std::string> servers) const = 0;
};

// In turns, in the order of the parts.
class RoundRobin final : public PSDispatcher {
 public:
  std::string name() const override { return "RoundRobin"; }
  std::vector<int> dispatch(std::span<const ServerPart> parts,
                            std::span<const std::string> servers) const override;
};

// By a stable hash of the part's name (fnv1a), which does not depend on the other parts.
class HashName final : public PSDispatcher {
 public:
  std::string name() const override { return "HashName"; }
  std::vector<int> dispatch(std::span<const ServerPart> parts,
                            std::span<const std::string> servers) const override;
};

// By work and bytes: the largest part first, each to the server with the least step_bytes so far,
// tables to the one with the fewest bytes (Graham's LPT rule). No server then has more than the
// least loaded one by more than its own last part. The transpiler also moves the cuts of one
// parameter, so that servers come out even (docs/transpiler.md).
class Balanced final : public PSDispatcher {
 public:
  std::string name() const override { return "Balanced"; }
  std::vector<int> dispatch(std::span<const ServerPart> parts,
                            std::span<const std::string> servers) const override;
};

// DistributeTranspilerConfig::split_method: a built-in method by its name or class, or an object of
// a class of one's own, of which copies share one.
class SplitMethod {
 public:
  SplitMethod(std::string name = "RoundRobin") : name_(std::move(name)) {}
  SplitMethod(const char* name) : name_(name) {}
  SplitMethod(std::shared_ptr<const PSDispatcher> dispatcher);  // not null
  template <std::derived_from<PSDispatcher> Dispatcher>
  SplitMethod(Dispatcher dispatcher)
      : SplitMethod(std::shared_ptr<const PSDispatcher>(
            std::make_shared<const Dispatcher>(std::move(dispatcher)))) {}

  const std::string& name() const { return name_; }
  // Null for a name that is no built-in method's.
  const PSDispatcher* dispatcher() const;
  bool is_own() const { return own_ != nullptr; }

  // By name, and objects of one's own by identity.
  bool operator==(const SplitMethod&) const = default;

 private:
  std::string name_;
  std::shared_ptr<const PSDispatcher> own_;
};

// Of the built-in methods.
std::span<const std::string_view> split_method_names();

}  // namespace fleet::transpiler
