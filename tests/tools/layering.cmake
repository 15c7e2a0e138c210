# Checks who may include what: cmake -DROOT=SOURCE_TREE -P layering.cmake. Fails with one line per wrong include.
#   tools -> agent -> env, policies, prompts, trajectories; the four leaves never include each other.
# env's four value headers and env/printable.h are open to every folder; nothing includes tests; heavy libraries stay in their one place.
cmake_minimum_required(VERSION 3.25)

set(folders agent env policies prompts tools trajectories)
set(may_include_agent agent env policies prompts trajectories)
set(may_include_tools agent env policies prompts tools trajectories)
foreach(leaf env policies prompts trajectories)
  set(may_include_${leaf} ${leaf})
endforeach()

# A header whose path matches the first pattern may be included only by files that match the second.
set(library_rules
  "^(torch|ATen|c10)/"                        "^(env/reference|env/python|policies/local)/"
  "^(sqlite3\\.h|pqxx/|libpq)"                "^trajectories/"
  "^(cuda|nvrtc|cupti|nvml|cudaTypedefs)[^/]*\\.h" "^(env/gpu|env/python/headers|policies/local)/"
  "^(pcre2|utf8proc|httplib)[^/]*\\.h"              "^policies/local/"
  "^curl/"                                    "^policies/remote/"
  "^CLI/"                                     "^(tools/|policies/local/serve/model_)"
  "^(seccomp\\.h|linux/(seccomp|landlock)\\.h|toml\\+\\+/)" "^env/"
  "^(catch2/|catch\\.hpp)"                    "^tests/")

# What every folder may include.
set(values env/error.h env/environment.h env/outcome.h env/workload.h env/printable.h)

set(mistakes "")
set(count 0)
foreach(folder ${folders})
  file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/${folder}/*.h ${ROOT}/${folder}/*.cc ${ROOT}/${folder}/*.cu)
  foreach(file ${files})
    math(EXPR count "${count} + 1")
    file(STRINGS ${ROOT}/${file} lines REGEX "^[ \t]*#[ \t]*include[ \t]*[<\"]")
    foreach(line ${lines})
      string(REGEX REPLACE "^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"]*)[>\"].*" "\\1;\\2" parts "${line}")
      list(GET parts 0 quote)
      list(GET parts 1 header)
      if(quote STREQUAL "\"" AND NOT EXISTS ${ROOT}/${header} AND NOT header MATCHES "^(${folder})/")
        list(APPEND mistakes "${file} includes \"${header}\", which is no path from the top of the checkout")
      endif()
      string(REGEX REPLACE "/.*" "" top "${header}")
      if(top STREQUAL "tests")
        list(APPEND mistakes "${file} includes ${header}: nothing outside tests/ includes tests/")
      elseif(top IN_LIST folders AND NOT top IN_LIST may_include_${folder} AND NOT header IN_LIST values)
        list(APPEND mistakes "${file} includes ${header}: ${folder}/ may not include ${top}/")
      endif()
      set(rules ${library_rules})
      while(rules)
        list(POP_FRONT rules pattern where)
        if(header MATCHES "${pattern}" AND NOT file MATCHES "${where}")
          list(APPEND mistakes "${file} includes ${header}: allowed only in ${where}")
        endif()
      endwhile()
    endforeach()
  endforeach()
endforeach()

if(count EQUAL 0)
  message(FATAL_ERROR "no source files under ${ROOT}")
endif()
if(mistakes)
  list(JOIN mistakes "\n  " text)
  message(FATAL_ERROR "layering:\n  ${text}")
endif()
message(STATUS "layering: ${count} files keep to the arrows")
