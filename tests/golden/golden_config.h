// The configuration of a golden case, as the transpiler takes it.
#pragma once

#include <nlohmann/json.hpp>

#include "fluid/program/program.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::golden {

// "transpiler_config" as the structure; throws UsageError for a field that does not exist.
transpiler::DistributeTranspilerConfig load_config(const nlohmann::json& fields);

// The arguments of transpile that "config" asks for.
transpiler::TranspileOptions load_options(const nlohmann::json& config, const fluid::Program& main,
                                          const fluid::Program& startup);

// What a transpiler records, in the form of "trainer_dist".
nlohmann::json dump_distribution(const fluid::DistributionInfo& info);

// What a trainer under GEO knows of each parameter, in the form of "geo_vars_info".
nlohmann::json dump_geo(const fluid::Program& trainer);

}  // namespace fleet::golden
