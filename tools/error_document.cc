#include "tools/error_document.h"

#include "base/error.h"
#include "base/strings.h"

namespace fleet::tools {

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

}  // namespace fleet::tools
