#include "strategies/config/config_fields.h"

namespace fleet::strategies::config_detail {

void refuse_value(ErrorCode code, std::string_view where, std::string expected,
                  const std::string& got) {
  const bool variable = code == ErrorCode::kEnvironment;
  throw_error(code, {.what = variable ? "a variable has a value that cannot be used"
                                      : "a key has a value that cannot be used",
                     .where = std::string(where),
                     .expected = std::move(expected),
                     .got = got == "(hidden)" ? got : "'" + got + "'",
                     .fix = str_cat(variable ? "correct or unset " : "correct ", where)});
}

void refuse_key(std::string_view where, const std::string& key,
                const std::vector<std::string>& known) {
  throw_error(ErrorCode::kUnknownName, {.what = "unknown key" + did_you_mean(key, known),
                                        .where = std::string(where),
                                        .expected = join(known, ", "),
                                        .got = "'" + key + "'",
                                        .fix = "use one of the keys above"});
}

bool read_flag(ErrorCode code, std::string_view where, const std::string& text) {
  const auto flag = parse_flag(text);
  if (!flag) refuse_value(code, where, std::string(kFlagSpellings), text);
  return *flag;
}

}  // namespace fleet::strategies::config_detail
