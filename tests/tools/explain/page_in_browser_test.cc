// The page in a real browser, where there is one, opened from disk: what it says on its console,
// and whether it can be read on a phone and on a desk.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "base/strings.h"
#include "tests/tools/explain/browser.h"
#include "tests/transpiler/sample_nets.h"
#include "tools/explain/explain.h"
#include "tools/explain/render.h"

namespace fleet::explain {
namespace {

namespace fs = std::filesystem;
using testing::Browser;
using ::testing::Contains;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Lines = std::vector<std::string>;

// Looks at the page as it opens, with everything opened, and with each of its switches on.
constexpr const char* kLook = R"js(
(async () => {
  const width = %WIDTH%, smallest = 12;
  const faults = new Set();
  const called = e => e.tagName.toLowerCase() + '.' + (e.getAttribute('class') ?? '');
  const says = e => [...e.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.data.trim());
  const small = (e, pseudo, scale) => {
    const size = parseFloat(getComputedStyle(e, pseudo).fontSize) * scale;
    if (size < smallest - 0.01) faults.add(`text of ${called(e)}${pseudo} has ${size} px`);
  };
  const look = () => {
    const root = document.scrollingElement;
    if (root.scrollWidth > width) faults.add(`the page is ${root.scrollWidth} px wide`);
    for (const e of document.body.querySelectorAll('*')) {
      const box = e.getBoundingClientRect();
      if (box.width === 0) continue;
      const scroller = e.parentElement.closest('.scroll');
      if (box.right > width + 0.5 && !scroller) faults.add(`${called(e)} ends beyond the screen`);
      if (says(e)) small(e, '', e.getScreenCTM ? e.getScreenCTM().a : 1);
      for (const pseudo of ['::before', '::after']) {
        if (!['none', 'normal', '""'].includes(getComputedStyle(e, pseudo).content)) {
          small(e, pseudo, 1);
        }
      }
    }
  };
  const boxes = [...document.querySelectorAll('svg, svg rect')].map(e => e.getBoundingClientRect());
  for (const words of document.querySelectorAll('svg text')) {
    const at = words.getBoundingClientRect();
    const leaves = box => box.top < at.top && at.bottom < box.bottom &&
        box.left < at.right && at.left < box.right && (at.left < box.left || box.right < at.right);
    if (boxes.some(leaves)) faults.add(`'${words.textContent}' leaves its box`);
  }
  const painted = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)));
  look();
  for (const more of document.querySelectorAll('details')) more.open = true;
  look();
  for (const label of document.querySelectorAll('label')) { label.click(); look(); }
  let scrolled = 0;
  for (const table of document.querySelectorAll('table')) {
    const around = table.closest('.scroll');
    if (!around) { faults.add('a table does not scroll by itself'); continue; }
    around.scrollLeft = 1e6;
    if (around.scrollLeft > 0) ++scrolled;
    const rest = around.scrollWidth - around.clientWidth - around.scrollLeft;
    if (rest > 1) faults.add(`a table hides ${rest} px`);
  }
  await painted();
  return { faults: [...faults], scrolled, address: location.protocol,
           sections: [...document.querySelectorAll('section > h2')].map(h => h.textContent) };
})()
)js";

struct Screen {
  int width;
  int height;
};
constexpr Screen kPhone{.width = 360, .height = 800};
constexpr Screen kDesk{.width = 1440, .height = 900};

class ExplainPageInBrowser : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Browser::installed().empty()) GTEST_SKIP() << "there is no Chromium on this machine";
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string page_of(const std::string& mode, int layers = 12) {
    const auto net = transpiler::deep_net(layers, 128);
    return draw_page(explain(
        net.main, net.startup,
        {.title = "a deep net", .config = config_of_mode(mode), .trainers = 6, .servers = 5}));
  }

  Browser::Shown show(Browser& browser, const std::string& page, const Screen& screen) const {
    const fs::path file = folder_ / "page.html";
    std::ofstream(file) << page;
    return browser.open("file://" + file.string(), screen.width, screen.height,
                        replaced(kLook, "%WIDTH%", std::to_string(screen.width)));
  }
  Lines faults(Browser& browser, const std::string& page, const Screen& screen) const {
    return show(browser, page, screen).value.at("faults").get<Lines>();
  }

  static std::string replaced(std::string text, const std::string& what, const std::string& by) {
    const size_t at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return at == std::string::npos ? text : text.replace(at, what.size(), by);
  }

  fs::path folder_ = fs::temp_directory_path() / str_cat("explain_page_", getpid());
};

TEST_F(ExplainPageInBrowser, CanBeReadOnAPhoneAndOnADeskAndItsConsoleStaysEmpty) {
  Browser browser(folder_ / "profile");
  const Lines of_both = {"Every step", "Once, before training", "The passes"};
  Lines of_servers = {"Where parameters live", "What travels in a step"};
  of_servers.insert(of_servers.end(), of_both.begin(), of_both.end());
  for (const char* mode : {"sync", "all_reduce"}) {
    const std::string page = page_of(mode);
    for (const Screen& screen : {kPhone, kDesk}) {
      SCOPED_TRACE(str_cat(mode, ", ", screen.width));
      const Browser::Shown shown = show(browser, page, screen);
      EXPECT_THAT(shown.console, IsEmpty());
      EXPECT_THAT(shown.requests, IsEmpty());
      EXPECT_EQ(shown.value.at("address"), "file:");
      if (screen.width == kPhone.width) {
        EXPECT_GT(shown.value.at("scrolled").get<int>(), 0) << "no table is wider than a phone";
      }
      EXPECT_THAT(shown.value.at("faults").get<Lines>(), IsEmpty());
      EXPECT_THAT(shown.value.at("sections").get<Lines>(),
                  ElementsAreArray(std::string(mode) == "sync" ? of_servers : of_both));
    }
  }
}

// What the test above looks at can be seen to fail.
TEST_F(ExplainPageInBrowser, ThatIsBrokenIsFound) {
  Browser browser(folder_ / "profile");
  const std::string page = page_of("sync", 2);
  const auto with = [&](const std::string& more) {
    return replaced(page, "</main>", more + "</main>");
  };
  EXPECT_THAT(show(browser, with("<script>console.warn('a word')</script>"), kDesk).console,
              Contains(HasSubstr("a word")));
  EXPECT_THAT(show(browser, with("<script>no_such_thing()</script>"), kDesk).console,
              Contains(HasSubstr("no_such_thing is not defined")));
  const auto missing = show(browser, with("<img src=\"missing.png\" alt=\"\">"), kDesk);
  EXPECT_THAT(missing.console, Contains(HasSubstr("ERR_FILE_NOT_FOUND")));
  EXPECT_THAT(missing.requests, Contains(HasSubstr("missing.png")));
  const std::string wide = with("<div class=\"wide\" style=\"width:1000px\">wide</div>");
  EXPECT_THAT(faults(browser, wide, kPhone), Contains("div.wide ends beyond the screen"));
  EXPECT_THAT(faults(browser, wide, kPhone), Contains(HasSubstr("px wide")));
  EXPECT_THAT(faults(browser, wide, kDesk), IsEmpty());
  EXPECT_THAT(faults(browser, with("<p style=\"font-size:11px\">small</p>"), kDesk),
              Contains("text of p. has 11 px"));
  EXPECT_THAT(
      faults(browser, replaced(page, ">trainer 0</text>", ">trainer number 0</text>"), kPhone),
      Contains("'trainer number 0' leaves its box"));
  EXPECT_THAT(faults(browser, replaced(page, ".scroll { overflow-x: auto;", ".scroll {"), kPhone),
              Contains(HasSubstr("a table hides")));
}

}  // namespace
}  // namespace fleet::explain
