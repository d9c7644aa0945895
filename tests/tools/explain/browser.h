// A Chromium without a window, driven through the pipe of its developer tools. For tests.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <sys/types.h>
#include <vector>

namespace fleet::testing {

class Browser {
 public:
  // The program, or nothing where there is none.
  static std::string installed();

  // Starts it, with a profile of its own in this folder. Throws std::runtime_error.
  explicit Browser(const std::filesystem::path& profile);
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;
  // Ends it with all its processes.
  ~Browser();

  struct Shown {
    nlohmann::json value;               // what the script gave
    std::vector<std::string> console;   // everything said there, and exceptions that nobody caught
    std::vector<std::string> requests;  // of anything but the page itself and what it holds
  };
  // Opens the address on a screen of this size, of a phone if it is narrow; when it has loaded,
  // runs the script, whose promise is awaited.
  Shown open(const std::string& url, int width, int height, const std::string& script);

 private:
  using Json = nlohmann::json;
  void spawn(const std::filesystem::path& profile);
  void write(const std::string& message) const;
  Json read();
  Json call(const std::string& method, const Json& params);
  void wait_for(const std::string& event);
  void hear(const Json& event, const std::string& url, Shown& shown) const;

  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  int last_id_ = 0;
  std::string session_;
  std::string received_;
  std::vector<Json> events_;
};

}  // namespace fleet::testing
