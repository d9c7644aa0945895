#include "fluid/tables/table_options.h"

#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::fluid::tables {
namespace {

[[noreturn]] void fail(const TableOptions& options, std::string what, std::string expected,
                       std::string got, std::string fix) {
  throw_error(ErrorCode::kInvalidArgument, {.what = std::move(what),
                                            .where = str_cat("growing table '", options.name, "'"),
                                            .expected = std::move(expected),
                                            .got = std::move(got),
                                            .fix = std::move(fix)});
}

void check_widths(const TableOptions& options) {
  constexpr size_t kMostFloats = size_t{1} << 16;
  size_t floats = options.width;
  for (const RowState& state : options.states) {
    if (state.width > 0 && state.width <= kMostFloats) {
      floats += state.width;
      continue;
    }
    fail(options, str_cat("state '", state.name, "' of a row has no sensible width"),
         str_cat("1 to ", kMostFloats, " floats"), str_cat(state.width),
         "leave out states without elements");
  }
  if (options.width > 0 && floats <= kMostFloats) return;
  fail(options, "rows have no sensible width",
       str_cat("1 float or more, with all states ", kMostFloats, " at most"),
       str_cat("width ", options.width, ", ", floats, " floats with states"),
       "set width to the embedding's dimension");
}

void check_initializer(const TableOptions& options) {
  const RowInitializer& from = options.initializer;
  const bool finite = std::isfinite(from.a) && std::isfinite(from.b);
  const bool ordered = from.kind != RowInitializer::Kind::kUniform || from.a <= from.b;
  const bool deviates = from.kind == RowInitializer::Kind::kConstant ||
                        from.kind == RowInitializer::Kind::kUniform || from.b >= 0;
  if (finite && ordered && deviates) return;
  fail(options, "the initializer of rows has no sensible numbers",
       "finite numbers, low <= high, a deviation of 0 or more",
       str_cat(shortest(from.a), " and ", shortest(from.b)), "mend the initializer's arguments");
}

void check_admission(const TableOptions& options) {
  const Admission& rule = options.admission;
  if (rule.kind == Admission::Kind::kProbability &&
      !(rule.probability >= 0 && rule.probability <= 1)) {
    fail(options, "ids cannot be admitted with this probability", "0 to 1",
         shortest(rule.probability), "give the share of ids that get a row");
  }
  if (rule.kind == Admission::Kind::kCount && (rule.count == 0 || rule.count > 1000000000)) {
    fail(options, "an id cannot be admitted at this lookup", "1 (the first) to 1000000000",
         str_cat(rule.count), "give the number of the lookup that makes the row");
  }
  if (rule.kind == Admission::Kind::kScore && !std::isfinite(rule.threshold)) {
    fail(options, "ids cannot be admitted at this score", "a finite threshold",
         shortest(rule.threshold), "set admission.threshold");
  }
  if (rule.counted_ids > 0) return;
  fail(options, "no id without a row can be counted", "1 or more", "counted_ids 0",
       "leave admission.counted_ids as it is, or give a limit that memory has room for");
}

}  // namespace

RowInitializer RowInitializer::constant(double value) {
  return {Kind::kConstant, value, 0};
}
RowInitializer RowInitializer::uniform(double low, double high) {
  return {Kind::kUniform, low, high};
}
RowInitializer RowInitializer::normal(double mean, double deviation) {
  return {Kind::kNormal, mean, deviation};
}
RowInitializer RowInitializer::truncated_normal(double mean, double deviation) {
  return {Kind::kTruncatedNormal, mean, deviation};
}
RowInitializer RowInitializer::xavier_uniform(double fan_in, double fan_out) {
  const double bound = std::sqrt(6.0 / (fan_in + fan_out));
  return uniform(-bound, bound);
}
RowInitializer RowInitializer::xavier_normal(double fan_in, double fan_out) {
  return normal(0, std::sqrt(2.0 / (fan_in + fan_out)));
}

void check_options(const TableOptions& options) {
  check_widths(options);
  check_initializer(options);
  check_admission(options);
  if (options.memory.bytes == 0) return;
  const RowRank rank = options.memory.rank;
  const bool kept = rank == RowRank::kNorm || (rank == RowRank::kSeen && options.fields.seen) ||
                    (rank == RowRank::kCount && options.fields.count) ||
                    (rank == RowRank::kScore && options.fields.score);
  if (kept) return;
  fail(options, "rows do not keep what the limit of memory chooses them by",
       "fields.seen, count or score, as memory.rank says", "the field is off",
       "set the field, or take RowRank::kNorm");
}

}  // namespace fleet::fluid::tables
