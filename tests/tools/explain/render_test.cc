// The forms in which explanations are given.
#include "tools/explain/render.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "base/strings.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "tests/testing/paths.h"
#include "tests/transpiler/sample_nets.h"
#include "tools/explain/explain.h"
#include "tools/explain/side_by_side.h"

namespace fleet::explain {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Explanation reference(const std::string& mode = "sync") {
  const auto net = transpiler::reference_net();
  return explain(net.main, net.startup, {.title = "reference", .config = config_of_mode(mode)});
}

std::string golden(const std::string& name) {
  std::ifstream file(testing::source_path("tests/tools/explain/golden/" + name));
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

// A whole text is long: the first line that differs is told, and where the text was written.
void expect_golden(const std::string& text, const std::string& name) {
  const std::string drawn = ::testing::TempDir() + name;
  std::ofstream(drawn) << text;
  SCOPED_TRACE("what was drawn is in " + drawn);
  const auto expected = split(golden(name), '\n');
  const auto got = split(text, '\n');
  for (size_t i = 0; i < std::min(expected.size(), got.size()); ++i) {
    ASSERT_EQ(got[i], expected[i]) << name << ", line " << i + 1;
  }
  EXPECT_EQ(got.size(), expected.size()) << name;
}

size_t width_of(const std::string& line) {
  return static_cast<size_t>(std::count_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

TEST(ExplainText, IsTheGoldenOne) {
  expect_golden(draw_text(reference(), {}), "reference.txt");
}

TEST(ExplainText, FitsItsColumns) {
  for (const int columns : {80, 100, 140}) {
    for (const char* mode : {"sync", "geo", "all_reduce"}) {
      for (const std::string& line :
           split(draw_text(reference(mode), {.columns = columns}), '\n')) {
        EXPECT_LE(width_of(line), static_cast<size_t>(columns)) << mode << ": " << line;
      }
    }
  }
}

TEST(ExplainText, IsPlainWhereThatIsAllThereIs) {
  const std::string plain = draw_text(reference(), {.unicode = false});
  EXPECT_TRUE(std::all_of(plain.begin(), plain.end(),
                          [](char c) { return static_cast<unsigned char>(c) < 0x80U; }));
  EXPECT_THAT(plain, Not(HasSubstr("\x1b")));
  EXPECT_THAT(draw_text(reference(), {.colour = true}), HasSubstr("\x1b[32m"));
}

TEST(ExplainText, CountsWhatItLeavesOut) {
  const Explanation all = reference();
  const size_t rows = side_by_side(all.main).size();
  EXPECT_THAT(draw_text(all, {.most_rows = 5}), HasSubstr(str_cat("… ", rows - 5, " more rows")));
}

TEST(ExplainJson, SaysEverythingOnce) {
  const auto json = nlohmann::json::parse(to_json(reference()));
  EXPECT_EQ(json["placement"].size(), 3u);
  EXPECT_EQ(json["placement"][1]["slice"], "fc_w.block0");
  EXPECT_EQ(json["servers"][1]["bytes_in_per_step"], 4'000'000.0);
  EXPECT_EQ(json["traffic"]["trainer_out_per_step"], 4'004'000.0);
  const auto& ops = json["main"]["trainer"]["ops"];
  const auto send =
      std::find_if(ops.begin(), ops.end(), [](const auto& op) { return op["type"] == "send"; });
  ASSERT_NE(send, ops.end());
  EXPECT_EQ((*send)["pass"], "insert_sends");
  EXPECT_EQ((*send)["origin"], "added");
  EXPECT_EQ(json["main"]["servers"].size(), 2u);
  EXPECT_EQ(to_json(reference()), to_json(reference()));
}

TEST(ExplainGraph, DrawsEveryOpAndConnectsTheProcesses) {
  const Explanation all = reference();
  const std::string graph = draw_graph(all);
  EXPECT_THAT(graph, StartsWith("digraph"));
  EXPECT_EQ(std::count(graph.begin(), graph.end(), '{'),
            std::count(graph.begin(), graph.end(), '}'));
  std::set<std::string> nodes;
  const std::regex node("^ *(p[0-9]+_[a-z0-9_]+) \\[");
  const std::regex edge("^ *(p[0-9]+_[a-z0-9_]+) -> (p[0-9]+_[a-z0-9_]+) ");
  const auto lines = split(graph, '\n');
  std::smatch match;
  for (const std::string& line : lines) {
    if (std::regex_search(line, match, node)) nodes.insert(match[1]);
  }
  size_t between = 0;
  for (const std::string& line : lines) {
    if (!std::regex_search(line, match, edge)) continue;
    EXPECT_TRUE(nodes.contains(match[1])) << line;
    EXPECT_TRUE(nodes.contains(match[2])) << line;
    between += match.str(1).substr(0, 2) != match.str(2).substr(0, 2) ? 1 : 0;
  }
  // fc_b with server 0, fc_w with both, there and back.
  EXPECT_EQ(between, 6u);
}

const std::set<std::string> kVoid = {"meta", "link", "input", "!DOCTYPE"};

// Every element is closed, in turn.
void expect_well_formed(const std::string& page) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([A-Za-z!][A-Za-z0-9]*)((?:[^\">]|\"[^\"]*\")*)>");
  for (std::sregex_iterator at(page.begin(), page.end(), tag), end; at != end; ++at) {
    const std::string name = (*at)[2];
    if (kVoid.contains(name) || (*at)[3].str().ends_with('/')) continue;
    if ((*at)[1].length() == 0) {
      open.push_back(name);
      continue;
    }
    ASSERT_FALSE(open.empty()) << "</" << name << ">";
    ASSERT_EQ(open.back(), name) << "at " << at->position();
    open.pop_back();
  }
  EXPECT_TRUE(open.empty());
}

TEST(ExplainPage, StandsAlone) {
  for (const char* mode : {"sync", "dc_asgd", "local_sgd"}) {
    const std::string page = draw_page(reference(mode));
    for (const char* outside : {"http:", "https:", "//", "src=", "@import", "url(", "<script"}) {
      EXPECT_THAT(page, Not(HasSubstr(outside))) << mode;
    }
    const std::regex reference("href=\"([^\"]*)\"");
    for (std::sregex_iterator at(page.begin(), page.end(), reference), end; at != end; ++at) {
      EXPECT_EQ((*at)[1], "data:,") << mode;
    }
    EXPECT_THAT(page, HasSubstr("prefers-color-scheme: dark"));
    EXPECT_THAT(page, HasSubstr("width=device-width"));
    expect_well_formed(page);
  }
}

TEST(ExplainPage, EveryControlHasItsLabel) {
  const std::string page = draw_page(reference());
  std::set<std::string> ids;
  std::set<std::string> labels;
  const std::regex id("<input[^>]* id=\"([^\"]*)\"");
  for (std::sregex_iterator at(page.begin(), page.end(), id), end; at != end; ++at) {
    EXPECT_TRUE(ids.insert((*at)[1]).second);
  }
  const std::regex label("<label for=\"([^\"]*)\"");
  for (std::sregex_iterator at(page.begin(), page.end(), label), end; at != end; ++at) {
    EXPECT_TRUE(labels.insert((*at)[1]).second);
  }
  EXPECT_EQ(ids, labels);
  EXPECT_EQ(ids.size(), 6u);
}

TEST(ExplainPage, WritesNamesAsTheyAre) {
  fluid::Program main;
  fluid::Program startup;
  {
    const fluid::ProgramGuard programs(main, startup);
    const auto x = fluid::layers::data("x", {4});
    const auto y = fluid::layers::fc(x, 1, {.param_attr = {.name = "w<b>&\"q\""}});
    fluid::optimizer::SGD({.learning_rate = 0.1}).minimize(fluid::layers::mean(y));
  }
  const std::string page = draw_page(explain(main, startup, {.title = "<i>title</i>"}));
  EXPECT_THAT(page, HasSubstr("w&lt;b&gt;&amp;&quot;q&quot;"));
  EXPECT_THAT(page, Not(HasSubstr("w<b>")));
  EXPECT_THAT(page, Not(HasSubstr("<i>title")));
  expect_well_formed(page);
}

TEST(ExplainPage, StaysSmallForManyServers) {
  const auto net = transpiler::deep_net(60, 128);
  const auto explanation = explain(net.main, net.startup, {.trainers = 500, .servers = 100});
  EXPECT_EQ(explanation.servers.size(), 100u);
  EXPECT_EQ(explanation.main.servers.size(), 8u);
  const std::string page = draw_page(explanation);
  EXPECT_THAT(page, HasSubstr("and 497 more"));
  EXPECT_LT(page.size(), 4'000'000u);
  expect_well_formed(page);
}

TEST(ExplainPage, StaysSmallForManyTrainers) {
  const auto net = transpiler::deep_net(10, 16);
  const auto page_for = [&net](int trainers, const PageOptions& options = {}) {
    return draw_page(explain(net.main, net.startup, {.trainers = trainers, .servers = 2}), options);
  };
  const std::string page = page_for(1000);
  EXPECT_LT(page.size(), page_for(100).size() + 10'000);
  EXPECT_THAT(page, HasSubstr("more bytes; --all shows them"));
  EXPECT_THAT(page, Not(HasSubstr("trainer_999")));
  expect_well_formed(page);
  EXPECT_THAT(page_for(1000, {.most_text = static_cast<size_t>(-1)}), HasSubstr("trainer_999"));
}

TEST(ExplainPage, CutsTextsBetweenCharacters) {
  Explanation explanation = reference();
  explanation.main.local.ops.front().text = "é×" + std::string(100, 'x');
  EXPECT_THAT(draw_page(explanation, {.most_text = 3}),
              HasSubstr("<code>é</code><p class=\"soft\">… and 102 more bytes"));
}

}  // namespace
}  // namespace fleet::explain
