#include "tools/documents.h"

#include "base/environment_table.h"
#include "base/error.h"
#include "base/strings.h"

namespace fleet::tools {
namespace {

std::string code_or_dash(std::string_view text) {
  return text.empty() ? "–" : str_cat("`", text, "`");
}

}  // namespace

std::string error_document() {
  std::string text =
      "# Errors\n\n"
      "Every message has up to five parts, in this order: what is wrong, where, what was expected, "
      "what\nwas got, and the fix. Programs catch `fleet::Error` (`base/error.h`), whose `code()` "
      "is "
      "one of these.\n\n"
      "<!-- Made by fleet_error_document from error_table(); a test compares the two. -->\n\n"
      "| Code | Meaning | What to do |\n|---|---|---|\n";
  for (const ErrorInfo& info : error_table()) {
    if (info.code == ErrorCode::kOk) continue;
    text += str_cat("| `", info.name, "` | ", info.meaning, " | ", info.remedy, " |\n");
  }
  return text;
}

std::string environment_document() {
  std::string text =
      "# Environment variables\n\n"
      "Every variable that Fleet reads, or sets for the processes that it starts. A variable that "
      "is set but\nblank counts as not set. A value that cannot be used is an error that names the "
      "variable, and so is a\nmisspelt name that begins with `FLAGS_rpc_`, `FLAGS_communicator_`, "
      "`FLEET_HEARTBEAT_` or `FLEET_STALL_`.\n`fleet::default_fleet().to_string()` prints what is "
      "in "
      "force, each value with its origin.\n\n"
      "<!-- Made by fleet_environment_document from environment_table(); a test compares the two. "
      "-->\n";
  for (const EnvironmentGroup& group : environment_table()) {
    text += str_cat("\n## ", group.title, "\n\n", group.about, "\n\n",
                    "| Variable | Default | Unit | Meaning |\n|---|---|---|---|\n");
    for (const EnvironmentVariable& variable : group.variables) {
      text += str_cat("| `", variable.name, "` | ", code_or_dash(variable.standard), " | ",
                      variable.unit, " | ", variable.meaning, " |\n");
    }
  }
  return text;
}

}  // namespace fleet::tools
