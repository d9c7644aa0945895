// The rules themselves: each finds a breach, and leaves what is right alone.
#include "tests/tree/tree_rules.h"

#include <gmock/gmock.h>

namespace fleet::tree {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kTable =
    "set(FLEET_LAYERS\n  \"base:\"\n  \"fluid_core: base\"\n  \"transport: base\"\n"
    "  \"mpi_session: base\"\n  \"fleet: base fluid_core transport\"\n)\n";

LayerMap layers() {
  return LayerMap(kTable, {{"transport/CMakeLists.txt",
                            "fleet_add_library(transport\n  SOURCES link.cc\n  DEPENDS base)\n"
                            "fleet_add_library(mpi_session SOURCES mpi_session.cc)\n"}});
}

std::string function_of(int lines) {
  std::string text = "void f() {\n";
  for (int i = 2; i < lines; ++i) text += "  g();\n";
  return text + "}\n";
}

TEST(FunctionLengths, SeventyLinesPassAndOneMoreDoesNot) {
  EXPECT_THAT(check_function_lengths({"base/a.cc", function_of(70)}), IsEmpty());
  EXPECT_THAT(check_function_lengths({"base/a.cc", "\n" + function_of(71)}),
              ElementsAre(HasSubstr("base/a.cc:2: a function of 71 lines")));
}

TEST(FunctionLengths, KernelsAndOtherLanguagesAreExcepted) {
  EXPECT_THAT(check_function_lengths({"fluid/kernels/cpu/a.cc", function_of(90)}), IsEmpty());
  EXPECT_THAT(check_function_lengths({"docs/a.md", function_of(90)}), IsEmpty());
}

TEST(SourceLength, NineHundredLinesPassAndOneMoreDoesNot) {
  EXPECT_THAT(check_source_length({"base/a.cc", std::string(900, '\n')}), IsEmpty());
  EXPECT_THAT(check_source_length({"base/a.cc", std::string(901, '\n')}),
              ElementsAre(HasSubstr("901 lines")));
}

TEST(Layers, AnEdgeOutsideTheTableIsFound) {
  EXPECT_THAT(check_layers({"fluid/core/a.cc", "#include \"transport/link.h\"\n"}, layers()),
              ElementsAre(HasSubstr("fluid/core/a.cc:1: library fluid_core may not include")));
  EXPECT_THAT(check_layers({"fluid/core/a.cc", "#include \"base/error.h\"\n"}, layers()),
              IsEmpty());
}

TEST(Layers, ALibraryInsideAnotherOnesFolderIsItsOwn) {
  EXPECT_EQ(layers().library_of("transport/mpi_session.h"), "mpi_session");
  EXPECT_EQ(layers().library_of("transport/link.h"), "transport");
  EXPECT_THAT(
      check_layers({"transport/link.cc", "#include \"transport/mpi_session.h\"\n"}, layers()),
      ElementsAre(HasSubstr("library transport may not include")));
}

TEST(Layers, SubFoldersBelongToTheLibraryAbove) {
  EXPECT_EQ(layers().library_of("fluid/core/detail/a.h"), "fluid_core");
}

TEST(Layers, LibrariesIncludeNoTestsAndNoUmbrella) {
  EXPECT_THAT(check_layers({"base/a.cc", "#include \"tests/testing/cluster.h\"\n"}, layers()),
              ElementsAre(HasSubstr("tests/testing/cluster.h")));
  EXPECT_THAT(check_layers({"base/a.cc", "#include \"fluid/fluid.h\"\n"}, layers()),
              ElementsAre(HasSubstr("fluid/fluid.h")));
  EXPECT_THAT(check_layers({"fleet/fleet.h", "#include \"fluid/fluid.h\"\n"}, layers()), IsEmpty());
}

TEST(Layers, TestsAndExamplesMayIncludeAnything) {
  EXPECT_THAT(check_layers({"tests/base/a.cc", "#include \"transport/link.h\"\n"}, layers()),
              IsEmpty());
}

TEST(Listed, ASourceThatNoListNamesIsFound) {
  EXPECT_THAT(check_listed({"transport/link.cc", ""}, layers()), IsEmpty());
  EXPECT_THAT(check_listed({"transport/dead.cc", ""}, layers()),
              ElementsAre(HasSubstr("transport/dead.cc:1: no CMakeLists.txt")));
}

TEST(PublicHeaders, ForeignHeadersStayInPrivateOnes) {
  const std::string text = "#pragma once\n#include <boost/asio.hpp>\n";
  EXPECT_THAT(check_public_header({"transport/link.h", text}, layers()),
              ElementsAre(HasSubstr("transport/link.h:2: <boost/asio.hpp>")));
  EXPECT_THAT(check_public_header({"transport/loop_impl.h", text}, layers()), IsEmpty());
  EXPECT_THAT(check_public_header({"transport/link.cc", text}, layers()), IsEmpty());
  EXPECT_THAT(check_public_header({"transport/link.h", "#include <mpi.h>\n"}, layers()),
              ElementsAre(HasSubstr("<mpi.h>")));
}

TEST(PublicHeaders, DoNotIncludePrivateOnes) {
  const std::string text = "#pragma once\n#include \"transport/loop_impl.h\"\n";
  EXPECT_THAT(check_public_header({"transport/link.h", text}, layers()),
              ElementsAre(HasSubstr("transport/link.h:2: <transport/loop_impl.h>")));
  EXPECT_THAT(check_public_header({"transport/other_impl.h", text}, layers()), IsEmpty());
}

TEST(HeaderHabits, OwnHeaderComesFirstAndHeadersHaveTheirPragma) {
  const std::set<std::string> headers = {"base/a.h"};
  EXPECT_THAT(
      check_header_habits({"base/a.cc", "#include <map>\n#include \"base/a.h\"\n"}, headers),
      ElementsAre(HasSubstr("not included first")));
  EXPECT_THAT(check_header_habits({"base/a.cc", "#include \"base/a.h\"\n"}, headers), IsEmpty());
  EXPECT_THAT(check_header_habits({"base/b.cc", "#include <map>\n"}, headers), IsEmpty());
  EXPECT_THAT(check_header_habits({"base/a.h", "int f();\n"}, headers),
              ElementsAre(HasSubstr("#pragma once")));
}

TEST(Words, MarkersAndHomePathsAreFound) {
  const std::string marker = std::string("// TO") + "DO: later\n";
  const std::string path = std::string("cd /ho") + "me/someone\n";
  EXPECT_THAT(check_words({"base/a.cc", "int a;\n" + marker}),
              ElementsAre(HasSubstr("base/a.cc:2: 'TO")));
  EXPECT_THAT(check_words({"scripts/a.sh", path}), ElementsAre(HasSubstr("scripts/a.sh:1:")));
  EXPECT_THAT(check_words({"base/a.cc", "int mastodon = hackney();\n"}), IsEmpty());
}

TEST(Dialect, OwnWordsForWhatTheFieldNamesAreFound) {
  EXPECT_THAT(check_dialect({"base/a.cc", "int a;\n// As in the original's trainer.\n"}),
              ElementsAre(AllOf(HasSubstr("base/a.cc:2:"), HasSubstr("Paddle"))));
  EXPECT_THAT(check_dialect({"docs/a.md", "Gradients of rows travel.\ndeal_order\n"}),
              ElementsAre(HasSubstr("docs/a.md:1:"), HasSubstr("docs/a.md:2:")));
  EXPECT_THAT(check_dialect({"base/a.cc", "Tensor original = rows; // a parameter's gradient\n"}),
              IsEmpty());
}

TEST(Folders, ThirtySourcesPassAndOneMoreDoesNot) {
  std::vector<SourceFile> tree;
  for (int i = 0; i < 30; ++i) {
    const std::string suffix = i % 2 == 0 ? ".cc" : ".h";
    tree.push_back({"base/f" + std::to_string(i) + suffix, ""});
  }
  EXPECT_THAT(check_folders(tree), IsEmpty());
  tree.push_back({"base/one_more.cc", ""});
  EXPECT_THAT(check_folders(tree), ElementsAre(HasSubstr("base: 31 sources")));
}

TEST(TestPlaces, ATestLiesWhereTheTreeHasWhatItTests) {
  std::vector<SourceFile> tree = {{"base/a.h", ""},
                                  {"base/net/b_impl.h", ""},
                                  {"fluid/core/a.cc", ""},
                                  {"tests/base/a_test.cc", ""},
                                  {"tests/base/net/b_test.cc", ""},
                                  {"tests/fluid/core/a_test.cc", ""},
                                  {"tests/fluid/whole_test.cc", ""},
                                  {"tests/faults/kills_test.cc", ""},
                                  {"tests/testing/helper.cc", ""}};
  EXPECT_THAT(check_test_places(tree), IsEmpty());
  tree.push_back({"tests/fluid/a_test.cc", ""});
  tree.push_back({"tests/base/b_test.cc", ""});
  EXPECT_THAT(check_test_places(tree),
              ElementsAre("tests/fluid/a_test.cc:1: a is in base, fluid/core, so its test belongs "
                          "below tests/ there",
                          HasSubstr("tests/base/b_test.cc:1: b is in base/net,")));
}

TEST(TestPlaces, AFolderOfTestsThatMirrorsNothingIsFound) {
  const std::vector<SourceFile> tree = {{"base/a.h", ""}, {"tests/modes/whole_test.cc", ""}};
  EXPECT_THAT(check_test_places(tree), ElementsAre(HasSubstr("there is no folder modes/ to test")));
}

TEST(TopLevel, AFolderThatTheArchitectureDoesNotNameIsFound) {
  const std::vector<SourceFile> tree = {{"base/a.cc", ""}, {"stray/a.cc", ""}, {"README.md", ""}};
  EXPECT_THAT(check_top_level(tree, "`base/` errors"), ElementsAre(HasSubstr("stray/: ")));
}

}  // namespace
}  // namespace fleet::tree
