#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/executor/training/dataset_progress_impl.h"

namespace fleet::fluid {
namespace {

std::string text_of(const Tensor& fetched) {
  return fetched.numel() == 1 ? str_cat(fetched.item<double>()) : fetched.to_string(8);
}

}  // namespace

DatasetProgressLog::DatasetProgressLog(const DatasetRun& run, std::string name,
                                       std::optional<uint64_t> records)
    : run_(run), name_(std::move(name)), records_(records) {
  const auto require = [this](bool holds, const char* field, std::string expected,
                              std::string got) {
    if (holds) return;
    throw_error(ErrorCode::kInvalidArgument, {.what = "a run over a data set cannot be like this",
                                              .where = str_cat(name_, ", DatasetRun::", field),
                                              .expected = std::move(expected),
                                              .got = std::move(got),
                                              .fix = "leave it at its default"});
  };
  require(run.print_period >= 1, "print_period", "1 or more", str_cat(run.print_period));
  require(run.fetch_info.empty() || run.fetch_info.size() == run.fetch_list.size(), "fetch_info",
          str_cat("a word for each of ", run.fetch_list.size(), " fetched variables, or none"),
          str_cat(run.fetch_info.size()));
}

double DatasetProgressLog::seconds() const {
  return std::chrono::duration<double>(steady_clock().now() - begin_).count();
}

void DatasetProgressLog::batch_over(uint64_t samples, StartedStep step) {
  const std::lock_guard lock(mutex_);
  ++batches_;
  samples_ += samples;
  fetched_.clear();
  last_.emplace(std::move(step));
  if (batches_ % static_cast<uint64_t>(run_.print_period) == 0) tell();
}

void DatasetProgressLog::tell() {
  fetched_ = last_->wait();
  DatasetProgress progress{
      .batches = batches_, .samples = samples_, .seconds = seconds(), .fetched = fetched_};
  const double since = progress.seconds - told_seconds_;
  if (since > 0) {
    progress.samples_per_second = static_cast<double>(samples_ - told_samples_) / since;
  }
  if (records_ && samples_ > 0) {
    progress.seconds_left = progress.seconds *
                            static_cast<double>(*records_ - std::min(*records_, samples_)) /
                            static_cast<double>(samples_);
  }
  told_seconds_ = progress.seconds;
  told_samples_ = samples_;
  if (run_.fetch_handler) return run_.fetch_handler(progress);
  run_.logger.info(name_, line(progress));
}

std::string DatasetProgressLog::line(const DatasetProgress& progress) const {
  std::string text = str_cat("progress batches=", progress.batches,
                             " samples_per_s=", std::llround(progress.samples_per_second));
  for (size_t i = 0; i < progress.fetched.size(); ++i) {
    const std::string& name =
        run_.fetch_info.empty() ? run_.fetch_list[i].name : run_.fetch_info[i];
    text += str_cat(" ", name, "=", text_of(progress.fetched[i]));
  }
  if (progress.seconds_left) text += str_cat(" eta_s=", std::llround(*progress.seconds_left));
  return text;
}

DatasetResult DatasetProgressLog::finish(double waited_seconds, data::DatasetBatches& batches) {
  const std::lock_guard lock(mutex_);
  if (last_ && fetched_.empty()) fetched_ = last_->wait();
  DatasetResult result{.batches = batches_,
                       .samples = samples_,
                       .seconds = seconds(),
                       .waited_seconds = waited_seconds,
                       .bad_lines = batches.bad_lines(),
                       .fetched = fetched_};
  if (result.bad_lines > 0) {
    for (const data::BadLine& line : batches.first_bad_lines()) {
      run_.logger.warning(name_, str_cat("left out ", line.to_string()));
    }
    run_.logger.warning(name_, "lines could not be read and were left out",
                        {{"lines", result.bad_lines}});
  }
  if (run_.debug) {
    run_.logger.info(name_, "over",
                     {{"batches", result.batches},
                      {"samples", result.samples},
                      {"seconds", result.seconds},
                      {"waited_for_batches_s", waited_seconds}});
  }
  return result;
}

}  // namespace fleet::fluid
