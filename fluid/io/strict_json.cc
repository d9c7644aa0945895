#include <set>
#include <string>
#include <vector>

#include "fluid/io/strict_json_impl.h"

namespace fleet::fluid::io {

nlohmann::json parse_strict_json(std::string_view text, int max_depth) {
  using Json = nlohmann::json;
  // The parser takes a zero for the end.
  if (text.find('\0') != std::string_view::npos) return {Json::value_t::discarded};
  std::vector<std::set<std::string>> keys;
  bool bad = false;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > max_depth) bad = true;
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      bad = bad || !keys.back().insert(parsed.get<std::string>()).second;
    }
    return !bad;
  };
  Json json = Json::parse(text, watch, false);
  return bad ? Json(Json::value_t::discarded) : json;
}

}  // namespace fleet::fluid::io
