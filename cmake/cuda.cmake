# SPDX-License-Identifier: Apache-2.0
# The GPU back end, where there is a CUDA compiler. Sets
#
#   cuda_sources     C sources of it, or of the table that says there is none
#   cuda_include     where CUDA's headers are
#   cuda_objects     what nvcc made; the target bauta_kernels_cuda makes them
#   cuda_link_needs  what whoever links the static library needs
#
# nvcc is called by its name, not as a language of CMake's: the programs that
# link the library stay C programs, which the C compiler links.
set(cuda_sources src/backend/cuda/none/driver.c src/backend/cuda/none/gpu.c)
set(cuda_include "")
set(cuda_objects "")
set(cuda_link_needs "")

# One build with it is enough.
set(cuda ON)
if(BAUTA_SANITIZE OR NOT CMAKE_C_COMPILER_ID STREQUAL "GNU")
  set(cuda OFF)
endif()
option(BAUTA_CUDA "Attention on NVIDIA GPUs, where nvcc is there" ${cuda})
set(BAUTA_NVCC_FLAGS "" CACHE STRING "More flags for nvcc, as a list")
if(NOT BAUTA_CUDA)
  return()
endif()
find_package(CUDAToolkit 12.3 QUIET)
if(NOT CUDAToolkit_NVCC_EXECUTABLE OR NOT TARGET CUDA::cudart_static)
  return()
endif()

# wgmma and setmaxnreg are of 90a, and of no other architecture. What nvcc makes
# of the host's half must need no C++ library.
set(nvcc ${CUDAToolkit_NVCC_EXECUTABLE} -O3 -std=c++17
  -gencode arch=compute_90a,code=sm_90a
  -Xcompiler=-fPIC,-fvisibility=hidden,-fno-exceptions,-fno-threadsafe-statics
  -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include
  ${BAUTA_NVCC_FLAGS})
foreach(flag ${bauta_hardened_flags})
  list(APPEND nvcc -Xcompiler=${flag})
endforeach()
set(made ${PROJECT_BINARY_DIR}/cuda)

# It may be too old, or not get along with the compiler that it finds.
if(NOT DEFINED BAUTA_NVCC_WORKS)
  file(WRITE ${made}/works.cu "static __global__ void works(void) {}\n"
    "extern \"C\" void run(void) { works<<<1, 1>>>(); }\n")
  execute_process(COMMAND ${nvcc} -c ${made}/works.cu -o ${made}/works.o
    RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(failed)
    set(BAUTA_NVCC_WORKS OFF CACHE INTERNAL "")
    message(NOTICE "${CUDAToolkit_NVCC_EXECUTABLE} does not compile for "
      "compute_90a here, so bauta is built without CUDA.")
  else()
    set(BAUTA_NVCC_WORKS ON CACHE INTERNAL "")
  endif()
endif()
if(NOT BAUTA_NVCC_WORKS)
  return()
endif()

set(from ${PROJECT_SOURCE_DIR}/src/backend/cuda)
file(GLOB cuda_sources CONFIGURE_DEPENDS ${from}/*.c)
file(GLOB kernels CONFIGURE_DEPENDS ${from}/*.cu)
foreach(kernel ${kernels})
  get_filename_component(name ${kernel} NAME_WE)
  # As on the CPU, only what the source fuses is fused; see ops_device.h.
  set(fusing "")
  if(name MATCHES "^ops_|^attention_decode_short")
    set(fusing -fmad=false)
  endif()
  add_custom_command(OUTPUT ${made}/${name}.o
    COMMAND ${CMAKE_C_COMPILER_LAUNCHER} ${nvcc} ${fusing} -MD
            -MF ${made}/${name}.d -c ${kernel} -o ${made}/${name}.o
    DEPENDS ${kernel} DEPFILE ${made}/${name}.d VERBATIM
    COMMENT "Building CUDA object ${name}.o")
  list(APPEND cuda_objects ${made}/${name}.o)
endforeach()
set_source_files_properties(${cuda_objects} PROPERTIES EXTERNAL_OBJECT TRUE
  GENERATED TRUE)
# Two libraries take them, and one target makes them before.
add_custom_target(bauta_kernels_cuda DEPENDS ${cuda_objects})

set(cuda_include ${CUDAToolkit_INCLUDE_DIRS})
get_filename_component(cuda_lib ${CUDA_cudart_static_LIBRARY} DIRECTORY)
set(cuda_link_needs -L${cuda_lib} -lcudart_static -ldl -lrt -lpthread)
