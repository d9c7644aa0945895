# Packages of what `cmake --install` gives; scripts/package.sh makes them. For Debian: fleet
# (launchers and tools) and libfleet-dev (headers, static libraries, the CMake package). The archive
# has both, and works in any folder: Fleet's libraries are static, so that programs need no run
# path, and the CMake package finds its files beside itself.
set(CPACK_PACKAGE_NAME fleet)
set(CPACK_PACKAGE_VENDOR "Fleet")
set(CPACK_PACKAGE_CONTACT "Fleet maintainers <maintainers@fleet.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Distributed training for C++ programs")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_PACKAGE_FILE_NAME
    "fleet-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_COMPONENTS_ALL runtime development)
set(CPACK_STRIP_FILES ON)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS OFF)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "Launchers and tools for distributed training: \
launch, launch_ps, fleet_report, fleet-explain, fleet-inspect and fleet-comm-bench.")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME fleet)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
# launch starts its ranks with mpirun.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS openmpi-bin)

set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Headers, static libraries and the CMake package of \
Fleet: parameter servers and all-reduce for C++ training, with the programs and names of Paddle \
Fluid 1.8.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libfleet-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
# What find_package(Fleet) looks for (FleetConfig.cmake.in), in the versions that it asks for.
string(JOIN ", " CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
  "fleet (= ${PROJECT_VERSION})" "libboost-dev (>= 1.74)" "libboost-program-options-dev (>= 1.74)"
  "libcereal-dev (>= 1.3)" "nlohmann-json3-dev (>= 3.9)" "libssl-dev (>= 3)" zlib1g-dev libzstd-dev
  libdnnl-dev libopenmpi-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "cmake (>= 3.25), g++ (>= 4:12)")
include(CPack)
