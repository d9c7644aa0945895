#include "tools/loss_chart.h"

#include <gmock/gmock.h>
#include <sstream>

#include "base/strings.h"

namespace fleet::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

RunMetrics falling(std::string mode, double offset = 0) {
  RunMetrics run;
  run.mode = std::move(mode);
  for (int step = 0; step < 100; ++step)
    run.loss.push_back({double(step), 2 - step * 0.01 + offset});
  return run;
}

TextStyle plain() {
  return {.columns = 70, .rows = 12, .unicode = false, .colour = false};
}

std::string text_of(const std::vector<RunMetrics>& runs) {
  return draw_text(make_loss_chart("Curves", runs, 70), plain());
}

TEST(TextChart, CoincidingCurvesShowEveryMark) {
  const std::string text = text_of({falling("local"), falling("collective")});
  EXPECT_THAT(text, AllOf(HasSubstr("oxo"), HasSubstr("o local"), HasSubstr("x collective")));
}

TEST(TextChart, NoLineIsWiderThanAsked) {
  const std::string text = text_of({falling("local")});
  for (const std::string& line : split(text, '\n')) EXPECT_LE(line.size(), 78u) << line;
}

TEST(TextChart, PlainStyleIsAsciiWithoutEscapes) {
  const std::string text = text_of({falling("local"), falling("collective", 0.3)});
  for (char c : text) EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << int(c);
}

TEST(TextChart, HighLossesStandAboveLowOnes) {
  const std::string text = text_of({falling("local")});
  const auto lines = split(text, '\n');
  std::size_t first_row = 0;
  std::size_t last_row = 0;
  for (std::size_t i = 2; i < 14; ++i) {
    if (lines[i].find('o') == std::string::npos) continue;
    if (first_row == 0) first_row = i;
    last_row = i;
  }
  EXPECT_LT(first_row, last_row);
  EXPECT_LT(lines[first_row].find('o'), lines[last_row].find('o'));
}

TEST(SvgChart, SaysWhatItShowsAndFollowsTheReadersScheme) {
  const std::vector<RunMetrics> runs = {falling("local"), falling("parameter_server")};
  const std::string svg = draw_svg(make_loss_chart("A & B", runs, 50));
  EXPECT_THAT(svg,
              AllOf(HasSubstr("prefers-color-scheme: dark"), HasSubstr("A &amp; B"),
                    HasSubstr("parameter server"), HasSubstr(">step<"), HasSubstr("training loss"),
                    HasSubstr("nats"), HasSubstr("mean of 2 steps"), Not(HasSubstr("nan"))));
}

TEST(SvgChart, DrawsOneCurveARunInsideTheFrame) {
  const std::vector<RunMetrics> runs = {falling("local"), falling("collective")};
  const std::string svg = draw_svg(make_loss_chart("t", runs, 50));
  EXPECT_THAT(svg, AllOf(HasSubstr("class=\"curve c0\" d=\"M88.2 "),
                         HasSubstr("class=\"curve c1\" d=\"M88.2 "),
                         Not(HasSubstr("class=\"curve c2\" d="))));
}

TEST(SvgChart, SaysWhichRunsSharedCores) {
  RunMetrics servers = falling("parameter_server");
  servers.processes = 4;
  servers.cores = 2;
  RunMetrics ranks = falling("collective");
  ranks.processes = 2;
  ranks.cores = 2;
  const std::vector<RunMetrics> runs = {servers, ranks};
  const std::string svg = draw_svg(make_loss_chart("t", runs, 50));
  EXPECT_THAT(svg, AllOf(HasSubstr("its 4 processes take turns on 2 cores"),
                         Not(HasSubstr("its 2 processes"))));
}

TEST(SvgChart, RunsWithoutACurveAreStillDrawn) {
  RunMetrics empty;
  empty.mode = "local";
  EXPECT_THAT(draw_svg(make_loss_chart("t", {&empty, 1}, 50)), HasSubstr("</svg>"));
}

}  // namespace
}  // namespace fleet::tools
