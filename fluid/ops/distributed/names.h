// Names that mean something to every program of a job.
#pragma once

#include <string>
#include <string_view>

namespace fleet::fluid {

// What learning-rate schedules count with.
inline constexpr const char* kStepCounter = "@LR_DECAY_COUNTER@";

// The trainer whose gradient a block updates from: [1], int64; the server sets it.
inline constexpr const char* kTrainerId = "@TRAINER_ID@";

// What the notice sends that says that a trainer starts from what it received (trainer_program.h).
inline constexpr const char* kParamInit = "param_init";

// What gen_nccl_id makes. On CPU the job's runtime keeps it: whoever finds it in a scope finds the
// runtime.
inline constexpr const char* kNcclId = "NCCLID";

// The attribute of ops that look up rows of a table on servers: the names of its parts there.
inline constexpr const char* kTableNames = "table_names";

// Behind the names of slices, and of what belongs to one: "w.block1".
inline std::string slice_suffix(int slice) {
  return ".block" + std::to_string(slice);
}

// Behind the names of what one shard, or one trainer, has of its own: "w@GRAD.trainer_2".
inline constexpr std::string_view kShardMark = ".trainer_";

inline std::string shard_suffix(int shard) {
  return std::string(kShardMark) + std::to_string(shard);
}
inline std::string without_shard(const std::string& name) {
  return name.substr(0, name.rfind(kShardMark));
}

}  // namespace fleet::fluid
