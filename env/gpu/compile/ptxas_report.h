#pragma once
// What the assembler says about each kernel, taken out of a compiler's log.

#include <map>
#include <string>

#include "env/gpu/compile/gpu_module.h"

namespace kevin {

struct PtxasReport {
  std::map<std::string, KernelInfo> kernels;  // by lowered name; only the resources are filled in
  std::string rest;                           // the log without the report: errors, warnings, advice
};

PtxasReport ReadPtxasReport(const std::string& log);

}  // namespace kevin
