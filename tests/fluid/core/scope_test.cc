#include "fluid/core/scope.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace fleet::fluid {
namespace {

TEST(Scope, ChildrenSeeTheirParentsValues) {
  Scope parent;
  const Scope child(&parent);
  parent.var("w") = Tensor::scalar(3.0f);
  EXPECT_EQ(child.find("w"), parent.find("w"));
  EXPECT_EQ(child.find_local("w"), nullptr);
  EXPECT_EQ(child.tensor("w").item<float>(), 3);
  EXPECT_THROW(child.tensor("v"), Error);
}

TEST(Scope, KeepsAddressesAndTellsWhenItChanges) {
  Scope parent;
  Scope child(&parent);
  Value* w = &parent.var("w");
  const uint64_t before = child.revision();
  EXPECT_EQ(&parent.var("w"), w);
  EXPECT_EQ(child.revision(), before);
  parent.var("v");
  EXPECT_NE(child.revision(), before);
  EXPECT_EQ(parent.find("w"), w);
  const uint64_t grown = child.revision();
  parent.erase("v");
  EXPECT_NE(child.revision(), grown);
  EXPECT_EQ(parent.find("v"), nullptr);
  parent.erase("absent");
  EXPECT_NE(Scope().revision(), Scope().revision());
}

TEST(Scope, RefusesOtherKindsOfValuesAsTensors) {
  Scope scope;
  scope.var("rows") = SelectedRows();
  EXPECT_THROW(scope.tensor("rows"), Error);
  EXPECT_EQ(scope.local_names(), std::vector<std::string>{"rows"});
}

}  // namespace
}  // namespace fleet::fluid
