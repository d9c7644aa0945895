// Links, paths and names of the project's pages.
#include "tests/tree/document_rules.h"

#include <filesystem>
#include <gmock/gmock.h>

#include "tests/testing/paths.h"

namespace fleet::tree {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Files and folders of the project, from its root.
std::set<std::string> paths_of_the_tree() {
  std::set<std::string> paths;
  const fs::path root = fleet::testing::source_path("");
  for (auto entry = fs::recursive_directory_iterator(root); entry != fs::end(entry); ++entry) {
    const std::string path = fs::relative(entry->path(), root).generic_string();
    paths.insert(path);
    if (path == "build" || path == ".git") entry.disable_recursion_pending();
  }
  return paths;
}

class Documents : public ::testing::Test {
 protected:
  Documents() : tree_(read_tree(fleet::testing::source_path(""))), paths_(paths_of_the_tree()) {
    for (const SourceFile& file : tree_) {
      if (file.path.ends_with(".md")) pages_.push_back(file);
    }
  }

  const std::vector<SourceFile> tree_;
  const std::set<std::string> paths_;
  std::vector<SourceFile> pages_;
};

TEST_F(Documents, LinksLeadSomewhere) {
  EXPECT_GT(pages_.size(), 15U);
  for (const SourceFile& page : pages_) EXPECT_THAT(check_links(page, pages_, paths_), IsEmpty());
}

TEST_F(Documents, PathsAreThere) {
  for (const SourceFile& page : pages_) EXPECT_THAT(check_paths(page, paths_), IsEmpty());
}

TEST_F(Documents, NamesAreThere) {
  const auto identifiers = identifiers_of_headers(tree_);
  for (const SourceFile& page : pages_) EXPECT_THAT(check_names(page, identifiers), IsEmpty());
}

TEST(DocumentRules, AnchorsAreThoseOfRenderers) {
  EXPECT_THAT(anchors("# A page\ntext\n## When a run, alone, ends\n"),
              ElementsAre("a-page", "when-a-run-alone-ends"));
}

TEST(DocumentRules, FindLinksThatLeadNowhere) {
  const std::vector<SourceFile> pages = {{"docs/a.md",
                                          "[b](b.md) [c](c.md)\n[h](b.md#there)\n"
                                          "[x](https://example.org/x.md) [i](#no)\n"},
                                         {"docs/b.md", "# There\n"}};
  EXPECT_THAT(check_links(pages[0], pages, {"docs/a.md", "docs/b.md"}),
              ElementsAre(HasSubstr("docs/a.md:1: links to 'c.md'"), HasSubstr("docs/a.md:3: ")));
}

TEST(DocumentRules, FindPathsThatAreNotThere) {
  const SourceFile page = {"README.md", "`base/a.h` `base/b.h` `build/x` `other/a.h` `base/c/`\n"};
  EXPECT_THAT(check_paths(page, {"base", "base/a.h", "build", "base/c"}),
              ElementsAre(HasSubstr("base/b.h")));
}

TEST(DocumentRules, FindNamesThatNoHeaderHas) {
  const std::vector<SourceFile> tree = {{"base/a.h", "void run();  // gone\n"},
                                        {"tests/b.h", "void only_in_tests();\n"}};
  const SourceFile page = {"README.md",
                           "`fleet::run()`, fluid::io::gone\nfleet::only_in_tests std::move\n"};
  EXPECT_THAT(check_names(page, identifiers_of_headers(tree)),
              ElementsAre(HasSubstr("README.md:1: no header has 'fluid::io::gone'"),
                          HasSubstr("README.md:2: ")));
}

}  // namespace
}  // namespace fleet::tree
