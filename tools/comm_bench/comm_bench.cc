#include "tools/comm_bench/comm_bench.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::tools {
namespace {

using transport::CollectiveCommunicator;
using transport::CollectiveToken;
using transport::ElementType;
using transport::ShardLayout;

constexpr int kLeastRepeats = 5;
constexpr int kMostRepeats = 10'000;
constexpr int kWarmUps = 2;

double microseconds(Duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

// One operation on arrays of one size, again and again.
class Repeated {
 public:
  Repeated(CollectiveCommunicator& communicator, const CommBenchOptions& options,
           std::string operation, size_t bytes)
      : communicator_(communicator),
        options_(options),
        operation_(std::move(operation)),
        layout_(communicator.size(), communicator.size()),
        ranks_(static_cast<size_t>(communicator.size())),
        each_(std::max<size_t>(1, bytes / sizeof(float) / ranks_)),
        counts_(ranks_, each_),
        in_(each_ * ranks_),
        out_(each_ * ranks_) {}

  CommRow measure() {
    for (int i = 0; i < kWarmUps; ++i) once();
    check();
    const int repeats = agreed_repeats();
    std::vector<double> times;
    times.reserve(static_cast<size_t>(repeats));
    for (int i = 0; i < repeats; ++i) times.push_back(microseconds(once()));
    std::sort(times.begin(), times.end());
    return row(times);
  }

 private:
  Duration once() {
    std::fill(in_.begin(), in_.end(), 1.0F);
    const TimePoint before = steady_clock().now();
    wait(start());
    return steady_clock().now() - before;
  }

  CollectiveToken start() {
    const transport::CollectiveLabel label{.phase = "fleet-comm-bench"};
    const void* part = in_.data();
    const auto mine = static_cast<size_t>(communicator_.rank()) * each_;
    if (operation_ == "all_reduce") {
      return communicator_.all_reduce(layout_, ElementType::kFloat32, {&part, 1}, out_.data(),
                                      out_.size(), label);
    }
    if (operation_ == "reduce_scatter") {
      return communicator_.reduce_scatter(layout_, ElementType::kFloat32, {&part, 1},
                                          out_.data() + mine, counts_, label);
    }
    if (operation_ == "broadcast") {
      return communicator_.broadcast(std::as_writable_bytes(std::span(in_)), 0, label);
    }
    if (operation_ == "all_gather") {
      return communicator_.all_gather(std::as_bytes(std::span(in_).subspan(mine, each_)),
                                      std::as_writable_bytes(std::span(out_)), label);
    }
    return communicator_.barrier(label);
  }

  void wait(CollectiveToken token) {
    token.wait(steady_clock().now() + options_.timeout).throw_if_error();
  }

  // Sums of ones are the number of ranks.
  void check() const {
    const bool sums = operation_ == "all_reduce" || operation_ == "reduce_scatter";
    if (!sums && operation_ != "all_gather") return;
    const bool scattered = operation_ == "reduce_scatter";
    const size_t begin = scattered ? static_cast<size_t>(communicator_.rank()) * each_ : 0;
    const size_t end = scattered ? begin + each_ : out_.size();
    const float wanted = sums ? static_cast<float>(ranks_) : 1.0F;
    for (size_t i = begin; i < end; ++i) {
      if (out_[i] == wanted) continue;
      throw_error(ErrorCode::kInternal,
                  {.what = "a collective operation gave a wrong result",
                   .where = str_cat(operation_, " at rank ", communicator_.rank(), ", element ", i),
                   .expected = str_cat(wanted),
                   .got = str_cat(out_[i]),
                   .fix = "report this, with the machines and the options"});
    }
  }

  // As many as rank 0 finds.
  int agreed_repeats() {
    double repeats = microseconds(options_.budget) / std::max(0.01, microseconds(once()));
    repeats = std::clamp<double>(repeats, kLeastRepeats, kMostRepeats);
    wait(communicator_.broadcast(std::as_writable_bytes(std::span(&repeats, 1)), 0,
                                 {.phase = "fleet-comm-bench"}));
    return static_cast<int>(repeats);
  }

  CommRow row(const std::vector<double>& sorted) const {
    CommRow row{.operation = operation_, .repeats = static_cast<int>(sorted.size())};
    row.median_us = sorted[sorted.size() / 2];
    row.least_us = sorted.front();
    row.most_us = sorted.back();
    if (operation_ == "barrier") return row;
    row.bytes = in_.size() * sizeof(float);
    row.bandwidth = static_cast<double>(row.bytes) / row.median_us / 1e3;
    const double others = static_cast<double>(ranks_ - 1) / static_cast<double>(ranks_);
    const double share = operation_ == "all_reduce"  ? 2 * others
                         : operation_ == "broadcast" ? 1.0
                                                     : others;
    row.link_bandwidth = row.bandwidth * share;
    return row;
  }

  CollectiveCommunicator& communicator_;
  const CommBenchOptions& options_;
  const std::string operation_;
  const ShardLayout layout_;
  const size_t ranks_;
  const size_t each_;  // elements of a rank's part
  const std::vector<size_t> counts_;
  std::vector<float> in_;
  std::vector<float> out_;
};

void check(const CommBenchOptions& options) {
  const auto known = comm_operations();
  for (const std::string& operation : options.operations) {
    if (std::find(known.begin(), known.end(), operation) != known.end()) continue;
    throw_error(ErrorCode::kInvalidArgument,
                {.what = str_cat("unknown operation", did_you_mean(operation, known)),
                 .where = "--operations",
                 .expected = str_cat("some of ", join(known, ",")),
                 .got = operation,
                 .fix = "use names of the list"});
  }
  const bool ok =
      options.factor >= 2 && options.least_bytes >= 1 && options.most_bytes >= options.least_bytes;
  if (ok) return;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "there are no sizes between these bounds",
               .where = "--min, --max, --factor",
               .expected = "1 <= min <= max, and a factor of 2 or more",
               .got = str_cat("min ", options.least_bytes, ", max ", options.most_bytes,
                              ", factor ", options.factor),
               .fix = "leave them at their defaults"});
}

}  // namespace

std::vector<std::string> comm_operations() {
  return {"all_reduce", "reduce_scatter", "broadcast", "all_gather", "barrier"};
}

void run_comm_bench(CollectiveCommunicator& communicator, const CommBenchOptions& options,
                    const std::function<void(const CommRow&)>& on_row) {
  check(options);
  for (const std::string& operation : options.operations) {
    const size_t most = operation == "barrier" ? options.least_bytes : options.most_bytes;
    for (size_t bytes = options.least_bytes; bytes <= most;
         bytes *= static_cast<size_t>(options.factor)) {
      on_row(Repeated(communicator, options, operation, bytes).measure());
    }
  }
}

}  // namespace fleet::tools
