#include "launch/process/run_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

#include "base/error.h"
#include "base/process/file_descriptor.h"

namespace fleet::launch {

RunFolder::RunFolder() {
  const char* temporary = std::getenv("TMPDIR");
  for (const char* parent : {"/dev/shm", temporary, "/tmp"}) {
    if (parent == nullptr || *parent == '\0') continue;
    std::string name = std::string(parent) + "/fleet-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) continue;
    path_ = name;
    return;
  }
  throw_error(ErrorCode::kInput, {.what = "cannot make a folder for the job",
                                  .where = "/dev/shm, TMPDIR, /tmp",
                                  .expected = "a folder that this user may write to",
                                  .got = std::strerror(errno),
                                  .fix = "set TMPDIR to such a folder"});
}

RunFolder::~RunFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string RunFolder::write_private(const std::string& name, std::string_view text) const {
  const std::string file_path = path_ + "/" + name;
  const FileDescriptor file(
      ::open(file_path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    throw_error(ErrorCode::kInput, {.what = "cannot write a private file of the job",
                                    .where = file_path,
                                    .expected = "room for it",
                                    .got = std::strerror(errno),
                                    .fix = "free some space there, or set TMPDIR"});
  }
  return file_path;
}

}  // namespace fleet::launch
