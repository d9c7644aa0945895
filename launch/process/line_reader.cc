#include "launch/process/line_reader.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace fleet::launch {

FileDescriptor duplicate_of_stdin() {
  return FileDescriptor(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));
}

LineReader::LineReader(EventLoop& loop, FileDescriptor source, std::string begun,
                       LineHandler handler, size_t longest)
    : loop_(loop),
      source_(std::move(source)),
      partial_(std::move(begun)),
      handler_(std::move(handler)),
      longest_(longest) {
  ::fcntl(source_.get(), F_SETFL, ::fcntl(source_.get(), F_GETFL) | O_NONBLOCK);
  loop_.watch(source_.get(), [this] { read_some(); });
}

LineReader::~LineReader() {
  if (source_) loop_.unwatch(source_.get());
}

void LineReader::read_some() {
  char bytes[4096];
  ssize_t count = 0;
  while ((count = ::read(source_.get(), bytes, sizeof(bytes))) > 0) {
    partial_.append(bytes, static_cast<size_t>(count));
    hand_over();
  }
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  loop_.unwatch(source_.get());
  source_.reset();
  if (on_end_) on_end_();
}

void LineReader::hand_over() {
  size_t begin = 0;
  for (size_t end = 0; (end = partial_.find('\n', begin)) != std::string::npos;) {
    handler_(std::string_view(partial_).substr(begin, end - begin));
    begin = end + 1;
  }
  partial_.erase(0, begin);
  if (partial_.size() > longest_) partial_.clear();
}

}  // namespace fleet::launch
