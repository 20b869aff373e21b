# Compile options shared by all targets, and the one way to declare a layer.

option(LOCKSTEP_FAST_TESTS "Build test programs sooner: common headers precompiled, cases with -O1" OFF)
find_program(LOCKSTEP_CCACHE ccache)
mark_as_advanced(LOCKSTEP_CCACHE)
if(LOCKSTEP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${LOCKSTEP_CCACHE})
  if(LOCKSTEP_FAST_TESTS)
    # ccache stores nothing that was compiled with a precompiled header unless it is allowed to; nobody has to configure
    # that, and what a user allows besides stays allowed.
    execute_process(COMMAND ${LOCKSTEP_CCACHE} --get-config sloppiness OUTPUT_VARIABLE sloppiness ERROR_QUIET)
    string(REGEX MATCHALL "[a-z_]+" sloppiness "${sloppiness}")
    list(APPEND sloppiness pch_defines time_macros)
    list(REMOVE_DUPLICATES sloppiness)
    string(REPLACE ";" "," sloppiness "${sloppiness}")
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=${sloppiness} ${LOCKSTEP_CCACHE})
  endif()
endif()

add_library(lockstep_options INTERFACE)
set(warnings -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers)
# nvcc hands the host compiler code of its own making, which is not pedantic.
string(REPLACE ";" "," host_warnings "${warnings}")
string(REPLACE "-Wpedantic," "" host_warnings "${host_warnings}")
target_compile_options(lockstep_options INTERFACE
  $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:${warnings}>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${host_warnings}>)
target_include_directories(lockstep_options INTERFACE ${CMAKE_SOURCE_DIR}/include)
option(LOCKSTEP_WERROR "Treat warnings as errors" OFF)
if(LOCKSTEP_WERROR)
  target_compile_options(lockstep_options INTERFACE
    $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-Werror>
    $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>)
endif()

set(LOCKSTEP_SANITIZE "" CACHE STRING "Sanitizers for all targets, e.g. address,undefined or thread")
if(LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_options INTERFACE -fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(lockstep_options INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
endif()

option(LOCKSTEP_FUZZ "Build the libFuzzer programs of test/fuzz instead of everything else; needs clang" OFF)
if(LOCKSTEP_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "LOCKSTEP_FUZZ needs clang: use the preset fuzz (scripts/fuzz.sh)")
  endif()
  target_include_directories(lockstep_options SYSTEM BEFORE INTERFACE ${CMAKE_SOURCE_DIR}/test/fuzz/compat)
  # The first report of any sanitizer ends the program.
  target_compile_options(lockstep_options INTERFACE -fsanitize=fuzzer-no-link -fno-sanitize-recover=all)
endif()

# lockstep_add_layer(<name> SOURCES a.cc b.cc [PUBLIC targets] [PRIVATE targets])
# One static library lockstep_<name>; private headers live beside the sources in src/<name>/.
function(lockstep_add_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  if(NOT ARG_SOURCES)
    add_library(lockstep_${name} INTERFACE)
    target_link_libraries(lockstep_${name} INTERFACE lockstep_options ${ARG_PUBLIC})
    return()
  endif()
  add_library(lockstep_${name} STATIC ${ARG_SOURCES})
  target_include_directories(lockstep_${name} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(lockstep_${name} PUBLIC lockstep_options ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
endfunction()

# lockstep_host_plugins(<target>): a program whose plugins find the common code in it.
function(lockstep_host_plugins target)
  set_target_properties(${target} PROPERTIES ENABLE_EXPORTS ON)
  target_link_options(${target} PRIVATE LINKER:--whole-archive,$<TARGET_FILE:lockstep_base>,--no-whole-archive)
endfunction()
