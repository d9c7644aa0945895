#include "fluid/kernels/comm_runtime.h"

#include "base/error.h"
#include "fluid/tables/lookup/shared_table.h"

namespace fleet::fluid {

void CommRuntime::sum_shards(const CommCall& call, std::span<const double* const> /*parts*/,
                             double* /*out*/, size_t /*count*/) {
  throw_error(ErrorCode::kNotSupported,
              {.what = "the shards of a step do not meet in the middle of it in this job",
               .where = call.op.to_string(),
               .expected = "a collective job that adds up gradients every step",
               .got = "another kind of job",
               .fix = "leave sync_batch_norm off"});
}

namespace {

[[noreturn]] void throw_keeps_no_tables(const std::string& table) {
  throw_error(ErrorCode::kPrecondition, {.what = "nobody else keeps the rows of this table",
                                         .where = "growing table '" + table + "'",
                                         .expected = "a job with parameter servers",
                                         .got = "another kind of job",
                                         .fix = "save or load the table of the scope"});
}

}  // namespace

CommRuntime::TableFiles CommRuntime::save_table(const std::string& table,
                                                const std::filesystem::path& /*folder*/,
                                                const std::string& /*name*/) {
  throw_keeps_no_tables(table);
}

void CommRuntime::load_tables(const FilesOfTables& files) {
  if (!files.empty()) throw_keeps_no_tables(files.begin()->first);
}

uint64_t CommRuntime::end_pass(const std::string& table, const tables::PassRule& rule,
                               Scope& scope) {
  return growing_table(scope, table)->alone([&rule](tables::GrowingTable& rows) {
    return rows.end_pass(rule);
  });
}

std::vector<std::filesystem::path> CommRuntime::save_table_delta(
    const std::string& table, const std::filesystem::path& /*file*/, Scope& /*scope*/) {
  throw_keeps_no_tables(table);
}

tables::TableStatistics CommRuntime::table_statistics(const std::string& table,
                                                      const Scope& scope) {
  return growing_table(scope, table)->statistics();
}

void CommRuntime::enter_thread(uint32_t, Scope&, const Scope&) {
  throw_no_trainer_threads("another runtime");
}

void throw_no_trainer_threads(const char* got) {
  throw_error(ErrorCode::kPrecondition,
              {.what = "this program's runtime does not know trainer threads",
               .where = "run_trainer_threads",
               .expected = "a trainer program of AsyncStrategy, HalfAsyncStrategy, GeoStrategy or "
                           "EasgdStrategy",
               .got = got,
               .fix = "train with one thread, or with one of these strategies"});
}

}  // namespace fleet::fluid
