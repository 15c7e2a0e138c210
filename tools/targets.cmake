# How Kevin's libraries and programs are made. Included once, by the top CMakeLists.txt.

# Warnings and sanitizers for our own code; third-party headers are SYSTEM.
add_library(kevin_build INTERFACE)
target_include_directories(kevin_build INTERFACE ${CMAKE_SOURCE_DIR})
# -fPIC throughout, in programs too: a precompiled header serves only those that are compiled alike.
target_compile_options(kevin_build INTERFACE -fPIC --param=ggc-min-expand=300 --param=ggc-min-heapsize=524288 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror
  -Wno-subobject-linkage)   # a unity build includes sources, and takes their unnamed namespaces for those of headers
target_link_libraries(kevin_build INTERFACE Threads::Threads)
if(KEVIN_SANITIZE)
  target_compile_options(kevin_build INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(kevin_build INTERFACE -fsanitize=address,undefined)
endif()
if(KEVIN_TIDY)
  find_program(CLANG_TIDY clang-tidy REQUIRED)
  set(CMAKE_CXX_CLANG_TIDY ${CLANG_TIDY})
endif()

# gcc 12's flow analysis at -O1 reports paths that do not exist.
target_compile_options(kevin_build INTERFACE -Wno-array-bounds -Wno-stringop-overflow -Wno-maybe-uninitialized -Wno-restrict)

# Two precompiled headers, each compiled once and used by every target of its sort. CLI11 is in neither: gcc makes its
# inline functions anew in every file that uses the header (2.7 s each).
add_library(kevin_precompiled OBJECT ${CMAKE_SOURCE_DIR}/tools/precompiled.cc)
target_link_libraries(kevin_precompiled PUBLIC kevin_build fmt::fmt nlohmann_json::nlohmann_json)
target_precompile_headers(kevin_precompiled PRIVATE
  <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <condition_variable> <cstdint> <cstdio> <cstdlib> <cstring>
  <deque> <filesystem> <fstream> <functional> <iterator> <limits> <map> <memory> <mutex> <numeric> <optional> <random>
  <set> <span> <sstream> <string> <string_view> <thread> <tuple> <unordered_map> <utility> <variant> <vector>
  <fmt/format.h> <nlohmann/json.hpp>)
if(KEVIN_TORCH_FOUND)
  add_library(kevin_precompiled_torch OBJECT EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tools/precompiled.cc)
  target_link_libraries(kevin_precompiled_torch PUBLIC kevin_build kevin_torch fmt::fmt nlohmann_json::nlohmann_json)
  target_precompile_headers(kevin_precompiled_torch PRIVATE
    <algorithm> <filesystem> <functional> <map> <memory> <optional> <string> <vector> <fmt/format.h> <nlohmann/json.hpp>
    <ATen/ATen.h> <torch/csrc/autograd/custom_function.h>)
endif()

function(kevin_precompile target torch)
  if(torch)
    target_link_libraries(${target} PRIVATE kevin_torch fmt::fmt nlohmann_json::nlohmann_json)
    target_precompile_headers(${target} REUSE_FROM kevin_precompiled_torch)
  else()
    target_link_libraries(${target} PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
    target_precompile_headers(${target} REUSE_FROM kevin_precompiled)
  endif()
endfunction()

# kevin_library(NAME [TORCH] [FAST] [SOURCES FILE...] [EXCEPT FILE...] [LINK TARGET...]
#   [PRIVATE TARGET...]): a static library, by default of
# all sources of this folder but those of programs (*_main.cc). TORCH: it includes torch. FAST: it is timed, or works
# through gigabytes.
function(kevin_library name)
  cmake_parse_arguments(ARG "TORCH;FAST;ALONE;BARE" "" "SOURCES;EXCEPT;LINK;PRIVATE" ${ARGN})
  if(NOT ARG_SOURCES)
    file(GLOB ARG_SOURCES CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} *.cc)
    list(FILTER ARG_SOURCES EXCLUDE REGEX "_main\\.cc$")
    if(ARG_EXCEPT)
      list(REMOVE_ITEM ARG_SOURCES ${ARG_EXCEPT})
    endif()
  endif()
  add_library(${name} STATIC EXCLUDE_FROM_ALL ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC kevin_build ${ARG_LINK} PRIVATE ${ARG_PRIVATE})
  if(NOT ARG_BARE)
    kevin_precompile(${name} ${ARG_TORCH})
  endif()
  if(NOT ARG_ALONE)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 24)
  endif()
  if(ARG_FAST)
    kevin_fast(${ARG_SOURCES})
  endif()
  if(KEVIN_HEADER_CHECKS AND NOT ARG_TORCH)
    set(folders "")
    foreach(source ${ARG_SOURCES})
      get_filename_component(folder ${source} DIRECTORY)
      list(APPEND folders "${folder}")
    endforeach()
    list(REMOVE_DUPLICATES folders)
    set(headers "")
    foreach(folder IN LISTS folders)
      file(GLOB found ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.h)
      list(APPEND headers ${found})
    endforeach()
    target_sources(${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${CMAKE_SOURCE_DIR} FILES ${headers})
    set_target_properties(${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
  endif()
endfunction()

# kevin_fast(FILE... [OPTIONS ...]): sources that are compiled alone, with full optimisation and these options.
function(kevin_fast)
  cmake_parse_arguments(ARG "" "" "OPTIONS" ${ARGN})
  set_source_files_properties(${ARG_UNPARSED_ARGUMENTS} PROPERTIES
    COMPILE_OPTIONS "-O3;${ARG_OPTIONS}" SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# kevin_program(NAME [MODULE] SOURCES FILE... LINK TARGET... [TORCH]): a program, or a plug-in of one, that is installed.
function(kevin_program name)
  cmake_parse_arguments(ARG "TORCH;MODULE;BARE" "" "SOURCES;LINK" ${ARGN})
  if(ARG_MODULE)
    add_library(${name} MODULE EXCLUDE_FROM_ALL ${ARG_SOURCES})
    set_target_properties(${name} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
    install(TARGETS ${name} LIBRARY DESTINATION bin)
  else()
    add_executable(${name} EXCLUDE_FROM_ALL ${ARG_SOURCES})
    install(TARGETS ${name} RUNTIME DESTINATION bin)
  endif()
  target_link_libraries(${name} PRIVATE kevin_build ${ARG_LINK})
  if(NOT ARG_BARE)
    kevin_precompile(${name} ${ARG_TORCH})
  endif()
  # ../lib is what tools/bundle packs. Without BUILD_WITH_INSTALL_RPATH, CMake pads the path with empty entries, which
  # the loader takes for the working folder.
  set_target_properties(${name} PROPERTIES INSTALL_RPATH $ORIGIN/../lib BUILD_WITH_INSTALL_RPATH ON)
  set_property(GLOBAL APPEND PROPERTY KEVIN_PROGRAMS ${name})
endfunction()
