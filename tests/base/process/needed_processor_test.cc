// Programs name the processors that they need (x86-64-v3), so that a machine without them refuses
// to start them, in words, where an instruction would end them otherwise.
#include <cstdint>
#include <cstring>
#include <elf.h>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>
#include <string>

#include "tests/testing/command.h"

namespace fleet {
namespace {

constexpr uint32_t kNeeded = 0xc0008002;  // GNU_PROPERTY_X86_ISA_1_NEEDED
constexpr uint32_t kVersion3 = 1U << 2;

// The properties of an ELF note: type, size, and data in steps of 8 bytes.
uint32_t needed_in(const char* at, const char* end) {
  while (end - at >= 8) {
    uint32_t type = 0;
    uint32_t size = 0;
    uint32_t value = 0;
    std::memcpy(&type, at, 4);
    std::memcpy(&size, at + 4, 4);
    if (type == kNeeded && size >= 4) {
      std::memcpy(&value, at + 8, 4);
      return value;
    }
    at += 8 + (size + 7) / 8 * 8;
  }
  return 0;
}

// Of the program itself, which comes first.
int look(dl_phdr_info* info, size_t, void* found) {
  constexpr size_t kHead = sizeof(ElfW(Nhdr)) + 4;  // with the name "GNU"
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_GNU_PROPERTY) continue;
    const auto* note = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
    *static_cast<uint32_t*>(found) = needed_in(note + kHead, note + segment.p_memsz);
  }
  return 1;
}

TEST(NeededProcessor, IsNamedInThePrograms) {
  uint32_t needed = 0;
  dl_iterate_phdr(look, &needed);
  EXPECT_TRUE((needed & kVersion3) != 0) << needed;
}

TEST(NeededProcessor, IsMissedInWords) {
  if (testing::run_command("command -v qemu-x86_64").code != 0) {
    GTEST_SKIP() << "qemu-x86_64 is not installed (apt-get install qemu-user)";
  }
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto old = testing::run_command("qemu-x86_64 -cpu Nehalem " + program);
  EXPECT_NE(old.code, 0);
  EXPECT_THAT(old.output, ::testing::HasSubstr("CPU ISA level is lower than required"));
}

}  // namespace
}  // namespace fleet
