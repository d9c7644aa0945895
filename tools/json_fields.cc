#include "tools/json_fields.h"

#include <cmath>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::tools {

using Json = nlohmann::json;

void bad_json(const std::string& where, std::string expected, std::string got) {
  throw_error(ErrorCode::kCorruptFile, {.what = "a file is not what the program writes",
                                        .where = where,
                                        .expected = std::move(expected),
                                        .got = std::move(got),
                                        .fix = "run the program that writes it again"});
}

std::string read_text(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  if (in && (text << in.rdbuf())) return std::move(text).str();
  throw_error(ErrorCode::kInput, {.what = "a file cannot be read",
                                  .where = file.string(),
                                  .expected = "a JSON file that a run wrote",
                                  .got = in ? "an empty file" : "no such file",
                                  .fix = "look at the run's log for why it ended early"});
}

const Json& json_field(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) bad_json(where, str_cat("the key \"", key, "\""), "nothing");
  return *found;
}

double json_number(const Json& object, const char* key, const std::string& where) {
  const Json& value = json_field(object, key, where);
  if (!value.is_number()) bad_json(where, str_cat("a number for \"", key, "\""), value.dump());
  return value.get<double>();
}

int json_count(const Json& object, const char* key, const std::string& where) {
  const double value = json_number(object, key, where);
  if (value < 0 || value > 1e9 || value != std::floor(value)) {
    bad_json(where, str_cat("a count for \"", key, "\""), shortest(value));
  }
  return static_cast<int>(value);
}

std::string json_text(const Json& object, const char* key, const std::string& where) {
  const Json& value = json_field(object, key, where);
  if (!value.is_string()) bad_json(where, str_cat("a text for \"", key, "\""), value.dump());
  return value.get<std::string>();
}

}  // namespace fleet::tools
