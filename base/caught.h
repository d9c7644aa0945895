// What a thread that must not end by an exception does with one.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "base/error.h"
#include "base/status.h"

namespace fleet {

// Inside a catch block: what was caught. A fleet::Error as it is; std::bad_alloc is kNoMemory and
// anything else kInternal, with this `where`.
inline Status caught_status(std::string where) {
  const auto status = [&where](ErrorCode code, std::string what, std::string fix) {
    return Status(code, {.what = std::move(what),
                         .where = std::move(where),
                         .expected = {},
                         .got = {},
                         .fix = std::move(fix)});
  };
  try {
    throw;
  } catch (const Error& error) {
    return Status(error.code(), error.text());
  } catch (const std::bad_alloc&) {
    return status(ErrorCode::kNoMemory, "this process has no memory left",
                  "raise its memory limit (ulimit -v, a container's), or use less: smaller batches "
                  "or tables; more servers share tables and parameters");
  } catch (const std::exception& error) {
    return status(ErrorCode::kInternal, error.what(), "mend what the message names");
  } catch (...) {
    return status(ErrorCode::kInternal, "an exception that is none of the standard's",
                  "see the process's log");
  }
}

}  // namespace fleet
