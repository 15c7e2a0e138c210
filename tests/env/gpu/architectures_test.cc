// What the search writes for other GPUs than Hopper: no instruction that they lack, and no block with more shared memory
// than they have. With a device compiler here, the texts also reach their machine code.

#include <algorithm>
#include <set>

#include "env/gpu/launch/launch_function.h"
#include "policies/search/setting_text.h"
#include "policies/search/task_program.h"
#include "tests/env/gpu/gpu_fixture.h"
#include "tests/folders.h"
#include "tests/support/search_text.h"

namespace kevin {
namespace {

struct Architecture {
  TaskDevice device;
  std::string name;  // for the compiler
};

// A100, an A10's relatives, L40, H200, B200.
const std::vector<Architecture>& Architectures() {
  static const std::vector<Architecture> kAll = {{{108, 163 << 10, 80}, "sm_80"},
                                                 {{84, 99 << 10, 86}, "sm_86"},
                                                 {{142, 99 << 10, 89}, "sm_89"},
                                                 {{132, 227 << 10, 90}, "sm_90a"},
                                                 {{148, 227 << 10, 100}, "sm_100a"}};
  return kAll;
}

// Products of every order, convolutions, wide rows, attention, a recurrence, a network.
const std::vector<std::pair<std::string, std::string>>& Chosen() {
  static const std::vector<std::pair<std::string, std::string>> kAll = {
      {"level1/1", "fp16"},  {"level1/8", "fp32"},  {"level1/9", "bf16"},  {"level1/18", "fp32"},
      {"level1/23", "fp32"}, {"level1/40", "fp32"}, {"level1/63", "fp16"}, {"level1/81", "bf16"},
      {"level1/97", "fp16"}, {"level2/12", "fp16"}, {"level3/35", "fp32"}, {"level3/39", "fp32"},
      {"level3/9", "fp16"}};
  return kAll;
}

struct ArchitectureText {
  std::string problem, what, text;
  Problem in_precision;
};

// The first setting, and for each kind of knob that changes the text all of its values, one kind at a time.
std::vector<ArchitectureText> TextsFor(const TaskDevice& device) {
  const ProblemSet problems(SourceFolder() / "env/problems");
  std::vector<ArchitectureText> texts;
  for (const auto& [id, precision] : Chosen()) {
    Workload workload;
    workload.precision = precision;
    const Problem problem = workload.Apply(problems.Find(id));
    Task task = testing::SearchTask(problem, "full", "cuda");
    task.device = device;
    const search::TaskProgram program = search::ProgramsOf(task).at(0);
    const std::vector<search::Knob> knobs = search::KnobsOf(program);
    std::set<std::string> known;
    for (size_t value = 0; value < 4; ++value) {
      search::Setting setting;
      for (const search::Knob& knob : knobs)
        setting[knob.name] = knob.values[knob.in_text ? 0 : std::min(value, knob.values.size() - 1)];
      const std::string body = search::TextOf(program, setting);
      const std::string text = search::KnobLines(knobs, setting, 0, body) + body;
      if (known.insert(text).second)
        texts.push_back({id, precision + ", choice " + std::to_string(value), text, problem});
    }
  }
  return texts;
}

bool Has(const std::string& text, const std::vector<const char*>& words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const char* word) { return text.find(word) != std::string::npos; });
}

}  // namespace

TEST_CASE("texts have the instructions and the shared memory of their GPU") {
  for (const Architecture& architecture : Architectures()) {
    int by_wgmma = 0, by_cluster = 0;
    for (const ArchitectureText& one : TextsFor(architecture.device)) {
      INFO(architecture.name << " " << one.problem << " " << one.what);
      by_wgmma += Has(one.text, {"wgmma", "setmaxnreg", "CUtensorMap", "cp.async.bulk"});
      by_cluster += Has(one.text, {"__cluster"});
      const SizedProblem sized = AtSize(one.in_precision, "full");
      for (const LaunchOperation& operation : InterpretLaunch(sized, "cuda", one.text).list.operations) {
        const auto* launch = std::get_if<KernelLaunch>(&operation);
        if (launch) CHECK(launch->shared_bytes <= architecture.device.block_shared_bytes);
      }
    }
    INFO(architecture.name);
    CHECK((by_wgmma > 0) == (architecture.device.capability == 90));
    CHECK((by_cluster > 0) == (architecture.device.capability >= 90));
  }
}

TEST_CASE("texts reach the machine code of their GPU") {
  if (!TestToolchain()) return;
  Farm farm([](CompileFarmOptions* options) { options->processes = 0; });
  for (const Architecture& architecture : Architectures()) {
    for (const ArchitectureText& one : TextsFor(architecture.device)) {
      const InterpretedLaunch launch = InterpretLaunch(AtSize(one.in_precision, "full"), "cuda", one.text);
      GpuCompileRequest request;
      request.device_text = launch.split.device_text;
      request.kernels.assign(launch.kernels.begin(), launch.kernels.end());
      request.symbols = AtSize(one.in_precision, "full").symbols;
      request.architecture = architecture.name;
      const GpuCompiled compiled = farm->Compile(request);
      INFO(architecture.name << " " << one.problem << " " << one.what << "\n" << compiled.log);
      CHECK_FALSE(compiled.module.cubin.empty());
      for (const KernelInfo& kernel : compiled.module.kernels) CHECK(kernel.static_shared_bytes <= 48 << 10);
    }
  }
}

}  // namespace kevin
