// Fields of JSON objects that programs wrote, with errors that name file and key. Used by sources
// only: it names nlohmann_json.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace fleet::tools {

[[noreturn]] void bad_json(const std::string& where, std::string expected, std::string got);

// The text of a file; throws ResourceError when there is none.
std::string read_text(const std::filesystem::path& file);

const nlohmann::json& json_field(const nlohmann::json& object, const char* key,
                                 const std::string& where);
double json_number(const nlohmann::json& object, const char* key, const std::string& where);
// A whole number from 0 to 1e9.
int json_count(const nlohmann::json& object, const char* key, const std::string& where);
std::string json_text(const nlohmann::json& object, const char* key, const std::string& where);

}  // namespace fleet::tools
