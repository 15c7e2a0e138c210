// Every operator that a reference may call: operators.txt says which ones the search policy writes and which ones it
// refuses, with what words. What it writes is compared with PyTorch in double precision, before and after Fuse, and as
// compiled C++.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <sstream>

#include "env/error.h"
#include "env/problem/reference_operators.h"
#include "env/reference/graph.h"
#include "env/reference/reference.h"
#include "policies/search/graph.h"
#include "policies/search/lower.h"
#include "policies/search/setting_text.h"
#include "policies/search/write.h"
#include "tests/catch.h"
#include "tests/folders.h"
#include "tests/policies/search/interpreter.h"
#include "tests/policies/search/kernel_library.h"
#include "tests/policies/search/program_cases.h"

namespace kevin {
namespace {

struct OperatorInput {
  std::string name, kind;
  std::vector<int64_t> shape;
};

struct OperatorCase {
  std::string op, body, refusal;
  std::vector<OperatorInput> inputs;
};

struct OperatorTable {
  std::vector<OperatorCase> cases;
  std::set<std::string> others;  // no cases: operators of numbers and lists
};

std::string Trimmed(const std::string& text) {
  const size_t from = text.find_first_not_of(' '), to = text.find_last_not_of(' ');
  return from == std::string::npos ? "" : text.substr(from, to - from + 1);
}

std::vector<std::string> SplitAt(const std::string& text, char mark) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, mark);) parts.push_back(Trimmed(part));
  return parts;
}

std::vector<std::string> WordsOf(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

OperatorInput InputOf(const std::string& text) {
  const std::vector<std::string> parts = SplitAt(text + ":", ':');
  OperatorInput input{parts.at(0), parts.size() > 2 ? parts[2] : "", {}};
  for (const std::string& size : SplitAt(parts.at(1), ',')) input.shape.push_back(std::stoll(size));
  return input;
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

OperatorTable ReadTable() {
  OperatorTable table;
  std::ifstream file(SourceFolder() / "tests/policies/search/operators.txt");
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == '-') {
      for (const std::string& word : WordsOf(line.substr(1))) table.others.insert(word);
      continue;
    }
    const std::vector<std::string> fields = SplitAt(line, '|');
    OperatorCase one;
    for (const std::string& input : WordsOf(fields.at(1))) one.inputs.push_back(InputOf(input));
    if (fields.size() > 3) one.refusal = Trimmed(fields[3].substr(1));
    for (const std::string& op : WordsOf(fields.at(0))) {
      one.op = op;
      one.body = Replaced(fields.at(2), "$", "torch." + op);
      table.cases.push_back(one);
    }
  }
  return table;
}

Problem ProblemOf(const OperatorCase& one) {
  Problem problem;
  problem.id = one.op;
  std::string names;
  for (const OperatorInput& input : one.inputs) {
    TensorSpec spec;
    spec.name = input.name;
    spec.dtype = input.kind[0] == 'i' ? DType::kI64 : input.kind == "b" ? DType::kBool : DType::kF32;
    for (const int64_t size : input.shape) spec.shape.push_back(std::to_string(size));
    problem.inputs.push_back(spec);
    names += (names.empty() ? "" : ", ") + input.name;
  }
  problem.reference = "def forward(" + names + "):\n";
  for (const std::string& line : SplitAt(one.body, ';')) problem.reference += "    " + line + "\n";
  problem.sizes = {{"small", {}}};
  problem.flops = problem.bytes = problem.min_flops = problem.min_bytes = "1";
  return problem;
}

// As lower_cases.py has them.
double Element(const std::string& kind, size_t input, size_t place) {
  const double share = static_cast<double>((place * 7919 + input * 1597 + 13) % 1009) / 1009;
  if (kind[0] == 'i') return std::floor(share * std::stod(kind.substr(1)));
  if (kind == "b") return share < 0.5;
  if (kind == "s") return share < 0.5 ? -1 : 1;
  return kind == "p" ? share : (2 * share - 1) * 1.7;
}

// The inputs in their own types, for torch and for a kernel.
struct Tensors {
  std::vector<std::vector<char>> bytes;
  std::vector<TensorView> views;
  test::Memory values;
};

Tensors TensorsOf(const OperatorCase& one, const Problem& problem) {
  Tensors tensors;
  for (size_t i = 0; i < one.inputs.size(); ++i) {
    const DType dtype = problem.inputs[i].dtype;
    size_t count = 1;
    for (const int64_t size : one.inputs[i].shape) count *= static_cast<size_t>(size);
    const size_t width = dtype == DType::kI64 ? 8 : dtype == DType::kBool ? 1 : 4;
    std::vector<char> data(count * width);
    std::vector<double> values(count);
    for (size_t e = 0; e < count; ++e) {
      const double value = Element(one.inputs[i].kind, i, e);
      const auto number = static_cast<float>(value);
      const auto whole = static_cast<int64_t>(value);
      const char truth = value != 0;
      const void* from = dtype == DType::kI64    ? static_cast<const void*>(&whole)
                         : dtype == DType::kBool ? static_cast<const void*>(&truth)
                                                 : static_cast<const void*>(&number);
      std::memcpy(data.data() + e * width, from, width);
      values[e] = dtype == DType::kF32 ? static_cast<double>(number) : value;
    }
    tensors.values.push_back(std::move(values));
    tensors.bytes.push_back(std::move(data));
    tensors.views.push_back({tensors.bytes.back().data(), dtype, one.inputs[i].shape});
  }
  return tensors;
}

Task TaskFor(const search::Graph& graph, const char* kind) {
  Task task;
  task.kind = kind;
  task.threads = 2;
  const auto type = [&](int value) {
    const std::string& dtype = graph.values[static_cast<size_t>(value)].dtype;
    return std::string(dtype == "int64"      ? "long"
                       : dtype == "bool"     ? "bool"
                       : dtype == "float16"  ? "_Float16"
                       : dtype == "bfloat16" ? "bf16"
                                             : "float");
  };
  for (const search::GraphInput& input : graph.inputs)
    task.arguments.push_back({input.name,
                              "input",
                              "const " + type(input.value) + "*",
                              graph.values[static_cast<size_t>(input.value)].shape,
                              {}});
  for (size_t i = 0; i < graph.outputs.size(); ++i)
    task.arguments.push_back({"out" + std::to_string(i),
                              "output",
                              type(graph.outputs[i]) + "*",
                              graph.values[static_cast<size_t>(graph.outputs[i])].shape,
                              {}});
  return task;
}

// "" where `got` is `want` but for rounding.
std::string Difference(const std::vector<double>& got, std::span<const double> want, double epsilon) {
  if (got.size() != want.size()) return "another number of elements";
  double scale = 1e-9;
  for (const double value : want) scale = std::isfinite(value) ? std::max(scale, std::fabs(value)) : scale;
  for (size_t i = 0; i < got.size(); ++i) {
    const bool same = got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])) ||
                      std::fabs(got[i] - want[i]) <= epsilon * scale;
    if (!same)
      return "element " + std::to_string(i) + " is " + std::to_string(got[i]) + ", not " +
             std::to_string(want[i]);
  }
  return "";
}

std::vector<std::vector<double>> Interpreted(const search::Program& program, const Tensors& tensors) {
  test::Memory memory;
  for (const search::Buffer& buffer : program.buffers) {
    const bool is_input = buffer.argument >= 0 && !buffer.is_output;
    memory.push_back(is_input ? tensors.values.at(static_cast<size_t>(buffer.argument))
                              : std::vector<double>(static_cast<size_t>(buffer.elements), std::nan("")));
  }
  test::Interpret(program, memory);
  std::vector<std::vector<double>> outputs;
  for (size_t i = 0; i < memory.size(); ++i) {
    if (program.buffers[i].is_output) outputs.push_back(memory[i]);
  }
  return outputs;
}

struct Written {
  OperatorCase one;
  search::Program program;
  std::vector<DoubleTensor> truth;
};

// Throws what refuses the case.
Written Lowered(const OperatorCase& one, std::string* form) {
  const Problem problem = ProblemOf(one);
  const search::Graph graph = search::ParseGraph(ReferenceGraph(problem, "small"));
  for (const search::GraphNode& node : graph.nodes) *form += " " + node.op;
  const Tensors tensors = TensorsOf(one, problem);
  Written written{one, search::Lower(graph, TaskFor(graph, "cpp")),
                  Reference(problem, 1).Truth(tensors.views)};
  const auto check = [&](const search::Program& program, const char* when) {
    const std::vector<std::vector<double>> outputs = Interpreted(program, tensors);
    REQUIRE(outputs.size() == written.truth.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      const std::string difference = Difference(outputs[i], written.truth[i].values(), 1e-6);
      INFO(one.op << ": " << one.body << ", " << when << ", output " << i << ": " << difference);
      CHECK(difference.empty());
    }
  };
  check(written.program, "before Fuse");
  search::Fuse(written.program);
  check(written.program, "after Fuse");
  // Some operations have other stages on a GPU.
  search::Program cuda = search::Lower(graph, TaskFor(graph, "cuda"));
  check(cuda, "for a GPU");
  search::Fuse(cuda);
  check(cuda, "for a GPU, after Fuse");
  return written;
}

// As the evaluator's buffers are aligned; NaN to begin with.
using Pages = std::unique_ptr<char[], decltype(&std::free)>;
Pages AllocatePages(size_t bytes) {
  const size_t size = (bytes + 4096) / 4096 * 4096;
  Pages pages(static_cast<char*>(std::aligned_alloc(4096, size)), &std::free);
  std::memset(pages.get(), 0xff, size);
  return pages;
}

// The compiled text of each program. Outputs of 16 bits and of more than 8 tensors are left to others.
void CheckKernels(const std::vector<Written>& all) {
  std::vector<std::string> sources;
  std::vector<const Written*> owners;
  for (const Written& written : all) {
    const auto is_narrow = [](const search::Buffer& buffer) { return buffer.dtype.ends_with("16"); };
    const std::vector<search::Buffer>& buffers = written.program.buffers;
    const auto arguments = std::count_if(buffers.begin(), buffers.end(),
                                         [](const search::Buffer& b) { return b.argument >= 0; });
    if (arguments > 8 || std::any_of(buffers.begin(), buffers.end(), is_narrow)) continue;
    search::Program program = written.program;
    search::PlaceWorkspaces(program);
    const Task task = test::TaskOf(program);
    search::Setting setting;
    for (const search::Knob& knob : search::CppKnobs(program, task)) setting[knob.name] = knob.values.at(0);
    INFO(written.one.op << ": " << written.one.body);
    const std::string body = search::WriteCpp(program, task, setting);
    sources.push_back(search::KnobLines(search::CppKnobs(program, task), setting, 0, body) + body);
    owners.push_back(&written);
  }
  const test::KernelLibrary library(sources, "-O1");
  for (size_t i = 0; i < owners.size(); ++i) {
    const OperatorCase& one = owners[i]->one;
    INFO(one.op << ": " << one.body);
    Tensors tensors = TensorsOf(one, ProblemOf(one));
    std::vector<void*> pointers;
    std::vector<Pages> pages, outputs;
    for (const std::vector<char>& bytes : tensors.bytes) {
      pages.push_back(AllocatePages(bytes.size()));
      std::memcpy(pages.back().get(), bytes.data(), bytes.size());
      pointers.push_back(pages.back().get());
    }
    std::vector<std::string> dtypes;
    for (const search::Buffer& buffer : owners[i]->program.buffers) {
      if (!buffer.is_output) continue;
      outputs.push_back(AllocatePages(static_cast<size_t>(buffer.elements) * 8));
      dtypes.push_back(buffer.dtype);
    }
    for (const Pages& output : outputs) pointers.push_back(output.get());
    library.Launch(i, pointers);
    for (size_t o = 0; o < outputs.size(); ++o) {
      const size_t count = owners[i]->truth[o].elements;
      std::vector<double> got(count);
      for (size_t e = 0; e < count; ++e) {
        const char* data = outputs[o].get();
        got[e] = dtypes[o] == "int64"   ? static_cast<double>(reinterpret_cast<const int64_t*>(data)[e])
                 : dtypes[o] == "int32" ? static_cast<double>(reinterpret_cast<const int32_t*>(data)[e])
                 : dtypes[o] == "bool"  ? data[e]
                                        : reinterpret_cast<const float*>(data)[e];
      }
      const std::string difference = Difference(got, owners[i]->truth[o].values(), 2e-5);
      INFO("kernel, output " << o << ": " << difference);
      CHECK(difference.empty());
    }
  }
}

}  // namespace

TEST_CASE("every operator that a reference may call is written or refused by name") {
  const char* part = std::getenv("KEVIN_CASE");
  std::vector<Written> written;
  size_t refused = 0;
  for (const OperatorCase& one : ReadTable().cases) {
    if (part != nullptr && one.op.find(part) == std::string::npos) continue;
    std::string reason, form;
    try {
      written.push_back(Lowered(one, &form));
    } catch (const Error& error) {
      reason = error.what();
      ++refused;
    }
    INFO(one.op << ": " << one.body << "\n  graph:" << form << "\n  refused: " << reason);
    CHECK(reason.empty() == one.refusal.empty());
    CHECK(reason.find(one.refusal) != std::string::npos);
  }
  WARN(written.size() << " operators are written, " << refused << " refused");
  CheckKernels(written);
}

TEST_CASE("operators.txt has every operator of the list") {
  const OperatorTable table = ReadTable();
  std::set<std::string> named = table.others;
  for (const OperatorCase& one : table.cases) named.insert(one.op);
  std::string missing;
  for (const std::string& op : ReferenceOperators()) {
    if (!named.count(op)) missing += " " + op;
  }
  CHECK(missing == "");
}

}  // namespace kevin
