// The library itself, where there is one: a machine without a GPU has its version, too.
#include <gmock/gmock.h>

#include "transport/nccl/nccl.h"

namespace fleet::transport {
namespace {

using ::testing::HasSubstr;

bool is_built() {
  return load_nccl("no such library").status().text().what != "this build has no NCCL";
}

TEST(NcclLibrary, IsFoundOrSaysWhatToDo) {
  const auto loaded = load_nccl();
  if (loaded.ok()) {
    EXPECT_GE(loaded.value()->version(), 21400);
    EXPECT_EQ(loaded.value()->can_shrink(), loaded.value()->version() >= 22800);
    EXPECT_THAT(loaded.value()->path(), HasSubstr("libnccl"));
    EXPECT_THAT(loaded.value()->explain(NcclResult::kInvalidUsage, nullptr), HasSubstr("usage"));
    return;
  }
  EXPECT_EQ(loaded.status().code(), ErrorCode::kNotSupported);
  EXPECT_THAT(loaded.status().text().fix, HasSubstr("install NCCL"));
}

TEST(NcclLibrary, EncryptsOrSaysWhyNot) {
  const auto loaded = load_nccl();
  if (!loaded.ok()) GTEST_SKIP() << loaded.status().to_string();
  const Status encrypts = loaded.value()->encrypt(std::string(64, 'k'));
  if (encrypts.ok()) {
    EXPECT_THAT(loaded.value()->encrypt("short").text().got, HasSubstr("32 bytes"));
    NcclId id{};
    EXPECT_EQ(loaded.value()->unique_id(id), NcclResult::kSuccess) << "listens by TLS";
    return;
  }
  EXPECT_EQ(encrypts.code(), ErrorCode::kNotSupported);
  if (loaded.value()->version() < 23200) {
    EXPECT_THAT(encrypts.text().got, HasSubstr("without ncclSetEncryption"));
  }
  EXPECT_THAT(encrypts.text().fix, HasSubstr("device_sums"));
}

TEST(NcclLibrary, OtherLibrariesAreRefusedByName) {
  if (!is_built()) GTEST_SKIP() << "this build has no NCCL";
  const Status absent = load_nccl("/nowhere/libnccl.so").status();
  EXPECT_EQ(absent.code(), ErrorCode::kNotSupported);
  EXPECT_EQ(absent.text().where, "/nowhere/libnccl.so");
  EXPECT_THAT(absent.text().got, HasSubstr("No such file"));
  const Status other = load_nccl("libc.so.6").status();
  EXPECT_THAT(other.text().got, HasSubstr("a library without ncclGetVersion"));
  EXPECT_THAT(other.text().fix, HasSubstr("NCCL 2.14 or newer"));
}

TEST(NcclLibrary, ResultsHaveItsNames) {
  EXPECT_EQ(name_of(NcclResult::kSuccess), "ncclSuccess");
  EXPECT_EQ(name_of(NcclResult::kInProgress), "ncclInProgress");
  EXPECT_EQ(name_of(static_cast<NcclResult>(99)), "an unknown ncclResult_t");
}

}  // namespace
}  // namespace fleet::transport
