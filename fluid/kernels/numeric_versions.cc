#include "fluid/kernels/numeric_versions.h"

#include <algorithm>
#include <cstring>
#include <dnnl.hpp>
#include <elf.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <oneapi/dnnl/dnnl_debug.h>
#include <string_view>

#include "base/environment.h"
#include "base/strings.h"
#include "fluid/kernels/cpu/isa.h"

namespace fleet::fluid {
namespace {

struct BuildId {
  uintptr_t code = 0;  // an address inside of the object that is asked for
  std::string text = "(none)";
};

std::string hex(const unsigned char* bytes, size_t count) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += kDigits[bytes[i] >> 4U];
    text += kDigits[bytes[i] & 15U];
  }
  return text;
}

size_t padded(size_t bytes) {
  return (bytes + 3) / 4 * 4;
}

// The note that the linker writes: owner "GNU", type NT_GNU_BUILD_ID.
void read_notes(const unsigned char* at, size_t left, BuildId& id) {
  while (left >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof note);
    const size_t size = sizeof note + padded(note.n_namesz) + padded(note.n_descsz);
    if (size > left) return;
    const unsigned char* const name = at + sizeof note;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
      id.text = hex(name + 4, std::min<size_t>(note.n_descsz, 8));
    }
    at += size;
    left -= size;
  }
}

int look_at(dl_phdr_info* object, size_t, void* wanted) {
  auto& id = *static_cast<BuildId*>(wanted);
  const auto parts = std::span(object->dlpi_phdr, object->dlpi_phnum);
  const bool here = std::any_of(parts.begin(), parts.end(), [&](const ElfW(Phdr) & part) {
    const uintptr_t begin = object->dlpi_addr + part.p_vaddr;
    return part.p_type == PT_LOAD && id.code >= begin && id.code < begin + part.p_memsz;
  });
  if (!here) return 0;
  for (const ElfW(Phdr) & part : parts) {
    if (part.p_type != PT_NOTE) continue;
    // The loader says addresses as numbers. NOLINTNEXTLINE(performance-no-int-to-ptr)
    read_notes(reinterpret_cast<const unsigned char*>(object->dlpi_addr + part.p_vaddr),
               part.p_memsz, id);
  }
  return 1;
}

std::string build_id() {
  BuildId id;
  id.code = reinterpret_cast<uintptr_t>(&numeric_versions);
  dl_iterate_phdr(look_at, &id);
  return id.text;
}

}  // namespace

std::map<std::string, std::string> numeric_versions() {
  const dnnl_version_t& onednn = *dnnl_version();
  return {
      {"fleet", str_cat(FLEET_VERSION, " build ", build_id())},
      {"loops", cpu::isa_loops().name},
      {"oneDNN", str_cat(onednn.major, ".", onednn.minor, ".", onednn.patch)},
      {"oneDNN_isa", dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa())},
      {"DNNL_MAX_CPU_ISA", Environment::of_process().get("DNNL_MAX_CPU_ISA").value_or("(not set)")},
      {"libc", gnu_get_libc_version()}};
}

}  // namespace fleet::fluid
