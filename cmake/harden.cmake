# SPDX-License-Identifier: Apache-2.0
# Flags that make a hole harder to use, each where the compiler and the linker
# know it. Sets
#
#   bauta_hardened        what is in force, for tests/cli/hardening.sh:
#                         stack-protector, stack-clash, cet, fortify, pie,
#                         relro, now, noexecstack, as-needed
#   bauta_hardened_flags  of the compiler, for cmake/cuda.cmake
#
# None of them changes the bits of a result.
set(bauta_hardened "")
set(bauta_hardened_flags "")
if(NOT BAUTA_HARDEN)
  return()
endif()
include(CheckCCompilerFlag)
include(CheckCSourceCompiles)
include(CheckLinkerFlag)
include(CheckPIESupported)

macro(harden_compile name flag)
  string(MAKE_C_IDENTIFIER BAUTA_HAS_${name} has)
  check_c_compiler_flag(${flag} ${has})
  if(${has})
    add_compile_options(${flag})
    list(APPEND bauta_hardened_flags ${flag})
    list(APPEND bauta_hardened ${name})
  endif()
endmacro()
macro(harden_link name flag)
  string(MAKE_C_IDENTIFIER BAUTA_HAS_${name} has)
  check_linker_flag(C ${flag} ${has})
  if(${has})
    add_link_options(${flag})
    list(APPEND bauta_hardened ${name})
  endif()
endmacro()

harden_compile(stack-protector -fstack-protector-strong)
harden_compile(stack-clash -fstack-clash-protection)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  harden_compile(cet -fcf-protection=full)
endif()
harden_link(relro LINKER:-z,relro)
harden_link(now LINKER:-z,now)
harden_link(noexecstack LINKER:-z,noexecstack)
harden_link(as-needed LINKER:--as-needed)

check_pie_supported(LANGUAGES C)
if(CMAKE_C_LINK_PIE_SUPPORTED)
  list(APPEND bauta_hardened pie)
endif()

# The C library checks sizes where the compiler optimises; a sanitizer sees more
# without. Level 3 is of newer compilers and libraries, which say so otherwise.
string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
if(NOT BAUTA_SANITIZE
   AND "${CMAKE_C_FLAGS} ${CMAKE_C_FLAGS_${type}}" MATCHES "-O[1-3s]")
  set(CMAKE_REQUIRED_FLAGS "-O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
  check_c_source_compiles("#include <string.h>\nint main(void) { return 0; }"
                          BAUTA_HAS_FORTIFY_3)
  unset(CMAKE_REQUIRED_FLAGS)
  set(level 2)
  if(BAUTA_HAS_FORTIFY_3)
    set(level 3)
  endif()
  add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=${level})
  list(APPEND bauta_hardened fortify)
endif()
