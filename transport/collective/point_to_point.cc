#include "transport/collective/point_to_point.h"

#include "base/strings.h"

namespace fleet::transport {
namespace {

std::string_view type_name(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return "float32";
    case ElementType::kFloat64:
      return "float64";
    case ElementType::kInt64:
      return "int64";
  }
  return "?";
}

}  // namespace

std::string_view name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  return "?";
}

std::string OperationId::to_string() const {
  const std::string who = str_cat("operation ", sequence, ", ", name_of(kind));
  if (kind == CollectiveKind::kBarrier) return who;
  const bool typed = kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter;
  return str_cat(who, " of ", count, ' ', typed ? type_name(type) : std::string_view("bytes"));
}

Status different_operations(const OperationId& ours, int rank, const std::string& theirs,
                            int peer) {
  return Status(
      ErrorCode::kPrecondition,
      {.what = "ranks call different collective operations",
       .where = str_cat("rank ", rank, " and rank ", peer),
       .expected = "the same calls in the same order at every rank",
       .got = str_cat(ours.to_string(), " at rank ", rank, "; ", theirs, " at rank ", peer),
       .fix = "run the same program at every rank"});
}

}  // namespace fleet::transport
