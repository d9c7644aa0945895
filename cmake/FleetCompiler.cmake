# Compiler settings that every target of this project shares, through fleet_compile_options.
set(FLEET_SANITIZE "" CACHE STRING "Sanitizers to build with, for example address,undefined")
option(FLEET_CLANG_TIDY "Run clang-tidy while compiling" OFF)
option(FLEET_JOIN_SOURCES "Compile the sources of a folder together: quicker to build as a whole" ON)
option(FLEET_FUZZ "Build the libFuzzer targets (needs Clang)" OFF)
option(FLEET_ASSERTIONS "Check the standard library's preconditions at run time" OFF)
mark_as_advanced(FLEET_FUZZ)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # What ccache has to be told where headers are precompiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      "${CCACHE_PROGRAM}")
endif()

set(CMAKE_PCH_WARN_INVALID OFF)

# Programs say which processors they need, so that the system refuses to start them elsewhere.
include(CheckLinkerFlag)
check_linker_flag(CXX "LINKER:-z,x86-64-v3" FLEET_LINKER_MARKS_PROCESSORS)

add_library(fleet_compile_options INTERFACE)
# -ffp-contract=off: a value must not depend on whether an element falls into the vector body or
# the scalar tail of a loop, or on how a parameter was sliced. Kernels that want fused
# multiply-add ask for it by name. Options are aggregates, of which callers name a few fields:
# -Wno-missing-field-initializers.
target_compile_options(fleet_compile_options INTERFACE
  -march=x86-64-v3 -mtune=generic -ffp-contract=off -fno-math-errno
  -Wall -Wextra -Wpedantic -Wno-missing-field-initializers -Werror -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports false positives inside libstdc++ for these.
  target_compile_options(fleet_compile_options INTERFACE
    -Wno-maybe-uninitialized -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds
    -Wno-dangling-pointer -Wno-free-nonheap-object)
endif()
if(FLEET_ASSERTIONS)
  target_compile_definitions(fleet_compile_options INTERFACE _GLIBCXX_ASSERTIONS)
endif()
if(FLEET_SANITIZE)
  target_compile_options(fleet_compile_options INTERFACE
    -fsanitize=${FLEET_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -O1 -g1)
  target_link_options(fleet_compile_options INTERFACE -fsanitize=${FLEET_SANITIZE})
  if(FLEET_SANITIZE MATCHES "thread")
    # Asio's fences beside its mutex are the one thing that GCC cannot build with this sanitizer.
    target_compile_definitions(fleet_compile_options INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK)
  endif()
endif()
# For libraries without loops over data.
set(FLEET_COLD_OPTIONS $<$<CONFIG:Release>:-O2>)
# For tests, after the options of the build type: their own code runs once.
set(FLEET_TEST_OPTIONS $<$<CONFIG:Release>:-O1>)
if(FLEET_FUZZ)
  target_compile_options(fleet_compile_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(FLEET_CLANG_TIDY)
  find_program(CLANG_TIDY_PROGRAM NAMES clang-tidy-14 clang-tidy REQUIRED)
  set(CMAKE_CXX_CLANG_TIDY "${CLANG_TIDY_PROGRAM};--quiet")
endif()
