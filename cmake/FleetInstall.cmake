# What `cmake --install` gives: libraries, public headers under include/fleet-1, the launchers, and
# a package for find_package(Fleet), whose Fleet::fleet is all of the framework. Its parts
# are Fleet::fleet_base and so on. Component runtime: the programs; development: the rest.
include(CMakePackageConfigHelpers)

get_property(FLEET_INSTALLED_LIBRARIES GLOBAL PROPERTY FLEET_LIBRARIES)
list(REMOVE_ITEM FLEET_INSTALLED_LIBRARIES fleet_tools fleet_tools_comm_bench fleet_tools_inspect
     fleet_tools_make_criteo fleet_experiments)

add_library(fleet_everything INTERFACE)
add_library(Fleet::fleet ALIAS fleet_everything)
target_link_libraries(fleet_everything INTERFACE ${FLEET_INSTALLED_LIBRARIES})
set_target_properties(fleet_everything PROPERTIES EXPORT_NAME fleet)

set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/Fleet")
install(TARGETS fleet_everything ${FLEET_INSTALLED_LIBRARIES} EXPORT FleetTargets
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development)
install(EXPORT FleetTargets NAMESPACE Fleet:: DESTINATION "${package_folder}"
        COMPONENT development)

# Private headers are named *_impl.h.
install(DIRECTORY base fluid transport role_maker transpiler strategies fleet launch
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/fleet-1" COMPONENT development
        FILES_MATCHING PATTERN "*.h" PATTERN "*_impl.h" EXCLUDE)

install(DIRECTORY tools/explain DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/fleet-1/tools"
        COMPONENT development FILES_MATCHING PATTERN "*.h")

set(FLEET_INSTALLED_PROGRAMS launch launch_ps fleet_agent fleet_report fleet_explain
    fleet_comm_bench fleet_inspect)
install(TARGETS ${FLEET_INSTALLED_PROGRAMS}
        RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT runtime)
# Builds all that is installed, and nothing else.
add_custom_target(fleet_installed)
add_dependencies(fleet_installed ${FLEET_INSTALLED_LIBRARIES} ${FLEET_INSTALLED_PROGRAMS})

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/FleetConfig.cmake.in"
                              "${PROJECT_BINARY_DIR}/FleetConfig.cmake"
                              INSTALL_DESTINATION "${package_folder}")
# Until 1.0 a minor version may change what users see.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/FleetConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/FleetConfig.cmake"
              "${PROJECT_BINARY_DIR}/FleetConfigVersion.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindOneDNN.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindZstd.cmake"
        DESTINATION "${package_folder}" COMPONENT development)
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT runtime)
