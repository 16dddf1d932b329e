# SPDX-License-Identifier: Apache-2.0
# The switch DRAFTBOARD_WITH_CUDA. Sets DRAFTBOARD_CUDA to TRUE where CUDA code is compiled, and
# DRAFTBOARD_CUDA_SUMMARY to a sentence. The language is enabled only if backend/ has .cu files, so that
# a machine without a compiler for it builds everything else.
#   AUTO  compile CUDA code where nvcc is found (PATH, CUDACXX, CUDA_HOME, /usr/local/cuda)
#   ON    fail where it is not found
#   OFF   never
set(DRAFTBOARD_WITH_CUDA AUTO CACHE STRING "Compile the CUDA backend: AUTO, ON or OFF")
set_property(CACHE DRAFTBOARD_WITH_CUDA PROPERTY STRINGS AUTO ON OFF)
set(DRAFTBOARD_CUDA FALSE)

file(GLOB_RECURSE draftboard_cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/backend/*.cu)
if(NOT DRAFTBOARD_WITH_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "DRAFTBOARD_WITH_CUDA is '${DRAFTBOARD_WITH_CUDA}'; it has to be AUTO, ON or OFF")
elseif(DRAFTBOARD_WITH_CUDA STREQUAL "OFF")
  set(DRAFTBOARD_CUDA_SUMMARY "off, as asked")
elseif(NOT draftboard_cuda_sources)
  set(DRAFTBOARD_CUDA_SUMMARY "nothing to compile, backend/ has no .cu files")
else()
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(draftboard_nvcc nvcc HINTS $ENV{CUDA_HOME}/bin PATHS /usr/local/cuda/bin)
    if(draftboard_nvcc)
      set(CMAKE_CUDA_COMPILER ${draftboard_nvcc})
    endif()
  endif()
  if(DRAFTBOARD_WITH_CUDA STREQUAL "AUTO")
    include(CheckLanguage)
    check_language(CUDA)
  endif()
  if(DRAFTBOARD_WITH_CUDA STREQUAL "ON" OR CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(DRAFTBOARD_CUDA TRUE)
    set(DRAFTBOARD_CUDA_SUMMARY "on, ${CMAKE_CUDA_COMPILER}")
  else()
    set(DRAFTBOARD_CUDA_SUMMARY "off, no nvcc found")
  endif()
endif()
message(STATUS "CUDA: ${DRAFTBOARD_CUDA_SUMMARY}")
