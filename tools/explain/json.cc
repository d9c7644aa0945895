#include <nlohmann/json.hpp>

#include "tools/explain/render.h"

namespace fleet::explain {
namespace {

using Json = nlohmann::json;

Json json_of(const ExplainedProgram& program) {
  Json ops = Json::array();
  for (const ExplainedOp& op : program.ops) {
    Json object = {{"block", op.block},
                   {"position", op.position},
                   {"type", op.type},
                   {"role", op.role},
                   {"label", op.label},
                   {"text", op.text},
                   {"origin", std::string(to_string(op.origin))}};
    object["local"] = op.local < 0 ? Json() : Json(op.local);
    if (!op.pass.empty()) object["pass"] = op.pass;
    if (!op.why.empty()) object["why"] = op.why;
    ops.push_back(std::move(object));
  }
  return {{"process", program.process}, {"ops", std::move(ops)}};
}

Json json_of(const ProgramSet& programs) {
  Json servers = Json::array();
  for (const ExplainedProgram& server : programs.servers) servers.push_back(json_of(server));
  return {{"local", json_of(programs.local)},
          {"trainer", json_of(programs.trainer)},
          {"servers", std::move(servers)}};
}

Json json_of(const PlacedPart& part) {
  return {{"variable", part.variable}, {"slice", part.slice}, {"kind", part.kind},
          {"dtype", part.dtype},       {"shape", part.shape}, {"first_row", part.first_row},
          {"rows", part.rows},         {"bytes", part.bytes}, {"server", part.server},
          {"sparse", part.sparse}};
}

Json json_of(const ServerLoad& server) {
  return {{"endpoint", server.endpoint},
          {"slices", server.slices},
          {"parameter_bytes", server.parameter_bytes},
          {"state_bytes", server.state_bytes},
          {"share", server.share},
          {"bytes_in_per_step", server.bytes_in},
          {"bytes_out_per_step", server.bytes_out},
          {"bytes_to_servers_per_step", server.exchange_out}};
}

Json json_of(const ExplainedPass& pass) {
  return {{"program", pass.program}, {"name", pass.name},       {"purpose", pass.purpose},
          {"added", pass.added},     {"removed", pass.removed}, {"changed", pass.changed}};
}

Json json_of(const OpAtPlace& op) {
  Json object = {{"block", op.block}, {"label", op.label}, {"on_device", op.on_device}};
  if (op.copies) object["copied_bytes_per_step"] = op.bytes < 0 ? Json() : Json(op.bytes);
  if (!op.reason.empty()) object["reason"] = op.reason;
  return object;
}

Json json_of(const HostOps& host) {
  return {{"reason", host.reason}, {"ops", host.ops}, {"types", host.types}};
}

Json json_of(const Warning& warning) {
  return {{"what", warning.what}, {"advice", warning.advice}};
}

template <class Item>
Json list_of(const std::vector<Item>& items) {
  Json list = Json::array();
  for (const Item& item : items) list.push_back(json_of(item));
  return list;
}

Json json_of(const ProgramPlaces& places) {
  return {{"process", places.process},
          {"place", places.place},
          {"ops", list_of(places.ops)},
          {"on_device", places.on_device},
          {"on_host", list_of(places.on_host)},
          {"fed_bytes_per_step", places.fed},
          {"bytes_to_device_per_step", places.to_device},
          {"bytes_to_host_per_step", places.to_host},
          {"copies_of_unknown_bytes", places.unknown},
          {"estimated", places.estimated}};
}

}  // namespace

std::string to_json(const Explanation& explanation) {
  Json options = Json::object();
  for (const auto& [name, value] : explanation.options) options[name] = value;
  const Traffic& traffic = explanation.traffic;
  Json all = {{"title", explanation.title},
              {"mode", explanation.mode},
              {"trainers", explanation.trainers},
              {"shards", explanation.shards},
              {"parameter_elements", explanation.parameter_elements},
              {"parameter_bytes", explanation.parameter_bytes},
              {"options", std::move(options)},
              {"main", json_of(explanation.main)},
              {"startup", json_of(explanation.startup)},
              {"passes", list_of(explanation.passes)},
              {"placement", list_of(explanation.placement)},
              {"servers", list_of(explanation.servers)},
              {"imbalance", explanation.imbalance},
              {"traffic",
               {{"trainer_out_per_step", traffic.trainer_out},
                {"trainer_in_per_step", traffic.trainer_in},
                {"total_per_step", traffic.total},
                {"at_most", traffic.at_most},
                {"estimated", traffic.estimated},
                {"note", traffic.note}}},
              {"warnings", list_of(explanation.warnings)},
              {"confirmed", explanation.confirmed}};
  for (const ProgramPlaces& places : explanation.places) all["places"].push_back(json_of(places));
  return all.dump(1) + "\n";
}

}  // namespace fleet::explain
