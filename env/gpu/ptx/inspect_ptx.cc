#include "env/gpu/ptx/inspect_ptx.h"

#include <algorithm>
#include <set>

#include "env/gpu/ptx/ptx_declaration.h"

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
  // envreg1 and envreg2: used by grid.sync() of cooperative groups.
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
                                                        "envreg1",
                                                        "envreg2"};
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
    return "`trap` (from __trap() or a failing check) is refused: the environment checks answers; remove it";
  if (name == "brkpt") return "`brkpt` (from __brkpt()) is refused: there is no debugger; remove it";
  if (name == "discard" || name == "applypriority")
    return "`" + std::string(opcode) +
           "` is refused: it outlives the launch in the L2 cache; use a cache hint on the load or store "
           "itself (`ld.global.L2::cache_hint`, __ldcs, __stcs)";
  if (name == "pmevent") return "`pmevent` is refused: it has no effect here; remove it";
  if (StartsWith(name, "tex") || StartsWith(name, "tld4") || StartsWith(name, "su") || name == "txq")
    return "`" + std::string(opcode) +
           "` is refused: there are no textures or surfaces; read the tensor through its pointer, with "
           "__ldg() if it is read only";
  if (name == "multimem") return "`multimem` is refused: there is one GPU";
  return "the instruction `" + std::string(opcode) + "` is not on the list of permitted instructions";
}

std::string WhyRegisterRefused(std::string_view name) {
  if (Registers().count(name)) return "";
  const std::string shown = "reading %" + std::string(name);
  if (StartsWith(name, "clock") || StartsWith(name, "globaltimer"))
    return shown +
           " (clock(), clock64(), globaltimer) is refused: a kernel may not read the time, it is measured "
           "from outside; remove it";
  if (StartsWith(name, "pm"))
    return shown + " is refused: performance counters are read from outside; remove it";
  if (name == "gridid" || name == "current_graph_exec")
    return shown + " is refused: it distinguishes launches, and every call must do the same work; remove it";
  return shown + " is refused: it is not on the list of registers that kernels may read";
}

std::string WhyFunctionRefused(std::string_view name) {
  const std::string shown = "`" + std::string(name) + "`";
  if (name == "vprintf")
    return "printf in a kernel is refused: it costs time and its output is discarded; remove it "
           "(`kevin bench --debug` allows it)";
  if (name == "__assertfail")
    return "assert in a kernel is refused: the environment checks the answers; remove it";
  if (name == "malloc" || name == "free" || StartsWith(name, "__nv_aligned_device_malloc"))
    return shown + " in a kernel is refused: its memory outlives the launch; use workspace<T>(n) in launch";
  if (StartsWith(name, "cuda") || StartsWith(name, "__cuda") || StartsWith(name, "cnp"))
    return shown +
           " in a kernel is refused: kernels are launched by the launch function alone; launch it there";
  return "the function " + shown +
         " is declared but not defined in the text; define it: nothing is linked to it";
}

namespace {

bool IsDigits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string_view WithoutDigits(std::string_view name) {
  while (!name.empty() && name.back() >= '0' && name.back() <= '9') name.remove_suffix(1);
  return name;
}

// Names that the assembler may take for its own even where the text declares them.
bool NeverADeclaredRegister(std::string_view name) {
  for (const std::string_view start : {"clock", "globaltimer", "gridid", "current_graph", "reserved_smem"}) {
    if (name.substr(0, start.size()) == start) return true;
  }
  for (const std::string_view start : {"pm", "envreg"}) {
    if (name.substr(0, start.size()) == start && name.size() > start.size() && name[start.size()] >= '0' &&
        name[start.size()] <= '9')
      return true;
  }
  return false;
}

class Inspector {
 public:
  Inspector(const std::vector<PtxToken>& tokens, bool debug)
      : tokens_(tokens), cursor_(tokens), debug_(debug) {}

  PtxReport Inspect() {
    CollectRegisters();
    while (!cursor_.AtEnd() && report_.refused.empty()) Statement();
    if (report_.refused.empty()) CheckFunctions();
    if (report_.refused.empty()) CheckTraps();
    if (report_.refused.empty()) CheckWritable();
    return std::move(report_);
  }

 private:
  void Refuse(const std::string& why) {
    if (report_.refused.empty()) report_.refused = why;
  }
  void NotUnderstood() {
    Refuse("line " + std::to_string(cursor_.Peek().line) + " of the PTX cannot be read: `" +
           std::string(cursor_.Peek().text) + "` is not expected there");
  }

  // `.reg .b32 %r<6>, %x;` anywhere: the names that are no special registers.
  void CollectRegisters() {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (tokens_[i].text != ".reg") continue;
      for (; i < tokens_.size() && tokens_[i].text != ";"; ++i) {
        if (tokens_[i].text.substr(0, 1) != "%") continue;
        const std::string_view name = tokens_[i].text.substr(1);
        const bool many = i + 1 < tokens_.size() && tokens_[i + 1].text == "<";
        (many ? register_families_ : registers_).insert(name);
      }
    }
  }

  void CheckRegister(std::string_view word) {
    const std::string_view name = word.substr(
        1, word.find('.') == std::string_view::npos ? std::string_view::npos : word.find('.') - 1);
    const bool declared = registers_.count(name) != 0 ||
                          (WithoutDigits(name) != name && register_families_.count(WithoutDigits(name)) != 0);
    if (name == "envreg1" || name == "envreg2") reads_grid_workspace_ = true;
    if (declared && !NeverADeclaredRegister(name)) return;
    Refuse(WhyRegisterRefused(name));
  }

  void Statement() {
    if (cursor_.TakeIf(";") || cursor_.TakeIf("{") || cursor_.TakeIf("}")) return;
    if (cursor_.TakeIf("@")) {
      cursor_.TakeIf("!");
      if (cursor_.Peek().kind != PtxTokenKind::kWord) return NotUnderstood();
      const std::string_view guard = cursor_.Take().text;
      if (guard[0] == '%') CheckRegister(guard);
      if (cursor_.Peek().text.substr(0, 1) == ".") return NotUnderstood();
    }
    const PtxToken& first = cursor_.Peek();
    if (first.kind != PtxTokenKind::kWord || first.text[0] == '%') return NotUnderstood();
    if (first.text[0] == '.') return Directive();
    if (cursor_.Peek(1).text == ":") {
      cursor_.Take();
      cursor_.Take();
      return;
    }
    Instruction();
  }

  void Instruction() {
    const std::string_view opcode = cursor_.Take().text;
    if (opcode == "trap") {
      has_trap_ = true;
    } else {
      const std::string why = WhyOpcodeRefused(opcode);
      if (!why.empty()) return Refuse(why);
    }
    RestOfStatement();
  }

  // Operands up to the semicolon.
  void RestOfStatement() {
    while (!cursor_.TakeIf(";")) {
      if (cursor_.AtEnd()) return Refuse("the PTX ends within a statement");
      if (cursor_.Is(":")) return NotUnderstood();  // a label: the semicolon is missing
      const PtxToken token = cursor_.Take();
      if (token.kind == PtxTokenKind::kWord && token.text[0] == '%') CheckRegister(token.text);
    }
  }

  void Directive() {
    const std::string_view word = cursor_.Take().text;
    if (word == ".version" || word == ".address_size") {
      cursor_.Take();
    } else if (word == ".target") {
      do cursor_.Take();
      while (cursor_.TakeIf(","));
    } else if (word == ".file") {
      File();
    } else if (word == ".loc") {
      Location();
    } else if (word == ".section") {
      Section();
    } else if (word == ".visible" || word == ".weak" || word == ".common") {
      return;  // the declaration itself follows
    } else if (word == ".extern") {
      Extern();
    } else if (word == ".entry") {
      Entry();
    } else if (word == ".func") {
      Function();
    } else if (word == ".global" || word == ".const") {
      Refuse(ReadPtxVariables(&cursor_, word == ".const", &report_.globals));
    } else if (word == ".reg") {
      while (!cursor_.AtEnd() && !cursor_.TakeIf(";")) cursor_.Take();
    } else if (word == ".shared" || word == ".local" || word == ".param" || word == ".pragma" ||
               word == ".branchtargets" || word == ".calltargets" || word == ".callprototype") {
      RestOfStatement();
    } else {
      Refuse("the directive `" + std::string(word) + "` is refused; remove it");
    }
  }

  void File() {
    cursor_.Take();
    if (cursor_.Take().kind != PtxTokenKind::kString) return NotUnderstood();
    while (cursor_.TakeIf(",")) cursor_.Take();
  }

  void Numbers(int count) {
    for (; count > 0; --count) {
      if (!IsDigits(cursor_.Peek().text)) return NotUnderstood();
      cursor_.Take();
    }
  }

  // `.loc 1 3 5, function_name NAME + 4, inlined_at 1 9 3`
  void Location() {
    Numbers(3);
    while (cursor_.TakeIf(",")) {
      if (cursor_.TakeIf("inlined_at")) {
        Numbers(3);
      } else if (cursor_.TakeIf("function_name")) {
        cursor_.Take();
        if (cursor_.TakeIf("+")) Numbers(1);
      } else {
        return NotUnderstood();
      }
    }
  }

  // Line information: data and labels in braces.
  void Section() {
    if (cursor_.Take().text.substr(0, 7) != ".debug_" || !cursor_.TakeIf("{")) return NotUnderstood();
    while (!cursor_.TakeIf("}")) {
      const PtxToken token = cursor_.Peek();
      const bool data =
          token.text == ".b8" || token.text == ".b16" || token.text == ".b32" || token.text == ".b64";
      const bool name = token.kind == PtxTokenKind::kWord && (data || token.text.substr(0, 7) == ".debug_" ||
                                                              (token.text[0] != '.' && token.text[0] != '%'));
      const bool mark = token.text == "," || token.text == ":" || token.text == "+" || token.text == "-";
      if (cursor_.AtEnd() || (!name && !mark && token.kind != PtxTokenKind::kNumber)) return NotUnderstood();
      cursor_.Take();
    }
  }

  void Extern() {
    if (cursor_.Is(".shared")) return;  // dynamic shared memory
    if (cursor_.Is(".func")) return;    // CheckFunctions names it if the text does not define it
    Refuse("`.extern " + std::string(cursor_.Peek().text) +
           "` is refused: nothing is linked; define it in the text");
  }

  void Entry() {
    std::pair<std::string, std::vector<KernelParameter>> entry;
    entry.first = cursor_.Take().text;
    if (!ReadPtxParameters(&cursor_, &entry.second)) return NotUnderstood();
    report_.entries.push_back(std::move(entry));
    while (!cursor_.Is("{") && !cursor_.TakeIf(";") && !cursor_.AtEnd())
      cursor_.Take();  // .maxntid 256, 1, 1
  }

  // `.func (.param .b32 result) NAME (...) .noreturn {` or `;`
  void Function() {
    if (cursor_.Is(".attribute")) return Refuse("function attributes are refused; remove them");
    if (cursor_.TakeIf("(")) {
      while (!cursor_.AtEnd() && !cursor_.TakeIf(")")) cursor_.Take();
    }
    const std::string name(cursor_.Take().text);
    while (!cursor_.AtEnd() && !cursor_.Is("{") && !cursor_.Is(";")) cursor_.Take();
    (cursor_.Is("{") ? defined_ : declared_).insert(name);
  }

  void CheckFunctions() {
    for (const std::string& name : declared_) {
      if (defined_.count(name) || (debug_ && name == "vprintf")) continue;
      return Refuse(WhyFunctionRefused(name));
    }
  }

  // Cooperative groups' grid.sync() traps when its launch was not cooperative.
  void CheckTraps() {
    if (has_trap_ && !reads_grid_workspace_) Refuse(WhyOpcodeRefused("trap"));
  }

  void CheckWritable() {
    int64_t bytes = 0;
    for (const GlobalVariable& variable : report_.globals) {
      if (variable.constant) continue;
      if (__builtin_add_overflow(bytes, variable.bytes, &bytes)) bytes = INT64_MAX;
      if (bytes > kMaxWritableGlobalBytes) {
        return Refuse("the text has more than " + std::to_string(kMaxWritableGlobalBytes >> 10) +
                      " KiB of __device__ variables (`" + variable.name +
                      "` goes over): they outlive a launch; use workspace<T>(n) in the launch function, or "
                      "__constant__ for tables");
      }
    }
  }

  const std::vector<PtxToken>& tokens_;
  PtxCursor cursor_;
  bool debug_;
  bool has_trap_ = false, reads_grid_workspace_ = false;
  std::set<std::string_view> registers_, register_families_;
  std::set<std::string> declared_, defined_;
  PtxReport report_;
};

}  // namespace

PtxReport InspectPtx(const std::string& ptx, bool debug) {
  const PtxTokens read = TokenizePtx(ptx);
  if (!read.refused.empty()) {
    PtxReport report;
    report.refused = read.refused;
    return report;
  }
  return Inspector(read.tokens, debug).Inspect();
}

}  // namespace kevin
