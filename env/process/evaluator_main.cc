// kevin-evaluator: the trusted side, with the reference, the truth, the clock and the verdict.
//   check                                  exits with 0 at once: libtorch could be loaded
//   compile FILE                           compiles the reference of a problem file; exits with 2, and the message and
//                                          the next step on standard output, when it does not compile
//   graph FILE SIZE PRECISION              prints the graph of the reference (env/reference/graph.h); errors as `compile`
//   serve THREADS RUNNER namespaces|plain LIBRARIES
//                                          answers requests on descriptor 3 (env/process/wire.h); compiled kernels
//                                          lie under the folder LIBRARIES
//   serve-python THREADS RUNNER namespaces|plain LIBRARIES SETUP
//                                          the same for candidates in Python; SETUP is a PythonSetup as JSON
//   serve-gpu DEVICE RUNNER namespaces|plain TRUSTED_CUBIN [SETUP LIBRARIES]
//                                          the same for candidates of a GPU; with SETUP, for those in Python
//   serve-graphs                           answers requests for graphs on descriptor 3
//   reference SIZE THREADS PRECISION       the reference process of the pairs (env/cpu/reference_process.cc)
// All but `check` enter a sandbox first (env/sandbox/evaluator_sandbox.h).

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "env/cpu/diagnose.h"
#include "env/cpu/judge.h"
#include "env/cpu/session.h"
#include "env/error.h"
#include "env/gpu/judge/gpu_evaluator.h"
#include "env/printable.h"
#include "env/problem/precision.h"
#include "env/process/machine.h"
#include "env/process/resident_sessions.h"
#include "env/process/spawn.h"
#include "env/process/wire.h"
#include "env/python/python_workers.h"
#include "env/reference/graph.h"
#include "env/reference/reference.h"
#include "env/sandbox/evaluator_sandbox.h"

namespace kevin {
namespace {

using nlohmann::json;

constexpr int kRequests = 3;
constexpr size_t kSessions = 4;
constexpr int64_t kMemoryForSession = int64_t{6}
                                      << 30;  // where less is available, none is kept beside a new one

Fd OpenLibrary(const std::string& path) { return OpenNamed(path, "the compiled kernel"); }

class Evaluator {
 public:
  // `workers`: of candidates in Python, else null.
  Evaluator(int threads, std::string runner, std::filesystem::path own_path, bool namespaces,
            SpareWorkers* workers = nullptr)
      : socket_(kRequests) {
    base_.workers = workers;
    base_.threads = threads;
    base_.runner_path = std::move(runner);
    base_.evaluator_path = std::move(own_path);
    base_.namespaces = namespaces;
  }

  int Serve() {
    ServeRequests(&socket_, {.answer = [this](const json& request) { return Answer(request); },
                             .after_error = [this] { sessions_.Clear(); },
                             .resident = [this] { return sessions_.Keys(); },
                             .when_idle = [this] { ForkSpares(); }});
    return 0;
  }

 private:
  json Answer(const json& request) {
    Session& session = PrepareSession(request);
    if (request.at("command") == "admit") return AdmitProblem(session);
    if (request.at("command") == "eager") return MeasureEager(session);
    if (request.at("command") == "prepare") {
      return {{"reference_us", session.reference_us()},
              {"floor_us", session.FloorMicroseconds()},
              {"slots", session.slots()},
              {"torch", TorchVersion()}};
    }
    const Fd library = OpenLibrary(request.at("library"));
    if (request.at("command") == "diagnose")
      return DiagnosisRunToJson(DiagnoseLibrary(session, library.get()));
    const Fd start = OpenLibrary(request.at("start_library"));
    const Fd own = OpenLibrary(request.at("own_libraries"));
    JudgeRequest judge;
    judge.library_fd = library.get();
    judge.own_libraries_fd = own.get();
    judge.start_library_fd = start.get();
    static_cast<JudgeOptions&>(judge) = JudgeOptionsOf(request);
    judge.rules = WorkloadFromJson(request.at("workload")).rules;
    if (request.value("interpreted", false)) {
      judge.kernel_form = KernelForm::kInterpreted;
      // It is slow. The words of a text choose this form: no less certain measurement comes with it.
      judge.plan.most_rounds = judge.plan.least_rounds;
    }
    judge.on_phase = [this](const std::string& phase) { socket_.Write(json{{"phase", phase}}.dump()); };
    return JudgeResultToJson(JudgeLibrary(session, judge));
  }

  // For the next evaluation, unless another process is timing now. What fails here fails there, with a reason.
  void ForkSpares() {
    if (base_.workers == nullptr || sessions_.size() == 0) return;
    const std::atomic<bool> does_not_wait{true};
    try {
      const DeviceLock lock("cpu", LockMode::kShared, nullptr, &does_not_wait);
      base_.workers->Ask(1 + static_cast<size_t>(PairsPlan().processes));
      base_.workers->Await();
    } catch (const std::exception&) {
    }
  }

  // Two episodes at once are usual on a CPU. The slots of a session may take a gigabyte.
  Session& PrepareSession(const json& request) {
    const std::string key = request.at("session");
    if (Session* session = sessions_.Find(key)) {
      session->truth().Activate();
      return *session;
    }
    sessions_.MakeRoomForOne();
    if (AvailableMemoryBytes() < kMemoryForSession) sessions_.Clear();
    SessionOptions options = base_;
    const Workload workload = WorkloadFromJson(request.at("workload"));
    options.problem = workload.Apply(
        ParseProblem(request.at("problem_text"), request.at("problem_path").get<std::string>()));
    options.size = workload.size;
    options.inputs = workload.inputs == "kernelbench" ? InputMode::kKernelBench : InputMode::kDefault;
    options.limits.call_timeout_s = request.at("call_timeout_s");
    options.limits.evaluation_timeout_s = request.at("evaluation_timeout_s");
    options.limits.max_memory_mb = request.at("max_memory_mb");
    return sessions_.Add(key, std::make_unique<Session>(std::move(options)));
  }

  LineSocket socket_;
  SessionOptions base_;
  ResidentSessions<Session> sessions_{kSessions};
};

// The judge for GPUs is a plug-in: a run on a CPU does not need it.
// `libraries`: the folder of bundles of candidates in Python.
int ServeGpuByPlugin(GpuEvaluatorOptions options, const std::string& libraries) {
  namespace fs = std::filesystem;
  const std::string path = RequireProgram(ProgramDirectory(), kGpuJudgePlugin).string();
  void* plugin = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto serve =
      plugin ? reinterpret_cast<decltype(&KevinServeGpu)>(dlsym(plugin, "KevinServeGpu")) : nullptr;
  if (serve == nullptr)
    throw Error(ExitCode::kBroken, std::string("cannot open the GPU judge: ") + dlerror(),
                "build Kevin again");
  EvaluatorSandbox sandbox{
      options.namespaces,
      true,
      {fs::path(options.runner).parent_path(), fs::path(options.trusted_cubin).parent_path()}};
  if (!options.python_setup.empty()) {
    for (fs::path& folder : FoldersOf(PythonSetupFromJson(json::parse(options.python_setup))))
      sandbox.visible.push_back(std::move(folder));
    sandbox.visible.emplace_back(libraries);
  }
  options.enter_sandbox = [sandbox] { EnterEvaluatorSandbox(sandbox); };
  return serve(&options);
}

// `work` on the problem of a file, in the sandbox of a reference.
int WithProblem(const char* path, const std::function<void(const Problem& problem)>& work) {
  try {
    const Problem problem = LoadProblemFile(path);
    EnterReferenceSandbox();
    work(problem);
    return 0;
  } catch (const Error& error) {
    std::printf("%s\n%s\n", error.what(), error.next_step().c_str());
    return static_cast<int>(error.code());
  }
}

int ServeGraphs() {
  EnterReferenceSandbox();
  LineSocket socket(kRequests);
  const auto answer = [](const json& request) -> json {
    const Precision precision = PrecisionNamed(request.at("precision"));
    const Problem problem = InPrecision(
        ParseProblem(request.at("problem_text"), request.at("problem_path").get<std::string>()), precision);
    return {{"graph", ReferenceGraph(problem, request.at("size"))}};
  };
  ServeRequests(
      &socket,
      {.answer = answer, .after_error = [] {}, .resident = [] { return std::vector<std::string>(); }});
  return 0;
}

}  // namespace
}  // namespace kevin

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  const std::string mode = argc > 1 ? argv[1] : "";
  try {
    if (mode == "check") return 0;
    if (mode == "compile" && argc == 3)
      return kevin::WithProblem(argv[2], [](const kevin::Problem& problem) { kevin::Reference(problem, 1); });
    if (mode == "graph" && argc == 5) {
      return kevin::WithProblem(argv[2], [&](const kevin::Problem& problem) {
        const kevin::Precision precision = kevin::PrecisionNamed(argv[4]);
        std::puts(kevin::ReferenceGraph(kevin::InPrecision(problem, precision), argv[3]).c_str());
      });
    }
    if (mode == "serve-graphs" && argc == 2) return kevin::ServeGraphs();
    if (mode == "reference" && argc == 5)
      return kevin::RunReferenceProcess(argv[2], std::stoi(argv[3]), argv[4]);
    if (mode == "serve" && argc == 6) {
      const bool namespaces = std::string(argv[4]) == "namespaces";
      const fs::path own_path = fs::read_symlink("/proc/self/exe");
      kevin::EnterEvaluatorSandbox({namespaces, false, {fs::path(argv[3]).parent_path(), argv[5]}});
      kevin::InstallCachingAllocator(nullptr, 0);
      return kevin::Evaluator(std::stoi(argv[2]), argv[3], own_path, namespaces).Serve();
    }
    if (mode == "serve-python" && argc == 7) {
      const bool namespaces = std::string(argv[4]) == "namespaces";
      const fs::path own_path = fs::read_symlink("/proc/self/exe");
      const kevin::PythonSetup setup = kevin::PythonSetupFromJson(nlohmann::json::parse(argv[6]));
      std::vector<fs::path> visible = kevin::FoldersOf(setup);
      visible.insert(visible.end(), {fs::path(argv[3]).parent_path(), fs::path(argv[5])});
      kevin::EnterEvaluatorSandbox({namespaces, false, visible});
      kevin::InstallCachingAllocator(nullptr, 0);
      kevin::PythonWorkers workers(setup, std::stoi(argv[2]), namespaces);
      kevin::SpareWorkers spares(workers);
      return kevin::Evaluator(std::stoi(argv[2]), argv[3], own_path, namespaces, &spares).Serve();
    }
    if (mode == "serve-gpu" && (argc == 6 || argc == 8)) {
      kevin::GpuEvaluatorOptions options{std::stoi(argv[2]), argv[3], std::string(argv[4]) == "namespaces",
                                         argv[5]};
      if (argc == 8) options.python_setup = argv[6];
      return kevin::ServeGpuByPlugin(std::move(options), argc == 8 ? argv[7] : "");
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kevin-evaluator: %s\n", kevin::Printable(error.what()).c_str());
    return 1;
  }
  std::fprintf(stderr, "kevin-evaluator is started by kevin; run `kevin --help`\n");
  return 2;
}
