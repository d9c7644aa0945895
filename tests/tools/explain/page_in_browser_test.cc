// The page in a real browser, where there is one: what it says on its console, and whether it fits
// a phone and a desk.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <string>
#include <unistd.h>

#include "base/display.h"
#include "base/strings.h"
#include "tests/testing/command.h"
#include "tests/transpiler/sample_nets.h"
#include "tools/explain/explain.h"
#include "tools/explain/render.h"

namespace fleet::explain {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

std::string browser() {
  return testing::run_command("command -v chromium || command -v google-chrome").output;
}

class ExplainPageInBrowser : public ::testing::Test {
 protected:
  void SetUp() override {
    if (browser().empty()) GTEST_SKIP() << "there is no Chromium on this machine";
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Shows the page in a frame of this width, everything opened. What comes back: whether it fits,
  // and the lines of the console.
  std::string show(const std::string& page, int width) const {
    std::ofstream(folder_ / "frame.html")
        << "<!DOCTYPE html><title>frame</title><iframe id=\"frame\" style=\"width:" << width
        << "px;height:800px;border:0\" srcdoc=\"" << escape_markup(page)
        << "\"></iframe>\n<script>window.onload = () => {\n"
           "const page = document.getElementById('frame').contentDocument;\n"
           "for (const more of page.querySelectorAll('details')) more.open = true;\n"
           "const root = page.documentElement;\n"
           "const fits = root.scrollWidth <= root.clientWidth ? 'fits' : 'is too wide';\n"
           "document.title = fits + ', rows ' + page.querySelectorAll('.row').length;\n"
           "};</script>\n";
    const auto result = testing::run_command(
        str_cat("$(command -v chromium || command -v google-chrome) --headless=new --no-sandbox "
                "--disable-gpu --enable-logging=stderr --user-data-dir=",
                (folder_ / "profile").string(), " --window-size=1600,900 --dump-dom file://",
                (folder_ / "frame.html").string()));
    EXPECT_EQ(result.code, 0) << result.output;
    // The document holds the page itself: what is wanted is what came out of it.
    std::string found = result.output.substr(result.output.find("<title>"));
    found.resize(found.find("</title>"));
    for (const std::string& line : split(result.output, '\n')) {
      if (line.find("CONSOLE(") != std::string::npos) found += "\n" + line;
    }
    return found;
  }

  fs::path folder_ = fs::temp_directory_path() / str_cat("explain_page_", getpid());
};

TEST_F(ExplainPageInBrowser, FitsAPhoneAndADeskAndItsConsoleStaysEmpty) {
  const auto net = transpiler::deep_net(12, 128);
  for (const char* mode : {"sync", "all_reduce"}) {
    const std::string page = draw_page(explain(
        net.main, net.startup,
        {.title = "twelve layers", .config = config_of_mode(mode), .trainers = 6, .servers = 5}));
    for (const int width : {390, 1440}) {
      const std::string shown = show(page, width);
      EXPECT_THAT(shown, HasSubstr("<title>fits, rows ")) << mode << ", " << width;
      EXPECT_THAT(shown, Not(HasSubstr("CONSOLE("))) << mode << ", " << width;
    }
  }
}

}  // namespace
}  // namespace fleet::explain
