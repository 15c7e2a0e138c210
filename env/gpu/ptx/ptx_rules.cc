#include "env/gpu/ptx/ptx_rules.h"

#include <algorithm>
#include <set>

namespace kevin {
namespace {

const std::set<std::string_view>& Opcodes() {
  static const std::set<std::string_view> kOpcodes = {
      // arithmetic, comparison, logic, conversion
      "abs", "add", "addc", "and", "bfe", "bfi", "bfind", "bmsk", "brev", "clz", "cnot", "copysign", "cos",
      "cvt", "cvta", "div", "dp2a", "dp4a", "ex2", "fma", "fns", "isspacep", "lg2", "lop3", "mad", "mad24",
      "madc", "max", "min", "mov", "mul", "mul24", "neg", "not", "or", "popc", "prmt", "rcp", "rem", "rsqrt",
      "sad", "selp", "set", "setp", "shf", "shl", "shr", "sin", "slct", "sqrt", "sub", "subc", "szext",
      "tanh", "testp", "xor", "vabsdiff2", "vabsdiff4", "vadd2", "vadd4", "vavrg2", "vavrg4", "vmax2",
      "vmax4", "vmin2", "vmin4", "vset2", "vset4", "vsub2", "vsub4", "vabsdiff", "vadd", "vmad", "vmax",
      "vmin", "vset", "vshl", "vshr", "vsub",
      // control flow within the kernel
      "bra", "brx", "call", "exit", "ret",
      // memory
      "alloca", "atom", "fence", "ld", "ldu", "membar", "prefetch", "prefetchu", "red", "st", "stackrestore",
      "stacksave",
      // copies in the background, barriers
      "bar", "barrier", "cp", "mbarrier", "tensormap",
      // tensor cores
      "ldmatrix", "mma", "movmatrix", "stmatrix", "tcgen05", "wgmma", "wmma",
      // warps, clusters, scheduling
      "activemask", "createpolicy", "elect", "getctarank", "griddepcontrol", "mapa", "match", "nanosleep",
      "redux", "setmaxnreg", "shfl", "vote", "clusterlaunchcontrol"};
  return kOpcodes;
}

const std::set<std::string_view>& Registers() {
  static const std::set<std::string_view> kRegisters = {"tid",
                                                        "ntid",
                                                        "laneid",
                                                        "warpid",
                                                        "nwarpid",
                                                        "ctaid",
                                                        "nctaid",
                                                        "smid",
                                                        "nsmid",
                                                        "is_explicit_cluster",
                                                        "clusterid",
                                                        "nclusterid",
                                                        "cluster_ctaid",
                                                        "cluster_nctaid",
                                                        "cluster_ctarank",
                                                        "cluster_nctarank",
                                                        "lanemask_eq",
                                                        "lanemask_le",
                                                        "lanemask_lt",
                                                        "lanemask_ge",
                                                        "lanemask_gt",
                                                        "total_smem_size",
                                                        "aggr_smem_size",
                                                        "dynamic_smem_size",
                                                        "envreg1",   // what cooperative groups' grid.sync()
                                                        "envreg2"};  // works on
  return kRegisters;
}

bool StartsWith(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

}  // namespace

std::string WhyOpcodeRefused(std::string_view opcode) {
  const std::string_view name = opcode.substr(0, opcode.find('.'));
  if (Opcodes().count(name)) return "";
  if (name == "trap")
    return "`trap` (from __trap() or a failing check) is refused: asserts are not needed, answers are "
           "checked "
           "from outside; remove it";
  if (name == "brkpt") return "`brkpt` (from __brkpt()) is refused: there is no debugger; remove it";
  if (name == "discard" || name == "applypriority")
    return "`" + std::string(opcode) +
           "` is refused: it outlives the launch in the L2 cache; use a cache hint on the load or store "
           "itself (`ld.global.L2::cache_hint`, __ldcs, __stcs)";
  if (name == "pmevent") return "`pmevent` is refused: nobody listens to it; remove it";
  if (StartsWith(name, "tex") || StartsWith(name, "tld4") || StartsWith(name, "su") || name == "txq")
    return "`" + std::string(opcode) +
           "` is refused: there are no textures or surfaces; read the tensor through its pointer, with "
           "__ldg() if it is read only";
  if (name == "multimem") return "`multimem` is refused: there is one GPU";
  return "the instruction `" + std::string(opcode) + "` is not on the list of what a kernel may use";
}

std::string WhyRegisterRefused(std::string_view name) {
  if (Registers().count(name)) return "";
  const std::string shown = "reading %" + std::string(name);
  if (StartsWith(name, "clock") || StartsWith(name, "globaltimer"))
    return shown +
           " (clock(), clock64(), globaltimer) is refused: a kernel has no business with the time; remove "
           "it, "
           "the time is taken from outside";
  if (StartsWith(name, "pm"))
    return shown + " is refused: performance counters are read from outside; remove it";
  if (name == "gridid" || name == "current_graph_exec")
    return shown +
           " is refused: it tells one launch from another, and every call must do the same work; remove it";
  return shown + " is refused: it is not on the list of registers that a kernel may read";
}

std::string WhyFunctionRefused(std::string_view name) {
  const std::string shown = "`" + std::string(name) + "`";
  if (name == "vprintf")
    return "printf in a kernel is refused: it costs time and nobody reads it; remove it (`kevin bench "
           "--debug` "
           "allows it)";
  if (name == "__assertfail")
    return "assert in a kernel is refused: asserts are not needed, answers are checked from outside; remove "
           "it";
  if (name == "malloc" || name == "free" || StartsWith(name, "__nv_aligned_device_malloc"))
    return shown +
           " in a kernel is refused: its memory outlives the launch; ask for workspace<T>(n) in the launch "
           "function";
  if (StartsWith(name, "cuda") || StartsWith(name, "__cuda") || StartsWith(name, "cnp"))
    return shown +
           " in a kernel is refused: kernels are launched only by the launch function; list them there in "
           "order";
  return "the function " + shown +
         " is declared but not defined in the text; define it, nothing is linked to it";
}

}  // namespace kevin
