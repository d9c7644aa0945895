# oneDNN as the imported target oneDNN::cpu. Debian's own package configuration insists on OpenCL
# development files, which a CPU program does not need, so header and library are looked up here.
find_path(OneDNN_INCLUDE_DIR dnnl.hpp PATH_SUFFIXES oneapi/dnnl)
find_library(OneDNN_LIBRARY dnnl)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN REQUIRED_VARS OneDNN_LIBRARY OneDNN_INCLUDE_DIR)
if(OneDNN_FOUND AND NOT TARGET oneDNN::cpu)
  add_library(oneDNN::cpu UNKNOWN IMPORTED)
  set_target_properties(oneDNN::cpu PROPERTIES
    IMPORTED_LOCATION "${OneDNN_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${OneDNN_INCLUDE_DIR}")
endif()
mark_as_advanced(OneDNN_INCLUDE_DIR OneDNN_LIBRARY)
