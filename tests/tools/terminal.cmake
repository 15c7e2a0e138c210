# Checks that commands write to a terminal only through agent/terminal.h, which filters: cmake -DROOT=SOURCE_TREE -P
# terminal.cmake. Fails with one line per other way.
cmake_minimum_required(VERSION 3.25)

set(ways "(^|[^a-zA-Z_.:])(std::)?(cout|cerr|clog|printf|fprintf|vfprintf|puts|fputs|putchar|perror)[ \t]*(\\(|<<)|fmt::v?print[ln]*\\(")
set(allowed
  agent/terminal.cc)   # the way itself

set(mistakes "")
set(count 0)
foreach(folder agent tools)
  file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/${folder}/*.h ${ROOT}/${folder}/*.cc)
  list(REMOVE_ITEM files ${allowed})
  foreach(file ${files})
    math(EXPR count "${count} + 1")
    file(STRINGS ${ROOT}/${file} lines REGEX "${ways}")
    foreach(line IN LISTS lines)
      list(APPEND mistakes "${file}: ${line}")
    endforeach()
  endforeach()
endforeach()
if(count EQUAL 0)
  message(FATAL_ERROR "no source files under ${ROOT}")
endif()
if(mistakes)
  list(JOIN mistakes "\n  " text)
  message(FATAL_ERROR "these lines reach a terminal past Print, PrintFormat and Progress (agent/terminal.h):\n  ${text}")
endif()
message(STATUS "terminal: ${count} files print through agent/terminal.h")
