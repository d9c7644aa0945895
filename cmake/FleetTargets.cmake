include(GoogleTest OPTIONAL)
include(GNUInstallDirs)

# Libraries spend much of their build in the system's headers, which they share precompiled; those
# with other options read the headers themselves.
foreach(kind precompiled precompiled_hot)
  add_library(fleet_${kind} OBJECT ${PROJECT_SOURCE_DIR}/cmake/precompiled.cc)
  target_link_libraries(fleet_${kind} PRIVATE fleet_compile_options)
  target_precompile_headers(fleet_${kind} PRIVATE
    <algorithm> <array> <chrono> <cmath> <cstring> <filesystem> <functional> <map> <memory> <mutex>
    <numeric> <optional> <set> <span> <sstream> <string> <thread> <unordered_map> <variant> <vector>
    <cereal/cereal.hpp>)
endforeach()
target_compile_options(fleet_precompiled PRIVATE ${FLEET_COLD_OPTIONS})

# With FLEET_JOIN_SOURCES: the sources of a folder in one unit, which read their headers once. Names
# in them must not clash; that each stands alone, the presets dev and tidy see.
function(fleet_join_sources_of_folders target)
  if(NOT FLEET_JOIN_SOURCES)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  foreach(source IN LISTS ARGN)
    get_filename_component(folder ${source} DIRECTORY)
    string(MAKE_C_IDENTIFIER "in_${folder}" group)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
  endforeach()
  target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
endfunction()

# fleet_add_library(name SOURCES ... HOT ... DEPENDS <layers> PRIVATE_LINK <targets>
#                   PUBLIC_LINK <targets>)
# A static library of this project; DEPENDS are held against the layer table. HOT: sources with
# loops over data. What is measured are those loops as each is compiled alone, with all that the
# compiler can do. The others make up most of the code and little of a job's time: they are
# optimised less, and joined. Builds for sanitizers join all.
function(fleet_add_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;HOT;DEPENDS;PRIVATE_LINK;PUBLIC_LINK" ${ARGN})
  foreach(dependency IN LISTS ARG_DEPENDS)
    fleet_check_edge(${name} ${dependency})
  endforeach()
  list(TRANSFORM ARG_DEPENDS PREPEND fleet_)
  if(FLEET_SANITIZE)
    list(APPEND ARG_SOURCES ${ARG_HOT})
    set(ARG_HOT)
  endif()
  set(loops)
  if(ARG_HOT)
    add_library(fleet_${name}_loops OBJECT ${ARG_HOT})
    target_include_directories(fleet_${name}_loops PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(fleet_${name}_loops
      PRIVATE fleet_compile_options ${ARG_DEPENDS} ${ARG_PUBLIC_LINK} ${ARG_PRIVATE_LINK})
    target_precompile_headers(fleet_${name}_loops REUSE_FROM fleet_precompiled_hot)
    set(loops $<TARGET_OBJECTS:fleet_${name}_loops>)
  endif()
  if(ARG_SOURCES OR ARG_HOT)
    add_library(fleet_${name} STATIC ${ARG_SOURCES} ${loops})
    set(scope PUBLIC)
    target_link_libraries(fleet_${name} PRIVATE $<BUILD_INTERFACE:fleet_compile_options>)
    target_compile_options(fleet_${name} PRIVATE ${FLEET_COLD_OPTIONS})
    target_precompile_headers(fleet_${name} REUSE_FROM fleet_precompiled)
    fleet_join_sources_of_folders(fleet_${name} ${ARG_SOURCES})
  else()
    add_library(fleet_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(fleet_${name} ${scope}
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/fleet-1>)
  target_compile_features(fleet_${name} ${scope} cxx_std_20)
  target_link_libraries(fleet_${name} ${scope} ${ARG_DEPENDS} ${ARG_PUBLIC_LINK})
  if(ARG_PRIVATE_LINK)
    target_link_libraries(fleet_${name} PRIVATE ${ARG_PRIVATE_LINK})
  endif()
  set_property(GLOBAL APPEND PROPERTY FLEET_LIBRARIES fleet_${name})
endfunction()

# fleet_add_executable(name SOURCES ... LINK ...): a program in build/<preset>/bin.
function(fleet_add_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE fleet_compile_options ${ARG_LINK})
endfunction()

# What scripts/sanitize.sh builds: the tests labelled sanitize (asan), and those labelled threads
# (tsan). tests_labelled_<label>.txt in the build folder lists them.
function(fleet_label_test label name)
  set_property(GLOBAL APPEND PROPERTY FLEET_TESTS_${label} ${name})
  get_property(names GLOBAL PROPERTY FLEET_TESTS_${label})
  list(JOIN names "\n" lines)
  file(WRITE ${CMAKE_BINARY_DIR}/tests_labelled_${label}.txt "${lines}\n")
endfunction()

# Tests spend their time in the system's headers and in code that runs once: a precompiled header
# and little optimisation halve what they take to build. -Wno-invalid-pch: a test whose options
# differ reads the headers themselves.
if(FLEET_BUILD_TESTS)
  add_library(fleet_test_paths STATIC EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/testing/paths.cc)
  target_include_directories(fleet_test_paths PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(fleet_test_paths PRIVATE fleet_compile_options)
  target_compile_definitions(fleet_test_paths PRIVATE
    FLEET_SOURCE_DIR="${PROJECT_SOURCE_DIR}" FLEET_BINARY_DIR="${CMAKE_BINARY_DIR}")

  add_executable(fleet_test_precompiled EXCLUDE_FROM_ALL
    ${PROJECT_SOURCE_DIR}/tests/testing/precompiled.cc)
  target_link_libraries(fleet_test_precompiled PRIVATE fleet_compile_options GTest::gmock_main)
  target_compile_options(fleet_test_precompiled PRIVATE ${FLEET_TEST_OPTIONS})
  target_precompile_headers(fleet_test_precompiled PRIVATE
    <gmock/gmock.h> <gtest/gtest.h> <algorithm> <array> <chrono> <cmath> <cstring> <filesystem>
    <functional> <map> <memory> <numeric> <optional> <random> <set> <span> <sstream> <string>
    <thread> <vector>)
endif()

# fleet_add_test(name SOURCES ... LINK ... [LABELS ...] [TIMEOUT s] [SERIAL] [ALONE]): a GoogleTest
# binary, one CTest entry per case. Each binary is its own target, named like the test. ALONE: names
# in its sources clash, so they are never joined.
function(fleet_add_test name)
  cmake_parse_arguments(ARG "SERIAL;ALONE" "TIMEOUT" "SOURCES;LINK;LABELS;ENVIRONMENT" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE
    fleet_compile_options ${ARG_LINK} fleet_test_paths GTest::gmock_main)
  target_compile_options(${name} PRIVATE ${FLEET_TEST_OPTIONS})
  target_precompile_headers(${name} REUSE_FROM fleet_test_precompiled)
  if(FLEET_JOIN_SOURCES AND NOT ARG_ALONE)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
    target_compile_options(${name} PRIVATE -Wno-subobject-linkage)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  set(properties TIMEOUT ${ARG_TIMEOUT})
  if(ARG_LABELS)
    # gtest_discover_tests takes no lists: several labels become one, "sanitize,threads".
    list(JOIN ARG_LABELS "," labels)
    list(APPEND properties LABELS "${labels}")
    foreach(label IN ITEMS sanitize threads)
      if(label IN_LIST ARG_LABELS)
        fleet_label_test(${label} ${name})
      endif()
    endforeach()
  endif()
  if(ARG_ENVIRONMENT)
    list(APPEND properties ENVIRONMENT "${ARG_ENVIRONMENT}")
  endif()
  if(ARG_SERIAL)
    list(APPEND properties RUN_SERIAL TRUE)
  endif()
  gtest_discover_tests(${name} TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST
                       PROPERTIES ${properties})
endfunction()

# fleet_sanitize_whole(name): all cases of a test under asan, in one process, since a process for
# each of many short ones would take minutes.
function(fleet_sanitize_whole name)
  fleet_label_test(sanitize ${name})
  if(FLEET_SANITIZE)
    add_test(NAME ${name}_whole COMMAND ${name})
    set_tests_properties(${name}_whole PROPERTIES LABELS sanitize TIMEOUT 1500)
  endif()
endfunction()
