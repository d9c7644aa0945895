#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <unistd.h>
#include <utility>

#include "base/display.h"
#include "base/strings.h"
#include "fluid/executor/profile_impl.h"

namespace fleet::fluid {
namespace {

double seconds_of(const Profile::Call& call) {
  return std::chrono::duration<double>(call.end - call.begin).count();
}

std::string milliseconds(double seconds) {
  return fixed(1e3 * seconds, 3);
}

// Text between the quotes of JSON.
std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20U ? ' ' : c;
  }
  return out + "\"";
}

}  // namespace

Profile::~Profile() {
  if (!folder_.empty() && !rows_.empty()) write();
}

void Profile::write() const {
  std::error_code ignored;
  std::filesystem::create_directories(folder_, ignored);
  std::filesystem::path base;
  for (int n = 0; base.empty() || std::filesystem::exists(base.string() + ".txt", ignored); ++n) {
    base = folder_ / str_cat("profile_", getpid(), "_", n);
  }
  std::ofstream text(base.string() + ".txt");
  std::ofstream json(base.string() + ".json");
  text << table() << std::flush;
  json << trace() << std::flush;
  if (text && json) return;
  std::fprintf(stderr, "FLAGS_profile: %s.txt and .json cannot be written\n", base.c_str());
}

void Profile::add(Call call) {
  const std::lock_guard lock(mutex_);
  Row& row = rows_[{call.type, call.place}];
  row.type = call.type;
  row.place = call.place;
  ++row.count;
  row.seconds += seconds_of(call);
  row.bytes += call.bytes;
  row.flops += call.flops;
  if (events_.size() == kMostEvents) return;
  const size_t thread = threads_.emplace(std::this_thread::get_id(), threads_.size()).first->second;
  events_.push_back({std::move(call), thread});
}

std::vector<Profile::Row> Profile::rows() const {
  std::vector<Row> rows;
  double all = 0;
  const std::lock_guard lock(mutex_);
  for (const auto& [key, row] : rows_) {
    rows.push_back(row);
    all += row.seconds;
  }
  for (Row& row : rows) row.share = all == 0 ? 0 : row.seconds / all;
  // Those of the same time stay in the order of their types.
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  return rows;
}

std::string Profile::table() const {
  const std::vector<Row> all = rows();
  const bool places =
      std::any_of(all.begin(), all.end(), [](const Row& row) { return row.place != "cpu"; });
  std::vector<std::vector<std::string>> text = {
      {"op", "count", "total ms", "mean us", "share", "bytes", "GFLOP/s"}};
  if (places) text.front().insert(text.front().begin() + 1, "place");
  for (const Row& row : all) {
    const bool counted = row.flops > 0 && row.seconds > 0;
    text.push_back({row.type, str_cat(row.count), milliseconds(row.seconds),
                    fixed(1e6 * row.seconds / static_cast<double>(row.count), 1),
                    fixed(100 * row.share, 1) + " %", bytes_text(row.bytes),
                    counted ? fixed(1e-9 * row.flops / row.seconds, 1) : ""});
    if (places) text.back().insert(text.back().begin() + 1, row.place);
  }
  return table_text(text);
}

std::string Profile::trace() const {
  const std::lock_guard lock(mutex_);
  std::ostringstream out;
  out << "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [";
  const auto pid = static_cast<int64_t>(getpid());
  const TimePoint start = events_.empty() ? TimePoint() : events_.front().call.begin;
  const char* separator = "\n";
  for (const auto& [call, thread] : events_) {
    const double at = std::chrono::duration<double, std::micro>(call.begin - start).count();
    out << separator << "{\"name\": " << json_text(call.type) << ", \"ph\": \"X\", \"pid\": " << pid
        << ", \"tid\": " << thread << ", \"ts\": " << fixed(at, 3)
        << ", \"dur\": " << fixed(1e6 * seconds_of(call), 3)
        << ", \"args\": {\"makes\": " << json_text(call.makes)
        << ", \"place\": " << json_text(call.place) << ", \"step\": " << call.step
        << ", \"bytes\": " << fixed(call.bytes, 0) << "}}";
    separator = ",\n";
  }
  out << "\n]}\n";
  return std::move(out).str();
}

}  // namespace fleet::fluid
