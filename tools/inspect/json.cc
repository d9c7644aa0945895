#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tools/inspect/render.h"

namespace fleet::inspect {
namespace {

using Json = nlohmann::ordered_json;

// A path may be of other bytes than UTF-8.
std::string text_of(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json json_of(const Status& damage) {
  const ErrorText& text = damage.text();
  return {{"code", std::string(error_info(damage.code()).name)},
          {"what", text.what},
          {"where", text.where},
          {"expected", text.expected},
          {"got", text.got},
          {"fix", text.fix}};
}

Json json_of(const fluid::io::CheckpointInfo& info) {
  return {{"step", info.step},       {"epoch", info.epoch},
          {"mode", info.mode},       {"workers", info.workers},
          {"servers", info.servers}, {"logical_shards", info.logical_shards},
          {"program", info.program}, {"strategy", info.strategy},
          {"readers", info.readers}, {"values", info.values}};
}

void add_values(const ValueSummary& values, Json& json) {
  json["norm"] = values.norm;
  json["min"] = values.least;
  json["max"] = values.most;
  json["nonfinite"] = values.nonfinite;
}

Json json_of(const TensorInfo& tensor) {
  Json json = {{"name", tensor.name},
               {"dtype", std::string(dtype_name(tensor.tensor.dtype))},
               {"shape", tensor.tensor.shape.to_vector()},
               {"bytes", tensor.bytes},
               {"file", tensor.tensor.files()},
               {"finite", tensor.tensor.finite()}};
  if (tensor.values) add_values(*tensor.values, json);
  return json;
}

Json json_of(const TableInfo& table) {
  Json json = {{"name", table.name},          {"width", table.width}, {"states", table.states},
               {"files", table.files},        {"bytes", table.bytes}, {"rows", table.rows},
               {"counted_ids", table.counted}};
  if (table.values) add_values(*table.values, json);
  return json;
}

Json json_of(const TableDifference& table) {
  Json json = {{"name", table.name},
               {"a", table.a ? json_of(*table.a) : Json()},
               {"b", table.b ? json_of(*table.b) : Json()}};
  if (!table.rows) return json;
  json["rows_only_in_a"] = table.rows->only_a;
  json["rows_only_in_b"] = table.rows->only_b;
  json["other_rows"] = table.rows->others;
  return json;
}

// Without its tensors and tables.
Json summary_of(const Checkpoint& checkpoint) {
  Json json = {{"folder", checkpoint.folder.string()}};
  if (!checkpoint.status.ok()) {
    json["whole"] = false;
    json["step"] = checkpoint.info.step;
    json["damage"] = json_of(checkpoint.status);
  } else {
    json["whole"] = true;
    json.update(json_of(checkpoint.info));
    json["tensors"] = checkpoint.tensors.size();
    json["bytes"] = checkpoint.bytes;
    json["finite"] = checkpoint.finite;
  }
  json["age_s"] = checkpoint.age_s;
  return json;
}

Json json_of(const Verified& verified) {
  Json damage = Json::array();
  for (const Status& one : verified.damage) damage.push_back(json_of(one));
  return {{"folder", verified.checkpoint.folder.string()},
          {"whole", verified.damage.empty()},
          {"tensors", verified.checkpoint.tensors.size()},
          {"bytes", verified.checkpoint.bytes},
          {"damage", std::move(damage)}};
}

Json json_of(const TensorDifference& tensor) {
  Json json = {{"name", tensor.name},
               {"a", tensor.a ? json_of(*tensor.a) : Json()},
               {"b", tensor.b ? json_of(*tensor.b) : Json()}};
  if (!tensor.values) return json;
  json["elements"] = tensor.values->elements;
  json["absolute"] = tensor.values->absolute;
  json["relative"] = tensor.values->relative;
  return json;
}

template <class Things>
Json list_of(const Things& things) {
  Json list = Json::array();
  for (const auto& thing : things) list.push_back(json_of(thing));
  return list;
}

}  // namespace

std::string to_json(const Listing& listing) {
  Json checkpoints = Json::array();
  for (const Checkpoint& one : listing.checkpoints) checkpoints.push_back(summary_of(one));
  return text_of({{"folder", listing.folder.string()},
                  {"checkpoints", std::move(checkpoints)},
                  {"unfinished", listing.unfinished}});
}

std::string to_json(const Checkpoint& checkpoint) {
  Json json = summary_of(checkpoint);
  json["tensors"] = list_of(checkpoint.tensors);
  json["tables"] = list_of(checkpoint.tables);
  return text_of(json);
}

std::string to_json(const std::vector<Verified>& checkpoints) {
  return text_of({{"whole", all_whole(checkpoints)}, {"checkpoints", list_of(checkpoints)}});
}

std::string to_json(const Comparison& comparison) {
  Json info = Json::array();
  for (const InfoDifference& difference : comparison.info) {
    info.push_back({{"field", difference.field},
                    {"a", difference.a ? Json(*difference.a) : Json()},
                    {"b", difference.b ? Json(*difference.b) : Json()}});
  }
  return text_of({{"a", comparison.a.string()},
                  {"b", comparison.b.string()},
                  {"equal", comparison.none()},
                  {"equal_tensors", comparison.equal},
                  {"info", std::move(info)},
                  {"tensors", list_of(comparison.tensors)},
                  {"equal_tables", comparison.equal_tables},
                  {"tables", list_of(comparison.tables)}});
}

}  // namespace fleet::inspect
