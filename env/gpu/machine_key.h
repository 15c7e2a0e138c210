#pragma once
// What makes two GPU candidates one kernel: equal machine code and equal launches. A verdict may be reused
// for an equal key only (env/verdict/README.md). The key is taken from what the runner receives, the launch
// plan, and not from any text of a candidate: no comment, directive or name in a text can hide code from it.
// Pure; thread-safe.

#include <string>

#include "env/gpu/runner/launch_plan.h"

namespace kevin {

// The machine code of a cubin without what only debuggers read, and without file offsets that depend on it.
// Dropped are the contents and full names of the sections .debug_*, .nv_debug_* and of their relocations, where
// they are not loaded to the device. Everything else stays: code, constants, initial values of variables,
// relocations, symbols, properties of kernels, names. Bytes that are no such ELF file come back whole. Kernels
// that differ only in what is kept here in doubt (the name of a kernel, the order of its sections) have
// different keys.
std::string MachineCodeOf(const std::string& cubin);

// SHA-256 of the whole plan with MachineCodeOf its cubin: launches, encoded arguments, constants, workspaces,
// variables. Left out are the names and lines of the candidate's text, which are for messages.
std::string MachinePlanHash(const LaunchPlan& plan);

}  // namespace kevin
