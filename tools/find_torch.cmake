# Finds libtorch 2.11 (C++ headers and libraries, no CUDA toolkit needed) and makes the target kevin_torch.
# Looked at in this order: KEVIN_TORCH_DIR, the environment's KEVIN_TORCH, .torch in the checkout (where
# tools/setup.sh puts the wheel), the torch of the python3 on the PATH. The first two are orders: if one is
# unusable, configuring stops. Without torch everything that does not need it is still built.
# Sets KEVIN_TORCH_FOUND, KEVIN_TORCH_ROOT (the package folder, with include/ and lib/) and KEVIN_TORCH_RPATH.

set(KEVIN_TORCH_SERIES 2.11)

# Empty `reason`: `folder` is a torch package of the right series, and `root` is its real path.
function(kevin_check_torch folder root reason)
  set(${root} "" PARENT_SCOPE)
  if(NOT EXISTS ${folder}/lib/libtorch_cpu.so AND EXISTS ${folder}/torch/lib/libtorch_cpu.so)
    set(folder ${folder}/torch)
  endif()
  if(NOT EXISTS ${folder}/lib/libtorch_cpu.so)
    set(${reason} "holds no lib/libtorch_cpu.so" PARENT_SCOPE)
    return()
  endif()
  set(header ${folder}/include/torch/headeronly/version.h)
  if(NOT EXISTS ${header})
    set(${reason} "has no include/torch/headeronly/version.h; need torch ${KEVIN_TORCH_SERIES}" PARENT_SCOPE)
    return()
  endif()
  file(STRINGS ${header} lines REGEX "define TORCH_VERSION_(MAJOR|MINOR) ")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*" "\\1.\\2" version "${lines}")
  if(NOT version VERSION_EQUAL KEVIN_TORCH_SERIES)
    set(${reason} "is torch ${version}; need ${KEVIN_TORCH_SERIES}" PARENT_SCOPE)
    return()
  endif()
  file(REAL_PATH ${folder} real)
  set(${root} ${real} PARENT_SCOPE)
  set(${reason} "" PARENT_SCOPE)
endfunction()

# The folder Python would import torch from, without importing it; empty when there is none.
function(kevin_python_torch folder)
  execute_process(
    COMMAND python3 -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE found ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    set(found "")
  endif()
  set(${folder} "${found}" PARENT_SCOPE)
endfunction()

set(KEVIN_TORCH_FOUND FALSE)
set(KEVIN_TORCH_ROOT "")
kevin_python_torch(python_torch)
foreach(place IN ITEMS KEVIN_TORCH_DIR KEVIN_TORCH .torch Python)
  if(place STREQUAL "KEVIN_TORCH_DIR")
    set(folder "${KEVIN_TORCH_DIR}")
  elseif(place STREQUAL "KEVIN_TORCH")
    set(folder "$ENV{KEVIN_TORCH}")
  elseif(place STREQUAL ".torch")
    set(folder ${CMAKE_SOURCE_DIR}/.torch)
  else()
    set(folder "${python_torch}")
  endif()
  if(folder STREQUAL "" OR (place STREQUAL ".torch" AND NOT EXISTS ${folder}))
    continue()
  endif()
  kevin_check_torch(${folder} KEVIN_TORCH_ROOT reason)
  if(KEVIN_TORCH_ROOT)
    set(KEVIN_TORCH_FOUND TRUE)
    break()
  endif()
  if(place MATCHES "^KEVIN_TORCH")
    message(FATAL_ERROR "${place}=${folder} ${reason}.\n"
      "Give the folder that Python imports torch from, or leave ${place} empty and run tools/setup.sh.")
  endif()
  message(STATUS "${place}'s torch in ${folder} is not used: it ${reason}")
endforeach()

if(KEVIN_TORCH_FOUND)
  message(STATUS "torch: ${KEVIN_TORCH_ROOT}")
  file(GLOB nvidia_libraries ${KEVIN_TORCH_ROOT}/../nvidia/*/lib)
  list(TRANSFORM nvidia_libraries REPLACE "/torch/\\.\\./" "/")
  set(KEVIN_TORCH_RPATH ${KEVIN_TORCH_ROOT}/lib ${nvidia_libraries})
  add_library(kevin_torch INTERFACE)
  target_include_directories(kevin_torch SYSTEM INTERFACE
    ${KEVIN_TORCH_ROOT}/include ${KEVIN_TORCH_ROOT}/include/torch/csrc/api/include)
  # The wheel's libraries name CUDA libraries that a machine without a GPU does not have.
  target_link_libraries(kevin_torch INTERFACE
    ${KEVIN_TORCH_ROOT}/lib/libtorch_cpu.so ${KEVIN_TORCH_ROOT}/lib/libc10.so)
  list(TRANSFORM KEVIN_TORCH_RPATH PREPEND "LINKER:-rpath," OUTPUT_VARIABLE rpath_options)
  target_link_options(kevin_torch INTERFACE LINKER:--allow-shlib-undefined ${rpath_options})
  # The wheel brings headers of a newer fmt than the library of this system.
  target_compile_definitions(kevin_torch INTERFACE FMT_HEADER_ONLY)
else()
  message(STATUS "torch: not found; programs that need it (kevin-evaluator) are not built. tools/setup.sh fetches it.")
endif()
