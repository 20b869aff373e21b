# The headers of cuDNN's C++ frontend (no library). Defines CUDNN::frontend and CUDNNFrontend_VERSION. Looks into
# CUDNNFrontend_ROOT, the toolkit's directory, and where scripts/fetch_cudnn_frontend.sh puts them.
include(FindPackageHandleStandardArgs)

find_path(CUDNNFrontend_INCLUDE_DIR cudnn_frontend.h
          HINTS ${CUDAToolkit_INCLUDE_DIRS} ${PROJECT_SOURCE_DIR}/build/cudnn_frontend PATH_SUFFIXES include)
mark_as_advanced(CUDNNFrontend_INCLUDE_DIR)

if(CUDNNFrontend_INCLUDE_DIR)
  file(STRINGS ${CUDNNFrontend_INCLUDE_DIR}/cudnn_frontend_version.h lines
       REGEX "^#define CUDNN_FRONTEND_(MAJOR|MINOR|PATCH)_VERSION +[0-9]+")
  string(REGEX REPLACE "[^0-9;]+" "" CUDNNFrontend_VERSION "${lines}")
  string(REPLACE ";" "." CUDNNFrontend_VERSION "${CUDNNFrontend_VERSION}")
endif()
find_package_handle_standard_args(CUDNNFrontend REQUIRED_VARS CUDNNFrontend_INCLUDE_DIR
                                  VERSION_VAR CUDNNFrontend_VERSION)

if(CUDNNFrontend_FOUND AND NOT TARGET CUDNN::frontend)
  add_library(CUDNN::frontend INTERFACE IMPORTED)
  # A system directory: the warnings of these headers are not ours.
  set_target_properties(CUDNN::frontend PROPERTIES
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES ${CUDNNFrontend_INCLUDE_DIR}
    INTERFACE_INCLUDE_DIRECTORIES ${CUDNNFrontend_INCLUDE_DIR})
endif()
