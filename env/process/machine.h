#pragma once
// What this machine is, for the key of an evaluation and for reports.

#include <string>

namespace kevin {

std::string CpuModel();       // "AMD EPYC 9755"
std::string CpuFeatures();    // the instruction sets that change what -march=native means: "avx2 avx512f ..."
std::string KernelRelease();  // "6.18.44"
int UsableCpus();             // that this process may run on

}  // namespace kevin
