#include <algorithm>
#include <cmath>
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

using Shapes = std::vector<std::vector<int64_t>>;

double seconds_of(const Profile::Call& call) {
  return std::chrono::duration<double>(call.end - call.begin).count();
}

// 0 for a shape that is not known.
double product(const std::vector<int64_t>& shape) {
  double elements = shape.empty() ? 0 : 1;
  for (const int64_t dim : shape) elements *= static_cast<double>(dim);
  return elements;
}

// The shape behind a slot's first name, given all shapes slot by slot; empty when there is none.
std::vector<int64_t> shape_in(const SlotMap& slots, std::string_view slot, const Shapes& shapes) {
  size_t at = 0;
  for (const auto& [name, names] : slots) {
    if (name == slot && !names.empty() && at < shapes.size()) return shapes[at];
    at += names.size();
  }
  return {};
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
  Row& row = rows_[call.type];
  row.type = call.type;
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
  for (const auto& [type, row] : rows_) {
    rows.push_back(row);
    all += row.seconds;
  }
  for (Row& row : rows) row.share = all == 0 ? 0 : row.seconds / all;
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.seconds != b.seconds ? a.seconds > b.seconds : a.type < b.type;
  });
  return rows;
}

std::string Profile::table() const {
  std::vector<std::vector<std::string>> text = {
      {"op", "count", "total ms", "mean us", "share", "bytes", "GFLOP/s"}};
  for (const Row& row : rows()) {
    const bool counted = row.flops > 0 && row.seconds > 0;
    text.push_back({row.type, str_cat(row.count), milliseconds(row.seconds),
                    fixed(1e6 * row.seconds / static_cast<double>(row.count), 1),
                    fixed(100 * row.share, 1) + " %", bytes_text(row.bytes),
                    counted ? fixed(1e-9 * row.flops / row.seconds, 1) : ""});
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
        << ", \"args\": {\"makes\": " << json_text(call.makes) << ", \"step\": " << call.step
        << ", \"bytes\": " << fixed(call.bytes, 0) << "}}";
    separator = ",\n";
  }
  out << "\n]}\n";
  return std::move(out).str();
}

double flops_of(const Operator& op, const Shapes& inputs, const Shapes& outputs) {
  std::string_view type = op.type;
  const bool gradient = type.ends_with("_grad");
  if (gradient) type.remove_suffix(5);
  // A gradient is two products of the same size, and Out@GRAD has the shape of Out.
  const double times = gradient ? 4 : 2;
  const auto made = [&](const std::string& slot) {
    return gradient ? shape_in(op.inputs, slot + "@GRAD", inputs)
                    : shape_in(op.outputs, slot, outputs);
  };
  if (type == "mul" || type == "matmul") {
    const double x = product(shape_in(op.inputs, "X", inputs));
    const double y = product(shape_in(op.inputs, "Y", inputs));
    const auto out = made("Out");
    const bool batched = type == "matmul" && out.size() > 2;
    const double results =
        batched ? static_cast<double>(out[out.size() - 1] * out[out.size() - 2]) : product(out);
    const double batches = results == 0 ? 0 : product(out) / results;
    if (batches == 0) return 0;
    // X has m k elements, Y k n, and the result m n.
    return times * batches * std::sqrt(x / batches * y / batches * results);
  }
  if (type == "conv2d" || type == "depthwise_conv2d") {
    const auto filter = shape_in(op.inputs, "Filter", inputs);
    if (filter.size() != 4) return 0;
    return times * product(made("Output")) * static_cast<double>(filter[1] * filter[2] * filter[3]);
  }
  return 0;
}

}  // namespace fleet::fluid
