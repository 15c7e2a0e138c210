#pragma once
// START HERE for problems. A problem says what is to be computed, on which shapes, and how an answer is
// checked. It is one TOML file (env/problems/level1/019_relu.toml explains every key); ids follow
// KernelBench's numbers. Problems are plain values, immutable once loaded, and may be shared between threads.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "env/problem/expression.h"
#include "env/problem/model_facts.h"

namespace kevin {

// --- Types of elements ---

enum class DType { kF32, kF16, kBF16, kI64, kI32, kBool };
const char* DTypeName(DType dtype);  // "float32", ...
// As the signature of a `cpp` candidate spells it: "float", "long", "_Float16", ...; "bf16" is a type that
// Kevin declares, because compilers for CPUs lack one.
const char* DTypeCpp(DType dtype);
// The declaration of `bf16` in C++: two bytes, with conversions to and from float.
const char* Bf16Cpp();
int64_t DTypeBytes(DType dtype);
int64_t ElementCount(const std::vector<int64_t>& shape);  // 1 for a scalar's empty shape

// The floating type of a problem's tensors (--precision); env/problem/precision.h.
enum class Precision { kFp32, kFp16, kBf16 };

// --- The problem as its file states it ---

// The distribution of an input's values. kMixture takes one of several zero-mean distributions (normal,
// uniform, heavy-tailed, scaled) by the seed; kUniform01 is KernelBench's; kSigns gives -1 and 1; kStored are
// fixed values in the file.
enum class Distribution { kMixture, kNormal, kUniform, kUniform01, kHeavyTailed, kPositive, kSigns, kStored };
const char* DistributionName(Distribution distribution);  // as in the file: "mixture", ..., "heavy-tailed"

// The structure of a square matrix: zero below (kUpper) or above (kLower) its diagonal, or equal to its
// transpose.
enum class Structure { kNone, kUpper, kLower, kSymmetric };
const char* StructureName(Structure structure);  // as in the file: "upper", ...

// An integer element is the drawn value rounded down; a bool says whether the drawn value is positive.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::string> shape;                      // expressions over the size symbols: "B", "2*N"
  Distribution distribution = Distribution::kMixture;  // of inputs and parameters
  double scale = 1.0;                                  // factor of the drawn values
  std::string scale_text;  // a scale that depends on the size, "1/sqrt(9*C)": AtSize sets `scale`
  double offset = 0.0;     // added after scaling
  // In drawings of the member "normal x8" of the mixture each row, that is everything behind the first dimension, or the
  // whole of a tensor of one dimension, is shifted by one of -row_shift, 0 and row_shift, at random.
  double row_shift = 0.0;
  int64_t row_elements = 0;  // of such a row: AtSize sets it
  Structure structure = Structure::kNone;
  std::shared_ptr<const std::string> stored;  // kStored: the bytes, in C order
  bool is_param = false;                      // a weight: drawn like an input, passed after the inputs
  // An input-output (a cache that is written into): an input whose buffer `forward` and the candidate write. Its entry
  // among the outputs is its value after the call.
  bool is_inout = false;
};

// One shape of a size set: its name in Problem::sizes and its weight among the others.
struct WeightedShape {
  std::string size;
  double weight = 1;  // above 0; only its share of the sum matters
};

// The module from which a problem was imported, so that its kernel can take the module's place.
struct ModuleOrigin {
  std::string class_name;  // of the class or function in `source` or `import`: "Model", "layers.Norm"
  std::string import;      // an installed Python module that has it; empty: Problem::source does
  std::string details;     // a JSON object: arguments, tensors, output, attributes (env/import/origin.py)
};

// Guarantees of LoadProblemFile: names of inputs and of outputs with a buffer of their own are C++ identifiers, distinct,
// and differ from the size symbols. There is an output or an input-output.
// `forward` (and `scale`) take the inputs in order, or the inputs and then one `Dict[str, Tensor]` of all
// parameters. Every size set defines the same symbols. At every size all dimensions are positive, nothing
// overflows, min_flops <= flops, and min_bytes <= the bytes of all tensors. Scalar arguments and constants
// are part of `reference`.
// Problem::least_own_share, unless the problem says otherwise.
inline constexpr double kLeastOwnShare = 0.9;

struct Problem {
  std::string id;    // "level1/19"; in a user's own file any text
  std::string name;  // "ReLU"
  // "elementwise", "reduction", "softmax", "norm", "scan", "matmul", "broadcast", "conv", "pool", ...
  std::vector<std::string> families;
  std::map<std::string, std::string> flags;  // flag to reason; level1/019_relu.toml lists the flags
  std::string reference;                     // TorchScript text with `def forward(...)`
  std::string source;                        // the user's own code from which it was imported; may be empty
  std::optional<ModuleOrigin> module;        // of an imported problem
  std::optional<ModelFacts> model;           // how candidates in Python are constructed and called
  std::vector<TensorSpec> inputs;            // in the order of the file; parameters last
  // What is checked: the outputs of the file, which `forward` returns, then each input-output after the call, in the
  // order of the inputs and with the same name.
  std::vector<TensorSpec> outputs;
  bool has_param_dict = false;  // `forward` takes the parameters as a Dict[str, Tensor]
  // "full", "small", ... The shapes of a size set with several, [[sizes.mine]] in the file, are "mine/1",
  // "mine/2", ...: each is a size, and `shape_sets` lists them under "mine", in the order of the file.
  std::map<std::string, Symbols> sizes;
  std::map<std::string, std::vector<WeightedShape>> shape_sets;
  std::string flops, bytes;          // expressions: the usual counts, for rates
  std::string min_flops, min_bytes;  // expressions: lower bounds for every correct algorithm

  // The check; env/verdict/verify.h has the formula.
  std::string reduction = "1";     // K: the number of terms of one output element
  std::string scale;               // optional TorchScript `def scale(...)` with the arguments of forward: the
                                   // magnitude of the terms of each output element
  std::optional<int> extreme_dim;  // output 0 holds indices along this dim of input 0 ...
  bool extreme_is_max = true;      // ... of its maximum (minimum)
  // Of outputs of 16 bits: an element may be off by so many times the RMS of eager's errors along its row. 0: not used. For
  // problems that enlarge the roundings between their steps, as attention does.
  double error_spread = 0;
  // Of candidates in Python under the rules `kevin`: the least share of the work that their own kernels do, 0 to 1. 0: any.
  double least_own_share = kLeastOwnShare;

  std::string text;          // the content of the file
  std::string content_hash;  // SHA-256 of text without the table [model], hex; see env/problem/model_facts.h
  std::filesystem::path path;
};

// Reads one problem file. Throws Error(kBadRequest) with file, line and key.
Problem LoadProblemFile(const std::filesystem::path& path);
Problem ParseProblem(const std::string& text, const std::filesystem::path& path_for_messages);

// --- The problem at one size ---

// --- Input-outputs ---

// The outputs that have a buffer of their own: the first so many of `outputs`. The others are input-outputs.
inline constexpr size_t kMaxResults = 8;  // outputs and input-outputs of a problem
size_t OwnOutputs(const Problem& problem);
bool HasInOuts(const Problem& problem);
// The number of the input whose value after the call is this output; nothing for an output with its own buffer.
std::optional<size_t> InOutOf(const Problem& problem, size_t output);
// Among the arguments of `launch` (LaunchTensors): outputs with a buffer of their own; what `launch` may write.
bool IsOutputArgument(const Problem& problem, size_t argument);
bool IsWrittenArgument(const Problem& problem, size_t argument);
// Throws Error(kBadRequest) for a problem with input-outputs and a kind in Python: its calls return new tensors.
void RequireKindTakes(const Problem& problem, const std::string& kind);

// A tensor with numbers instead of symbols.
struct ConcreteTensor {
  TensorSpec spec;
  std::vector<int64_t> shape;
  int64_t elements = 0;
  int64_t bytes = 0;
};

struct SizedProblem {
  const Problem* problem = nullptr;  // not owned; must outlive this
  std::string size;
  // Constants in scope in a candidate: the size symbols, and the offsets of a parameter block.
  Symbols symbols;
  std::vector<ConcreteTensor> inputs, outputs;
  std::vector<ConcreteTensor> arguments;  // of `launch` (LaunchTensors)
  int64_t reduction = 1;
  double flops = 0, bytes = 0, min_flops = 0, min_bytes = 0;
};

// `size` must be one of problem.sizes, else Error(kBadRequest) lists them. The name of a set with several
// shapes is not a size: ShapesOf gives its shapes.
SizedProblem AtSize(const Problem& problem, const std::string& size);

inline constexpr size_t kMaxShapes = 64;  // of a size set

// The shapes of a size set, or `size` itself. Throws like AtSize.
std::vector<WeightedShape> ShapesOf(const Problem& problem, const std::string& size);
// At the first of them.
SizedProblem AtFirstShape(const Problem& problem, const std::string& size);
// "mine/2 (B = 4, N = 1001)", for messages.
std::string ShapeName(const std::string& size, const Symbols& symbols);

// --- Candidates: their kinds and the `launch` function ---
// Kinds are "cpp", "cuda", "ptx", "modelnew" (a Python file with a class ModelNew); the name is also the language of the fenced block in a reply.

std::string FileEnding(const std::string& kind);  // "cpp", "cu", "ptx", "py"; an unknown kind is returned
// .cpp, .cc and .cxx are "cpp", .cu is "cuda", .ptx is "ptx", .py is "modelnew"; any other ending is "".
std::string KindOfFile(const std::filesystem::path& path);
std::string LanguageOf(const std::string& kind);     // for a sentence: "C++", "CUDA C++", "PTX"
bool IsForGpu(const std::string& kind);              // "cuda" and "ptx"
bool IsPython(const std::string& kind);              // "modelnew" and "triton": they run in a Python worker
std::string DeviceModel(const std::string& device);  // "NVIDIA H200" of "cuda:0: NVIDIA H200"

// The type of an element in this kind: DTypeCpp, but "__half" and "__nv_bfloat16" in the kinds for GPUs.
const char* DTypeInKind(DType dtype, const std::string& kind);

// Above kMaxSeparateParams parameters (deep networks) `launch` takes them as one block,
// `const float* params`. All have one floating type (float32 in the file; env/problem/precision.h) and lie in
// the order of the file, each at the next multiple of kParamAlignment elements. The constant OffsetName
// (`fc1_weight_offset` for `fc1_weight`) is its position, in elements. The gaps are uninitialised.
inline constexpr size_t kMaxSeparateParams = 16;
inline constexpr int64_t kParamAlignment = 64;
inline constexpr const char* kParamBlockName = "params";
bool HasParamBlock(const Problem& problem);
std::string OffsetName(const std::string& param);

// The tensors of `launch`, in order: inputs, then the parameters or their block (of shape {}), then outputs with a
// buffer of their own. An input-output stands once, at its place among the inputs.
std::vector<TensorSpec> LaunchTensors(const Problem& problem);

// The function that a candidate of this kind must define: `void launch(const float* x, float* out)`, in kind
// `cpp` with `extern "C"`; `def launch(x, out):` in kind `triton`. In kind `modelnew` it is a class.
std::string LaunchSignature(const Problem& problem, const std::string& kind = "cpp");

// --- The problems that are there ---

// The id of a file, given relative to its folder of problems: "level1/19" of "level1/019_relu.toml"; a name
// without a number stays unchanged.
std::string ProblemIdOf(const std::filesystem::path& relative);

// The problems of one folder: FOLDER/level1/019_relu.toml has the id "level1/19" and must contain it. Only
// file names are read until Find.
class ProblemSet {
 public:
  // DefaultDirectory and ImportedDirectory together.
  ProblemSet();
  // Throws Error(kBadRequest) if `directory` cannot be read or two files have one id.
  explicit ProblemSet(const std::filesystem::path& directory);
  // $KEVIN_PROBLEMS, else ../share/kevin/problems beside the program, else the source tree of the build.
  static std::filesystem::path DefaultDirectory();
  // $XDG_DATA_HOME/kevin/problems, else ~/.local/share/kevin/problems: the results of `kevin import`, one
  // folder a suite. May be absent.
  static std::filesystem::path ImportedDirectory();
  const std::vector<std::string>& Ids() const { return order_; }  // levels by number, then the others
  // `id` is an id ("level1/19") or the path of a TOML file (ends in ".toml"). Throws Error(kBadRequest) for
  // an unknown id, with the nearest ids and names.
  Problem Find(const std::string& id) const;

 private:
  void Add(const std::filesystem::path& directory);
  std::vector<std::string> Nearest(const std::string& id) const;

  std::map<std::string, std::filesystem::path> files_;
  std::vector<std::string> order_;
};

// A problem that is left out of a suite because of its flags (FlagsAgainst in env/problem/precision.h).
struct LeftOut {
  std::string id, reason;
};

// The problems of `--suite`:
//
//   level1                     all of a level, or of an imported suite
//   level1/1-20                the existing numbers of a range
//   level1/19,level1/23        several of these, also ranges
//   core                       a list of the problem folder: suites/core.txt
//   mine.txt, mine.toml        a user's own list, or one problem file
//
// A list has one of the above a line; # begins a comment. The result has ids and paths for ProblemSet::Find,
// each once, in the given order. With `left_out`, flagged problems of a level, range or list go there
// instead; a problem that is named by its own id stays. Throws Error(kBadRequest) for a name of nothing.
std::vector<std::string> ProblemsOfSuite(const ProblemSet& problems,
                                         const std::filesystem::path& problem_folder,
                                         const std::string& suite, std::vector<LeftOut>* left_out = nullptr,
                                         Precision precision = Precision::kFp32);

// A correct kernel that computes in another order or with another formula than eager: a serial sum, a split
// sum, an online softmax, fast intrinsics. The check of its problem must accept it.
struct Alternative {
  std::string name;    // "serial sum"
  std::string source;  // a `cpp` candidate for float32
};

// The alternatives of a problem, by file name: FOLDER/alternatives/level1/019_relu/*.cpp for the problem file
// FOLDER/level1/019_relu.toml. The name is the comment in the first line. Empty where there is no such
// folder. Throws Error(kBadRequest) for a file that cannot be read or has no name.
std::vector<Alternative> AlternativesFor(const Problem& problem);

}  // namespace kevin
