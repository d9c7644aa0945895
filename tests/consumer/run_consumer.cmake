# Installs the build FLEET_BUILD into WORK/prefix, then configures, builds and runs
# CONSUMER_SOURCE against it.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "'${ARGN}' failed (${status}):\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${WORK}")
if(SANITIZE)
  set(flags "-fsanitize=${SANITIZE}")
endif()
run("${CMAKE_COMMAND}" --install "${FLEET_BUILD}" --prefix "${WORK}/prefix")
run("${CMAKE_COMMAND}" -S "${CONSUMER_SOURCE}" -B "${WORK}/build" -G "${GENERATOR}"
    "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}" "-DCMAKE_CXX_FLAGS=${flags}"
    "-DCMAKE_PREFIX_PATH=${WORK}/prefix" -DCMAKE_BUILD_TYPE=Release)
run("${CMAKE_COMMAND}" --build "${WORK}/build")
run("${WORK}/build/consumer")
message(STATUS "${output}")

# A strategy from outside the library, alone and as two ranks.
run("${CMAKE_COMMAND}" -S "${CUSTOM_STRATEGY_SOURCE}" -B "${WORK}/custom_strategy" -G "${GENERATOR}"
    "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}" "-DCMAKE_CXX_FLAGS=${flags}"
    "-DCMAKE_PREFIX_PATH=${WORK}/prefix" -DCMAKE_BUILD_TYPE=Release)
run("${CMAKE_COMMAND}" --build "${WORK}/custom_strategy")
run("${WORK}/custom_strategy/custom_strategy")
message(STATUS "${output}")
if(NOT SANITIZE)  # what Open MPI leaks is not ours
  run("${WORK}/prefix/bin/launch" --nproc_per_node 2 --tee --log_dir "${WORK}/logs"
      "${WORK}/custom_strategy/custom_strategy")
  message(STATUS "${output}")
  string(FIND "${output}" "collective: loss after 200 steps" found)
  if(found EQUAL -1)
    message(FATAL_ERROR "the custom strategy did not train:\n${output}")
  endif()
endif()

# The package stands alone: nothing installed points back into the tree it came from.
file(GLOB_RECURSE installed "${WORK}/prefix/*.cmake" "${WORK}/prefix/*.h")
foreach(file IN LISTS installed)
  file(READ "${file}" text)
  string(FIND "${text}" "${FLEET_BUILD}" found)
  if(NOT found EQUAL -1)
    string(FIND "${text}" "${WORK}" own)
    if(own EQUAL -1)
      message(FATAL_ERROR "${file} points into ${FLEET_BUILD}")
    endif()
  endif()
  if(file MATCHES "_impl\\.h$")
    message(FATAL_ERROR "${file} is private and must not be installed")
  endif()
endforeach()
foreach(program launch launch_ps fleet_agent fleet-explain)
  run("${WORK}/prefix/bin/${program}" --version)
endforeach()
