#pragma once
// A problem: what is to be computed, on which shapes, and how an answer is checked. One TOML file each
// (env/problems/level1/019_relu.toml explains every key); ids follow KernelBench's numbering.
// Plain values, immutable once loaded; safe to share between threads.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "env/problem/expression.h"

namespace kevin {

enum class DType { kF32, kF16, kBF16, kI64, kI32, kBool };
const char* DTypeName(DType dtype);  // "float32", ...
const char* DTypeCpp(
    DType dtype);       // "float", "long", "_Float16", ... as a candidate's signature spells it; "bf16"
                        // is a type that Kevin declares (Bf16Cpp), as compilers for CPUs lack one
const char* Bf16Cpp();  // its declaration in C++: two bytes, to and from float
int64_t DTypeBytes(DType dtype);
int64_t ElementCount(const std::vector<int64_t>& shape);  // 1 for a scalar's empty shape

// How the values of an input are drawn. kMixture picks one of several zero-mean shapes (normal, uniform,
// heavy-tailed, scaled) by the slot's seed; kUniform01 is what KernelBench uses; kSigns are -1 and 1.
// kStored are fixed values that the file holds.
enum class Distribution { kMixture, kNormal, kUniform, kUniform01, kHeavyTailed, kPositive, kSigns, kStored };
const char* DistributionName(Distribution distribution);  // as in the file: "mixture", ..., "heavy-tailed"

// What a square matrix is by construction: zero below (kUpper) or above (kLower) its diagonal, or its own
// transpose.
enum class Structure { kNone, kUpper, kLower, kSymmetric };
const char* StructureName(Structure structure);  // as in the file: "upper", ...

// Of other types than floating ones: an integer is the drawn value rounded down, a bool says whether it is
// positive.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::string> shape;                      // expressions over the size symbols, e.g. "B", "2*N"
  Distribution distribution = Distribution::kMixture;  // inputs and parameters only
  double scale = 1.0;                                  // multiplies the drawn values
  std::string scale_text;  // where it depends on the size: "1/sqrt(9*C)"; AtSize puts the value into `scale`
  double offset = 0.0;     // added after scaling
  Structure structure = Structure::kNone;
  std::shared_ptr<const std::string> stored;  // of kStored: the bytes, in C order
  bool is_param = false;                      // a weight: drawn like an input, passed after the inputs
};

// One shape of a size set, by the name under which Problem::sizes has it, and what it counts among the
// others.
struct WeightedShape {
  std::string size;
  double weight = 1;  // above 0; only its share of the sum matters
};

// What LoadProblemFile promises: names are C++ identifiers, all different, and differ from the size symbols;
// `forward` (and `scale`) take the inputs in order, or the inputs and then one `Dict[str, Tensor]` of all
// parameters; every size set defines the same symbols; at every size
// all dimensions are positive, nothing overflows, min_flops <= flops and min_bytes <= the bytes of all
// tensors. Scalar arguments and constants belong in `reference` itself.
struct Problem {
  std::string id;                     // "level1/19"; for a file of one's own, what the file says
  std::string name;                   // "ReLU"
  std::vector<std::string> families;  // "elementwise", "reduction", "softmax", "norm", "scan", "matmul",
                                      // "broadcast", "conv", "pool", "attention", ...
  std::map<std::string, std::string> flags;  // to the reason why; level1/019_relu.toml lists them
  std::string reference;                     // TorchScript text with `def forward(...)`
  std::string source;                        // the person's own code that it was made from; may be empty
  std::vector<TensorSpec> inputs;            // in the file's order, which has parameters last
  std::vector<TensorSpec> outputs;
  bool has_param_dict = false;  // `forward` takes the parameters as a Dict[str, Tensor]
  // "full", "small", ... Of a size set `mine` with several shapes, [[sizes.mine]] in the file, these are
  // "mine/1", "mine/2", ...: each is a size of its own, and `shape_sets` has "mine", in the file's order.
  std::map<std::string, Symbols> sizes;
  std::map<std::string, std::vector<WeightedShape>> shape_sets;
  std::string flops, bytes;          // expressions: the usual counts
  std::string min_flops, min_bytes;  // expressions: no correct algorithm does with less

  // The check (see docs of env/verdict/verify.h for the formula).
  std::string reduction = "1";     // K: how many terms are added up for one output element
  std::string scale;               // optional TorchScript `def scale(...)`, same arguments as forward,
                                   // gives the magnitude of what is added up per output element
  std::optional<int> extreme_dim;  // output 0 holds indices along this dim of input 0 ...
  bool extreme_is_max = true;      // ... that must point at its maximum (minimum)

  std::string text;          // the file as read
  std::string content_hash;  // SHA-256 of text, hex
  std::filesystem::path path;
};

// One tensor with numbers instead of symbols.
struct ConcreteTensor {
  TensorSpec spec;
  std::vector<int64_t> shape;
  int64_t elements = 0;
  int64_t bytes = 0;
};

// A problem at one size set.
struct SizedProblem {
  const Problem* problem = nullptr;  // not owned; must outlive this
  std::string size;
  Symbols symbols;  // constants in scope in a candidate's text: the size's, and a parameter block's offsets
  std::vector<ConcreteTensor> inputs, outputs;
  std::vector<ConcreteTensor> arguments;  // what `launch` takes: as above, or with the block (LaunchTensors)
  int64_t reduction = 1;
  double flops = 0, bytes = 0, min_flops = 0, min_bytes = 0;
};

// Reads one problem file. Throws Error(kBadRequest) naming file, line and key.
Problem LoadProblemFile(const std::filesystem::path& path);
Problem ParseProblem(const std::string& text, const std::filesystem::path& path_for_messages);

// `size` must be one of problem.sizes; otherwise Error(kBadRequest) lists them. A set with several shapes is
// not one of them: who means all of it asks ShapesOf.
SizedProblem AtSize(const Problem& problem, const std::string& size);

inline constexpr size_t kMaxShapes = 64;  // of a size set

// All shapes that `size` stands for: those of a set, or `size` itself. Throws like AtSize.
std::vector<WeightedShape> ShapesOf(const Problem& problem, const std::string& size);
// The first of them, where there is room for one.
SizedProblem AtFirstShape(const Problem& problem, const std::string& size);
// "mine/2 (B = 4, N = 1001)", for messages.
std::string ShapeName(const std::string& size, const Symbols& symbols);

// How a candidate of this kind ("cpp", "cuda", "ptx") spells an element's type: as DTypeCpp, but 16-bit
// floats are "__half" and "__nv_bfloat16" in the kinds for GPUs.
const char* DTypeInKind(DType dtype, const std::string& kind);

// Above this many parameters (deep networks) `launch` takes them as one block, `const float* params`. All are
// of one floating type then (float32 in the file, env/problem/precision.h) and lie in it in the file's order, each
// from the next multiple of kParamAlignment elements on: the constant OffsetName (`fc1_weight_offset` for
// `fc1_weight`) says where, in elements. What lies between two of them is undefined.
inline constexpr size_t kMaxSeparateParams = 16;
inline constexpr int64_t kParamAlignment = 64;
inline constexpr const char* kParamBlockName = "params";
bool HasParamBlock(const Problem& problem);
std::string OffsetName(const std::string& param);

// What `launch` takes, in order: inputs, then the parameters or their block (of shape {}), then outputs.
std::vector<TensorSpec> LaunchTensors(const Problem& problem);

// What a candidate of this kind must define: `void launch(const float* x, float* out)`, in kind `cpp` with
// `extern "C"` before it.
std::string LaunchSignature(const Problem& problem, const std::string& kind = "cpp");

// "level1/019_relu.toml", relative to its folder of problems, has the id "level1/19"; a name without a number
// stays as it is.
std::string ProblemIdOf(const std::filesystem::path& relative);

// The problems of one folder: FOLDER/level1/019_relu.toml has the id "level1/19" and must say so itself.
// Only names are read until a problem is asked for.
class ProblemSet {
 public:
  // Those of DefaultDirectory and the imported ones.
  ProblemSet();
  // Throws Error(kBadRequest) if `directory` cannot be read or two files claim one id.
  explicit ProblemSet(const std::filesystem::path& directory);
  // $KEVIN_PROBLEMS, else ../share/kevin/problems beside the program, else the source tree it was built from.
  static std::filesystem::path DefaultDirectory();
  // $XDG_DATA_HOME/kevin/problems, else ~/.local/share/kevin/problems: what `kevin import` made, a folder a
  // suite. It need not be there.
  static std::filesystem::path ImportedDirectory();
  const std::vector<std::string>& Ids() const { return order_; }  // levels by number, then all else
  // `id` is an id ("level1/19") or the path of a TOML file (ends in ".toml"). Unknown ids throw
  // Error(kBadRequest) that offers the nearest ids and names.
  Problem Find(const std::string& id) const;

 private:
  void Add(const std::filesystem::path& directory);
  std::vector<std::string> Nearest(const std::string& id) const;

  std::map<std::string, std::filesystem::path> files_;
  std::vector<std::string> order_;
};

// A correct kernel that computes in another order or with another formula than eager: a serial sum, a split sum, an
// online softmax, fast intrinsics. The check of its problem must accept it.
struct Alternative {
  std::string name;    // "serial sum"
  std::string source;  // a `cpp` candidate for float32
};

// The alternatives of a problem, by file name: FOLDER/alternatives/level1/019_relu/*.cpp for the problem file
// FOLDER/level1/019_relu.toml. The name is the comment in the first line. Empty where there is no such folder.
// Throws Error(kBadRequest) for a file that cannot be read or has no name.
std::vector<Alternative> AlternativesFor(const Problem& problem);

}  // namespace kevin
