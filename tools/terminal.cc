#include "tools/terminal.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <sys/ioctl.h>
#include <unistd.h>

namespace fleet::tools {

Terminal standard_output(const Environment& environment) {
  Terminal terminal;
  auto locale_name = environment.get("LC_ALL");
  if (!locale_name) locale_name = environment.get("LC_CTYPE");
  if (!locale_name) locale_name = environment.get("LANG");
  std::string locale = locale_name.value_or("");
  std::transform(locale.begin(), locale.end(), locale.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  terminal.unicode =
      locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  if (isatty(STDOUT_FILENO) == 0) return terminal;
  terminal.colour = !environment.has("NO_COLOR");
  winsize window{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0) terminal.columns = window.ws_col;
  return terminal;
}

}  // namespace fleet::tools
