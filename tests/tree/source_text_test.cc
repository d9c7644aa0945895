#include "tests/tree/source_text.h"

#include <gmock/gmock.h>

namespace fleet::tree {
namespace {

using ::testing::ElementsAre;

std::vector<int> lengths(std::string_view text) {
  std::vector<int> result;
  for (const FunctionSpan& function : find_functions(text)) result.push_back(function.lines);
  return result;
}

TEST(BlankComments, KeepsLinesAndLiterals) {
  EXPECT_EQ(blank_comments("a; // b\n/* c\nd */e \"// no\""), "a;     \n    \n    e \"// no\"");
}

TEST(BlankLiterals, KnowsEscapesRawStringsAndDigitSeparators) {
  EXPECT_EQ(blank_comments_and_literals(R"(f("a\"{", '{', 1'000);)"), "f(\"    \", ' ', 1'000);");
  EXPECT_EQ(blank_comments_and_literals("R\"x({)\")x\" {"), std::string(11, ' ') + "{");
}

TEST(FindFunctions, CountsHeadAndBody) {
  const auto functions =
      find_functions("namespace a {\n\nint f(int x,\n      int y) {\n  return x;\n}\n}\n");
  ASSERT_EQ(functions.size(), 1u);
  EXPECT_EQ(functions[0].head, "int f(int x, int y)");
  EXPECT_EQ(functions[0].first_line, 3);
  EXPECT_EQ(functions[0].lines, 4);
}

TEST(FindFunctions, SeesMethodsInsideClasses) {
  EXPECT_THAT(
      lengths("class A {\n public:\n  int f() const {\n    return 1;\n  }\n  void g();\n};\n"),
      ElementsAre(3));
}

TEST(FindFunctions, CountsLambdasAndBlocksIntoTheFunctionAround) {
  EXPECT_THAT(
      lengths("void f() {\n  auto g = [](int x) {\n    return x;\n  };\n  if (g(1)) {\n  }\n}\n"),
      ElementsAre(7));
}

TEST(FindFunctions, SkipsTablesAndDirectives) {
  EXPECT_THAT(
      lengths(
          "#define F(x) {\nconst Row kRows[] = {\n    row(1),\n    {row(2)},\n};\nint f() {\n}\n"),
      ElementsAre(2));
}

TEST(FindFunctions, UnderstandsConstructorsWithBracedInitialisers) {
  EXPECT_THAT(lengths("A::A(int x)\n    : a_{x}, b_(x) {\n  f();\n}\nvoid g() {\n}\n"),
              ElementsAre(4, 2));
}

TEST(FindFunctions, UnderstandsTemplatesAndStructs) {
  EXPECT_THAT(
      lengths(
          "template <class T>\nstruct S : B<T> {\n  T t{};\n};\ntemplate <class T>\nT f(T t) {\n"
          "  return t;\n}\n"),
      ElementsAre(4));
}

TEST(FindIncludes, SkipsCommentedOnes) {
  const auto includes = find_includes("#include \"a/b.h\"\n// #include \"c.h\"\n#include <d>\n");
  ASSERT_EQ(includes.size(), 2u);
  EXPECT_EQ(includes[0].path, "a/b.h");
  EXPECT_TRUE(includes[0].quoted);
  EXPECT_EQ(includes[1].path, "d");
  EXPECT_EQ(includes[1].line, 3);
}

TEST(Statements, DoNotDependOnLineBreaksOrComments) {
  EXPECT_EQ(statements("int a =\n    f(x,  // why\n      y);\n"), statements("int a = f(x, y);"));
  EXPECT_THAT(statements("#include <a>\nfor (int i = 0; i < n; ++i) {\n  g();\n}\n"),
              ElementsAre("#include <a>", "for (int i = 0; i < n; ++i) {", "g();", "}"));
}

TEST(DiffStatements, CountsAReplacedStatementOnce) {
  const auto diff = diff_statements({"a;", "b;", "c;"}, {"a;", "x;", "c;", "d;"});
  EXPECT_THAT(diff.removed, ElementsAre("b;"));
  EXPECT_THAT(diff.added, ElementsAre("x;", "d;"));
  EXPECT_EQ(diff.changed_lines, 2);
}

TEST(DiffStatements, FindsNothingBetweenEqualPrograms) {
  const auto diff = diff_statements({"a;", "b;"}, {"a;", "b;"});
  EXPECT_EQ(diff.changed_lines, 0);
}

}  // namespace
}  // namespace fleet::tree
