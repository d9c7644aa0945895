// What a thread that must not end by an exception does with one.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "base/error.h"
#include "base/status.h"

namespace fleet {

// Inside a catch block: what was caught. A fleet::Error as it is; anything else is kInternal with
// this `where`, and std::bad_alloc says that memory ran out.
inline Status caught_status(std::string where) {
  const auto internal = [&where](std::string what, std::string fix) {
    return Status(ErrorCode::kInternal, {.what = std::move(what),
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
    return internal("this process has no memory left",
                    "give it more; of servers, a job may have more");
  } catch (const std::exception& error) {
    return internal(error.what(), "mend what the message names");
  } catch (...) {
    return internal("an exception that is none of the standard's", "see the process's log");
  }
}

}  // namespace fleet
