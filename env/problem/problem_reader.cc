// A problem out of the tables of its file.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <set>
#include <string_view>

#include "env/problem/problem.h"
#include "env/problem/text.h"
#include "env/problem/toml_reader.h"

namespace kevin {
namespace {

constexpr size_t kMaxTitleBytes = 200;
constexpr double kMostErrorSpread = 16;
constexpr double kMostRowShift = 1000;  // fp16 ends at 65504
constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kI64, DType::kI32, DType::kBool};
constexpr Distribution kDistributions[] = {
    Distribution::kMixture,     Distribution::kNormal,   Distribution::kUniform, Distribution::kUniform01,
    Distribution::kHeavyTailed, Distribution::kPositive, Distribution::kSigns,   Distribution::kStored};
constexpr Structure kStructures[] = {Structure::kNone, Structure::kUpper, Structure::kLower,
                                     Structure::kSymmetric};
constexpr std::string_view kFlags[] = {"degenerate-upstream",  "random-upstream",        "redundant-ops",
                                       "algebraic-shortcut",   "needs-int64-index",      "index-output",
                                       "ignored-input",        "coarse-layers",          "inadmissible",
                                       "inadmissible-at-full", "inadmissible-in-16-bits"};

template <typename Value, size_t kCount>
Value Choice(const TomlSection& section, const char* key, const Value (&values)[kCount],
             const char* (*name_of)(Value)) {
  if (!section.Has(key)) return values[0];
  const std::string wanted = section.String(key);
  std::vector<std::string_view> names;
  for (const Value value : values) {
    if (wanted == name_of(value)) return value;
    names.emplace_back(name_of(value));
  }
  section.Fail(key, fmt::format("unknown {} '{}'", key, wanted),
               fmt::format("one of {}", fmt::join(names, ", ")));
}

struct Arguments {
  std::vector<std::string> names;
  bool ends_in_dict = false;  // the last is a Dict[str, Tensor]
};

// The arguments of `def FUNCTION(a, b: Tensor, ...)` in TorchScript text; nothing without such a function.
std::optional<Arguments> ArgumentsOf(const std::string& text, const std::string& function) {
  const std::string head = fmt::format("def {}(", function);
  size_t at = text.find(head);
  while (at != std::string::npos && at > 0 && text[at - 1] != '\n') at = text.find(head, at + 1);
  if (at == std::string::npos) return std::nullopt;
  Arguments arguments;
  std::string name, type;
  bool in_name = true;  // else in its type or default value
  int depth = 0;
  for (at += head.size(); at < text.size(); ++at) {
    const char c = text[at];
    if (depth == 0 && (c == ')' || c == ',')) {
      if (!name.empty()) {
        arguments.names.push_back(name);
        arguments.ends_in_dict = type == ":Dict[str,Tensor]";
      }
      if (c == ')') return arguments;
      name.clear();
      type.clear();
      in_name = true;
      continue;
    }
    depth += (c == '[' || c == '(') - (c == ']' || c == ')');
    if (c == ':' || c == '=') in_name = false;
    if (c != ' ' && c != '\n' && c != '\t') (in_name ? name : type) += c;
  }
  return std::nullopt;
}

class ProblemReader {
 public:
  explicit ProblemReader(const TomlSection& top) : top_(top) {}

  Problem Read() {
    top_.CheckKeys({"id", "name", "families", "flags", "reference", "source", "module", "sizes", "inputs",
                    "outputs", "cost", "check", "model"});
    problem_.id = top_.String("id");
    problem_.name = top_.String("name");
    problem_.families = top_.Strings("families");
    CheckTexts();
    if (top_.Has("flags")) ReadFlags(top_.Table("flags"));
    problem_.reference = top_.String("reference");
    if (top_.Has("source")) problem_.source = top_.String("source");
    if (top_.Has("module")) ReadModule(top_.Table("module"));
    ReadSizeSets(top_.Table("sizes"), &problem_);
    for (const TomlSection& input : top_.Tables("inputs")) problem_.inputs.push_back(ReadInput(input));
    if (HasParamBlock(problem_)) CheckParamBlock();
    ReadOutputs();
    problem_.has_param_dict = TakesParamDict();
    CheckArguments(top_, "reference", problem_.reference, "forward", problem_.has_param_dict);
    ReadCost(top_.Table("cost"));
    if (top_.Has("check")) ReadCheck(top_.Table("check"));
    if (top_.Has("model")) problem_.model = ReadModelFacts(top_.Table("model"), problem_);
    return std::move(problem_);
  }

 private:
  // Those of the file, then the input-outputs. A file with input-outputs needs no other output.
  void ReadOutputs() {
    std::vector<TensorSpec> inouts;
    for (const TensorSpec& input : problem_.inputs) {
      if (input.is_inout) inouts.push_back(input);
    }
    if (inouts.empty() || top_.Has("outputs")) {
      for (const TomlSection& output : top_.Tables("outputs")) {
        output.CheckKeys({"name", "shape", "dtype"});
        problem_.outputs.push_back(ReadTensor(output));
      }
    }
    problem_.outputs.insert(problem_.outputs.end(), inouts.begin(), inouts.end());
    if (problem_.outputs.size() > kMaxResults) {
      top_.FailHere(fmt::format("has {} outputs and input-outputs, and there may be {}",
                                problem_.outputs.size(), kMaxResults),
                    "split the problem");
    }
  }

  void CheckTexts() const {
    if (const std::string reason = WhyNoId(problem_.id); !reason.empty())
      top_.Fail("id", reason, "write an id such as mine/relu");
    if (const std::string reason = WhyNoLine(problem_.name, kMaxTitleBytes); !reason.empty())
      top_.Fail("name", reason, "write one line that people can read");
    for (const std::string& family : problem_.families) {
      if (const std::string reason = WhyNoLine(family, kMaxTitleBytes); !reason.empty())
        top_.Fail("families", reason, "write one line that people can read");
    }
  }

  void ReadModule(const TomlSection& module) {
    module.CheckKeys({"class", "import", "details"});
    problem_.module =
        ModuleOrigin{module.String("class"), module.Has("import") ? module.String("import") : "",
                     module.String("details")};
  }

  void ReadFlags(const TomlSection& flags) {
    flags.CheckKeys({std::begin(kFlags), std::end(kFlags)});
    for (const auto& [flag, reason] : flags.table()) {
      problem_.flags[std::string(flag.str())] = flags.String(flag.str());
    }
  }

  // An integer, or an expression in a string that is valid at every size.
  std::string ReadExpression(const TomlSection& section, const toml::node& node, const std::string& key,
                             int64_t at_least) const {
    if (!node.is_integer() && !node.is_string())
      section.FailType(node, key, "an integer or an expression in quotes");
    const std::string text = node.is_integer() ? std::to_string(**node.as_integer()) : **node.as_string();
    for (const auto& [size, symbols] : problem_.sizes) {
      const ExpressionResult result = TryEvaluateExpression(text, symbols);
      if (!result.error.empty()) {
        section.Fail(node.source(), key, result.error, "size symbols are defined in the [sizes.*] tables");
      }
      if (result.value < at_least) {
        section.Fail(
            node.source(), key,
            fmt::format("'{}' is {} at size {}, must be at least {}", text, result.value, size, at_least),
            fmt::format("change it or [sizes.{}]", size));
      }
    }
    return text;
  }
  std::string ReadExpression(const TomlSection& section, const char* key, int64_t at_least) const {
    return ReadExpression(section, section.Require(key), section.Key(key), at_least);
  }

  TensorSpec ReadTensor(const TomlSection& section) {
    TensorSpec tensor;
    tensor.name = section.String("name");
    if (const std::string reason = WhyNoName(tensor.name); !reason.empty()) {
      section.Fail("name", reason, "it names a pointer in C++ and an argument in TorchScript");
    }
    if (!names_.insert(tensor.name).second) {
      section.Fail("name", fmt::format("'{}' is used twice", tensor.name),
                   "every input and output needs a different name");
    }
    if (problem_.sizes.begin()->second.contains(tensor.name)) {
      section.Fail("name", fmt::format("'{}' is also a size symbol", tensor.name),
                   "both are in scope in a candidate; rename one");
    }
    for (const toml::node& dim : section.Array("shape")) {
      tensor.shape.push_back(ReadExpression(section, dim, section.Key("shape"), 1));
    }
    tensor.dtype = Choice(section, "dtype", kDTypes, DTypeName);
    AddBytes(section, tensor);
    return tensor;
  }

  TensorSpec ReadInput(const TomlSection& section) {
    section.CheckKeys({"name", "shape", "dtype", "distribution", "scale", "offset", "row_shift", "structure",
                       "role", "values"});
    TensorSpec input = ReadTensor(section);
    input.distribution = Choice(section, "distribution", kDistributions, DistributionName);
    ReadStored(section, &input);
    ReadScale(section, &input);
    input.offset = section.Number("offset", 0.0);
    ReadRowShift(section, &input);
    input.structure = Choice(section, "structure", kStructures, StructureName);
    const bool is_square = input.shape.size() == 2 && input.shape[0] == input.shape[1];
    if (input.structure != Structure::kNone && (!is_square || input.dtype != DType::kF32)) {
      section.Fail("structure", "is for square matrices of float32",
                   "remove it, or make both dimensions equal");
    }
    if (input.structure != Structure::kNone && input.row_shift != 0) {
      section.Fail("row_shift", "is not for a matrix with a structure", "remove one of both");
    }
    if (section.Has("role")) {
      const std::string role = section.String("role");
      if (role != "input" && role != "param" && role != "inout") {
        section.Fail("role", fmt::format("unknown role '{}'", role), "one of input, inout, param");
      }
      input.is_param = role == "param";
      input.is_inout = role == "inout";
    }
    if (input.is_inout && !IsFloating(input.dtype)) {
      section.Fail(
          "role",
          fmt::format("an input-output cannot be {}: it could not be checked", DTypeName(input.dtype)),
          "make it float32, float16 or bfloat16");
    }
    if (input.is_inout && input.stored)
      section.Fail("role", "an input-output has new values in every call, not stored ones", "draw it");
    if (input.is_inout) AddBytes(section, input);  // read and written
    if (!input.is_param && !problem_.inputs.empty() && problem_.inputs.back().is_param) {
      section.Fail("name", fmt::format("'{}' follows a parameter", input.name),
                   "list the parameters (role = \"param\") after all other inputs");
    }
    return input;
  }

  void ReadStored(const TomlSection& section, TensorSpec* input) const {
    const bool is_stored = input->distribution == Distribution::kStored;
    if (is_stored != section.Has("values")) {
      section.Fail("distribution", is_stored ? "'stored' needs `values`" : "`values` are not used",
                   "write both `distribution = \"stored\"` and `values`, or neither");
    }
    if (!is_stored) return;
    const auto bytes_at = [&](const Symbols& symbols) {
      int64_t bytes = DTypeBytes(input->dtype);
      for (const std::string& dim : input->shape) bytes *= EvaluateExpression(dim, symbols);
      return static_cast<size_t>(bytes);
    };
    const size_t bytes = bytes_at(problem_.sizes.begin()->second);
    for (const auto& [size, symbols] : problem_.sizes) {
      if (bytes_at(symbols) != bytes)
        section.Fail("shape", "stored values have one shape at all sizes", "write integers as their shape");
    }
    std::optional<std::string> values = UnpackValues(section.String("values"), bytes);
    if (!values) {
      section.Fail("values", fmt::format("are not {} bytes in base64 of a zlib stream", bytes),
                   "`kevin import` writes them");
    }
    input->stored = std::make_shared<const std::string>(std::move(*values));
  }

  void ReadScale(const TomlSection& section, TensorSpec* input) const {
    if (!section.Has("scale") || !section.Require("scale").is_string()) {
      input->scale = section.Number("scale", 1.0);
      if (input->scale == 0) section.Fail("scale", "must not be 0", "equal inputs cannot detect errors");
      return;
    }
    input->scale_text = section.String("scale");
    for (const auto& [size, symbols] : problem_.sizes) {
      const ScaleResult result = TryEvaluateScale(input->scale_text, symbols);
      if (!result.error.empty()) {
        section.Fail("scale", fmt::format("{} (size {})", result.error, size),
                     "a number, an expression over the size symbols, or \"1/sqrt(EXPRESSION)\"");
      }
    }
  }

  void ReadRowShift(const TomlSection& section, TensorSpec* input) const {
    input->row_shift = section.Number("row_shift", 0.0);
    if (input->row_shift == 0) return;
    if (!(input->row_shift > 0 && input->row_shift <= kMostRowShift)) {
      section.Fail("row_shift",
                   fmt::format("must be from 0 to {:g}, not {:g}", kMostRowShift, input->row_shift),
                   "150 is beyond the range of exponentials in float32; 0 leaves it out");
    }
    if (!IsFloating(input->dtype) || input->shape.empty()) {
      section.Fail("row_shift", "is for inputs of a floating type with rows", "remove it");
    }
    if (input->distribution != Distribution::kMixture && input->distribution != Distribution::kNormal) {
      section.Fail("row_shift", fmt::format("has no effect on '{}'", DistributionName(input->distribution)),
                   "it is for the distributions mixture and normal; remove it, or change the distribution");
    }
  }

  void AddBytes(const TomlSection& section, const TensorSpec& tensor) {
    for (const auto& [size, symbols] : problem_.sizes) {
      int64_t bytes = DTypeBytes(tensor.dtype);
      bool overflow = false;
      for (const std::string& dim : tensor.shape) {
        overflow |= __builtin_mul_overflow(bytes, EvaluateExpression(dim, symbols), &bytes);
      }
      overflow |= __builtin_add_overflow(bytes_[size], bytes, &bytes_[size]);
      if (overflow) {
        section.Fail("shape", fmt::format("its bytes overflow a 64-bit integer at size {}", size),
                     fmt::format("reduce [sizes.{}]", size));
      }
    }
  }

  // The names of the block are in scope in a candidate, like the size symbols and the tensors of `launch`.
  void CheckParamBlock() {
    std::set<std::string> reserved = {kParamBlockName};
    for (const TensorSpec& input : problem_.inputs) {
      if (input.is_param) reserved.insert(OffsetName(input.name));
    }
    const auto check = [&](const TomlSection& section, const char* key, const std::string& name) {
      if (!reserved.contains(name)) return;
      section.Fail(key, fmt::format("'{}' is reserved", name),
                   fmt::format("above {} parameters `{}` is their block, and NAME_offset the position of one",
                               kMaxSeparateParams, kParamBlockName));
    };
    const std::vector<TomlSection> inputs = top_.Tables("inputs");
    for (size_t i = 0; i < inputs.size(); ++i) {
      check(inputs[i], "name", problem_.inputs[i].name);
      const DType dtype = problem_.inputs[i].dtype;
      if (!problem_.inputs[i].is_param || (dtype == problem_.inputs.back().dtype && IsFloating(dtype)))
        continue;
      inputs[i].Fail("dtype",
                     fmt::format("must be one floating type above {} parameters", kMaxSeparateParams),
                     "they are passed as one block of numbers");
    }
    for (const auto& [symbol, value] : problem_.sizes.begin()->second) check(top_, "sizes", symbol);
    names_.merge(reserved);
  }

  void CheckArguments(const TomlSection& section, const char* key, const std::string& text,
                      const std::string& function, bool has_param_dict) const {
    std::vector<std::string> expected;
    for (const TensorSpec& input : problem_.inputs) {
      if (!has_param_dict || !input.is_param) expected.push_back(input.name);
    }
    const std::string wanted = fmt::format("def {}({}{})", function, fmt::join(expected, ", "),
                                           has_param_dict ? ", p: Dict[str, Tensor]" : "");
    std::optional<Arguments> given = ArgumentsOf(text, function);
    if (!given) section.Fail(key, fmt::format("has no `{}:`", wanted), "start a line with it");
    const std::string all = fmt::format("{}", fmt::join(given->names, ", "));
    if (has_param_dict && given->ends_in_dict) given->names.pop_back();
    if (given->names != expected || given->ends_in_dict != has_param_dict) {
      section.Fail(key, fmt::format("`def {}({})` does not take the inputs in order", function, all),
                   fmt::format("write `{}:`, or reorder the [[inputs]]", wanted));
    }
  }

  // A deep network may take its parameters as a Dict; else every tensor has an argument.
  bool TakesParamDict() const {
    const std::optional<Arguments> given = ArgumentsOf(problem_.reference, "forward");
    return given && given->ends_in_dict;
  }

  void ReadCost(const TomlSection& cost) {
    cost.CheckKeys({"flops", "bytes", "min_flops", "min_bytes"});
    problem_.flops = ReadExpression(cost, "flops", 0);
    problem_.bytes = ReadExpression(cost, "bytes", 0);
    problem_.min_flops = ReadExpression(cost, "min_flops", 0);
    problem_.min_bytes = ReadExpression(cost, "min_bytes", 0);
    for (const auto& [size, symbols] : problem_.sizes) {
      const int64_t flops = EvaluateExpression(problem_.flops, symbols);
      CheckBound(cost, "min_flops", problem_.min_flops, size, flops, "cost.flops");
      CheckBound(cost, "min_bytes", problem_.min_bytes, size, bytes_.at(size), "the bytes of all tensors");
    }
  }

  void CheckBound(const TomlSection& cost, const char* key, const std::string& bound, const std::string& size,
                  int64_t limit, const char* limit_name) const {
    const int64_t value = EvaluateExpression(bound, problem_.sizes.at(size));
    if (value <= limit) return;
    cost.Fail(key, fmt::format("{} at size {} exceeds {} ({})", value, size, limit_name, limit),
              "it must be a lower bound for every correct algorithm; 0 is allowed");
  }

  void ReadCheck(const TomlSection& check) {
    check.CheckKeys(
        {"reduction", "scale", "extreme_dim", "extreme_is_max", "error_spread", "least_own_share"});
    if (check.Has("reduction")) problem_.reduction = ReadExpression(check, "reduction", 1);
    if (check.Has("scale")) {
      problem_.scale = check.String("scale");
      CheckArguments(check, "scale", problem_.scale, "scale", problem_.has_param_dict);
    }
    if (check.Has("extreme_dim")) ReadExtreme(check);
    problem_.extreme_is_max = check.Bool("extreme_is_max", true);
    if (check.Has("extreme_is_max") && !check.Has("extreme_dim")) {
      check.Fail("extreme_is_max", "has no effect without extreme_dim", "add extreme_dim or remove it");
    }
    problem_.error_spread = check.Number("error_spread", 0);
    if (problem_.error_spread < 0 || problem_.error_spread > kMostErrorSpread) {
      check.Fail("error_spread",
                 fmt::format("must be from 0 to {:g}, not {:g}", kMostErrorSpread, problem_.error_spread),
                 "8 is usual for attention; 0 leaves it out");
    }
    problem_.least_own_share = check.Number("least_own_share", kLeastOwnShare);
    if (problem_.least_own_share < 0 || problem_.least_own_share > 1) {
      check.Fail("least_own_share", fmt::format("must be from 0 to 1, not {:g}", problem_.least_own_share),
                 "0.5 is half of the work; 0 permits any share");
    }
  }

  void ReadExtreme(const TomlSection& check) {
    const int64_t dim = check.Integer("extreme_dim");
    const auto rank = static_cast<int64_t>(problem_.inputs[0].shape.size());
    if (dim < 0 || dim >= rank) {
      check.Fail("extreme_dim", fmt::format("{} is not a dimension of {}", dim, problem_.inputs[0].name),
                 fmt::format("it has {} dimensions, counted from 0", rank));
    }
    std::vector<std::string> without = problem_.inputs[0].shape, kept = without;
    without.erase(without.begin() + dim);
    kept[static_cast<size_t>(dim)] = std::string("1");
    const TensorSpec& output = problem_.outputs[0];
    if (output.dtype != DType::kI64 || (output.shape != without && output.shape != kept)) {
      check.Fail("extreme_dim", fmt::format("{} does not hold one index along it", output.name),
                 fmt::format("it must be int64 of shape ({})", fmt::join(without, ", ")));
    }
    problem_.extreme_dim = static_cast<int>(dim);
  }

  TomlSection top_;
  Problem problem_;
  std::set<std::string> names_;           // of the tensors read
  std::map<std::string, int64_t> bytes_;  // of the tensors read, by size
};

}  // namespace

Problem ReadProblem(const TomlSection& top) { return ProblemReader(top).Read(); }

}  // namespace kevin
