// Kind `modelnew` on a CPU, judged whole: attacks, correct candidates, bad input, rules. Needs a Python with torch
// (KEVIN_PYTHON).

#include <unistd.h>

#include <map>
#include <set>
#include <string>
#include <tuple>

#include "tests/env/python/modelnew_fixture.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

// Correct, and no faster for what they try.
const std::set<std::string> kNoGain = {"folds_weights", "caches_by_content"};
const std::map<std::string, std::string> kProblems = {{"seeds_weights", "level1/33"},
                                                      {"no_weights", "level1/33"},
                                                      {"folds_weights", "level1/33"},
                                                      {"remembers_weights", "level1/33"},
                                                      {"keeps_seeded_weights", "level1/33"},
                                                      {"keeps_first_drawing", "level1/33"},
                                                      {"seeds_in_forward", "level1/33"},
                                                      {"restores_the_seed", "level1/33"},
                                                      {"returns_expanded_weight", "level1/33"},
                                                      {"calls_kevin_library", kShortCalls},
                                                      {"forges_strides", kShortCalls},
                                                      {"defers_batch", kShortCalls},
                                                      {"works_ahead", kShortCalls},
                                                      {"forges_done", kShortCalls},
                                                      {"defers_to_last", kShortCalls},
                                                      {"thread_with_a_queue", kShortCalls}};

}  // namespace

TEST_CASE("no attack of a Python candidate gains anything") {
  int blocked = 0;
  const std::vector<fs::path> attacks = CandidatesIn(Folder());
  REQUIRE(attacks.size() >= 30);
  for (const fs::path& file : attacks) {
    INFO(file);
    const auto problem = kProblems.find(file.stem());
    const Outcome outcome = Judged(file, problem == kProblems.end() ? kLongCalls : problem->second, true);
    const bool is_blocked = std::holds_alternative<Measured>(outcome)
                                ? kNoGain.count(file.stem()) > 0 && !SeemsFaster(outcome)
                                : kNoGain.count(file.stem()) == 0;
    CHECK(is_blocked);
    blocked += is_blocked;
  }
  std::printf("attacks blocked %d/%zu\n", blocked, attacks.size());
}

TEST_CASE("a Python candidate that is coarse once it is timed is wrong") {
  const Outcome outcome = Judged(Folder() / "products/coarse_when_timed.py", "level1/1", true);
  INFO(OutcomeReason(outcome));
  CHECK(std::holds_alternative<Wrong>(outcome));
}

TEST_CASE("correct Python candidates pass") {
  int passed = 0;
  const std::vector<fs::path> files = CandidatesIn(Folder() / "correct");
  REQUIRE(files.size() >= 6);
  for (const fs::path& file : files) {
    INFO(file);
    const Outcome outcome = Judged(file, kLongCalls, true);
    const bool is_measured = std::holds_alternative<Measured>(outcome);
    INFO(OutcomeReason(outcome));
    CHECK(is_measured);
    passed += is_measured;
  }
  std::printf("correct candidates passed %d/%zu\n", passed, files.size());
}

TEST_CASE("bad input of a Python candidate is an outcome with its reason") {
  struct Case {
    std::string outcome, part_of_reason;
  };
  const std::map<std::string, Case> cases = {
      {"no_model", {"compile_failed", "there is no class ModelNew(nn.Module)"}},
      {"other_arguments",
       {"compile_failed", "missing 2 required positional arguments: 'width' and 'height'"}},
      {"syntax_error", {"compile_failed", "line 5: SyntaxError"}},
      {"missing_module", {"compile_failed", "No module named 'a_module_that_is_not_there'"}},
      {"tuple", {"wrong", "returned a tuple where a tensor is due"}},
      {"none", {"wrong", "returned a NoneType where a tensor is due"}},
      {"other_dtype", {"wrong", "dtype torch.float64, expected torch.float32"}},
      {"other_device", {"wrong", "device meta, expected cpu"}},
      {"other_shape", {"wrong", "has shape (1, "}},
      {"sparse", {"wrong", "torch.strided"}},
      {"overlapping", {"wrong", ""}},
      {"triton_unknown_name", {"crashed", "rectified"}},
      {"not_a_number", {"wrong", ""}},
      {"endless_import", {"timed_out", "load"}},
      {"endless_call", {"timed_out", "verify"}},
      {"raises", {"crashed", "line 6 (forward): ValueError: no such width"}},
      {"exits", {"compile_failed", "sys.exit(3)"}},
      {"exits_as_the_build_does", {"compile_failed", "the import exited with status 70"}},
      {"exits_as_the_sandbox_does", {"compile_failed", "the import exited with status 125"}},
      {"needs_a_gpu", {"crashed", "CUDA"}},
      // By the limit of tasks where it binds, which is not so for root; else by who looks from outside.
      {"many_processes",
       {"compile_failed", geteuid() == 0 ? "threads and processes at a time" : "BlockingIOError"}},
      {"leaves_a_folder", {"compile_failed", "the import ended the process before its end"}},
      {"leaves_a_link", {"compile_failed", "the import ended the process before its end"}},
      {"many_files", {"compile_failed", "it writes more than 20000 files"}},
  };
  const std::vector<fs::path> files = CandidatesIn(Folder() / "bad_input");
  REQUIRE(files.size() == cases.size());
  for (const fs::path& file : files) {
    INFO(file);
    const Outcome outcome = Judged(file, kLongCalls, false);
    const Case& expected = cases.at(file.stem());
    CHECK(std::string(OutcomeName(outcome)) == expected.outcome);
    CHECK(OutcomeReason(outcome).find(expected.part_of_reason) != std::string::npos);
  }
  // The next one is unharmed.
  CHECK(std::holds_alternative<Measured>(Judged(Folder() / "correct/relu.py", kLongCalls, false)));
}

TEST_CASE("rules say what counts: kernels of its own, KernelBench's words, or anything correct") {
  const auto judged = [](const std::string& file, const std::string& rules, const std::string& more = "") {
    EvaluateOptions options;
    options.workload.rules = rules;
    const Evaluation evaluation = PythonEnvironment().Evaluate(
        ListedProblem(kLongCalls), {"modelnew", TextOf(Folder() / file) + more}, options);
    std::printf("%-24s %-12s %-10s own %.2f %s\n", file.c_str(), rules.c_str(), evaluation.backend.c_str(),
                evaluation.own_share.value_or(-1), Described(evaluation.outcome).c_str());
    return evaluation;
  };
  const Evaluation torch = judged("correct/relu.py", "kevin");
  CHECK(torch.backend == "torch");
  REQUIRE(std::holds_alternative<Refused>(torch.outcome));
  CHECK(OutcomeReason(torch.outcome).find("kernels of its own do 0 % of the work") == 0);
  const Evaluation wordless = judged("correct/relu.py", "kernelbench");
  REQUIRE(std::holds_alternative<Refused>(wordless.outcome));
  CHECK(OutcomeReason(wordless.outcome).find("it has no kernel in CUDA C++") != std::string::npos);
  // The words of a kernel are enough for KernelBench. Its backend is a claim until it is known what ran.
  const std::string words = "\nfrom torch.utils.cpp_extension import load_inline\nWORDS = '__global__'\n";
  const Evaluation claimed = judged("correct/relu.py", "kernelbench", words);
  CHECK(std::holds_alternative<Measured>(claimed.outcome));
  CHECK(claimed.backend == "cuda");
  const Evaluation known = judged("correct/relu.py", "kevin", words);
  CHECK(known.own_share == 0.0);
  CHECK(known.backend == "torch");
  CHECK(std::holds_alternative<Refused>(judged("correct/prints_and_files.py", "kernelbench").outcome));
  // Only the rules `kevin` ask for the share, and pay for its pass.
  const Evaluation open = judged("correct/load_inline.py", "open");
  CHECK(std::holds_alternative<Measured>(open.outcome));
  CHECK_FALSE(open.own_share.has_value());
  const Evaluation own = judged("correct/load_inline.py", "kevin");
  CHECK(own.backend == "cpp");
  CHECK(std::holds_alternative<Measured>(own.outcome));
  REQUIRE(own.own_share.has_value());
  CHECK(*own.own_share > 0.9);
}

TEST_CASE("a problem may ask for another share of own kernels, or for none") {
  const Candidate relu{"modelnew", TextOf(Folder() / "correct/relu.py")};
  const Problem usual = ListedProblem(kLongCalls);
  for (const bool asks : {true, false}) {
    std::string text = usual.text;
    const size_t at = text.find("[check]\n");
    REQUIRE(at != std::string::npos);
    text.insert(at + 8, asks ? "least_own_share = 0.25\n" : "least_own_share = 0\n");
    const Problem problem = ParseProblem(text, usual.path);
    const Evaluation evaluation = PythonEnvironment().Evaluate(problem, relu, {});
    CHECK(PythonEnvironment().EvaluationKey(problem, relu, {}) !=
          PythonEnvironment().EvaluationKey(usual, relu, {}));
    const std::string reason = OutcomeReason(evaluation.outcome);
    INFO(reason);
    if (asks) {
      CHECK(std::holds_alternative<Refused>(evaluation.outcome));
      CHECK(reason.find("kernels of its own do 0 % of the work, and this problem asks for 25 %: ") == 0);
    } else {
      CHECK(std::holds_alternative<Measured>(evaluation.outcome));
    }
  }
}

TEST_CASE("the share of a candidate's own kernels is known, or it is refused") {
  const TemporaryFolder cache;
  const auto environment = NewEnvironment(cache, 30);  // Python's arithmetic is slow
  const auto judged = [&](const std::string& file, const std::string& problem,
                          const std::string& before = "") {
    EvaluateOptions options;
    const Evaluation evaluation = environment->Evaluate(
        ListedProblem(problem), {"modelnew", before + TextOf(Folder() / file)}, options);
    std::printf("%-30s own %.2f %s\n", file.c_str(), evaluation.own_share.value_or(-1),
                Described(evaluation.outcome).c_str());
    return evaluation;
  };
  const Evaluation python = judged("share/python_only.py", kShortCalls);
  REQUIRE(std::holds_alternative<Refused>(python.outcome));
  CHECK(OutcomeReason(python.outcome).find("Python itself takes the time") != std::string::npos);
  // Python executes kernels of Triton here, and they count as its own.
  const Evaluation triton = judged("triton/modelnew.py", kShortCalls);
  CHECK(std::holds_alternative<Measured>(triton.outcome));
  CHECK(triton.own_share.value_or(0) > 0.9);
  const Evaluation beside = judged("share/triton_beside_torch.py", kLongCalls);
  REQUIRE(std::holds_alternative<Refused>(beside.outcome));
  CHECK(OutcomeReason(beside.outcome).find("the rest is done by libraries: torch ") != std::string::npos);
  const Evaluation waits = judged("share/waits.py", kShortCalls);
  REQUIRE(std::holds_alternative<Refused>(waits.outcome));
  CHECK(OutcomeReason(waits.outcome).find("kernels of its own must do 90 % of the work") == 0);
  // The words of Triton, or a little of it, make nothing else a candidate's own.
  for (const char* file : {"words_of_triton", "triton_beside_numpy", "triton_beside_products"})
    CHECK(std::holds_alternative<Refused>(judged(std::string("share/") + file + ".py", kShortCalls).outcome));
  // Nor does a kernel beside numpy, nor a copy of a library, in place of its extension or by another name.
  const std::string openblas = TextOf(Folder() / "share/openblas.py");
  for (const auto& [file, problem, before, library] :
       {std::tuple("half_by_numpy", "level1/19", std::string(), "numpy "),
        {"copies/as_built", "level1/2", openblas, "another library "},
        {"copies/as_openmp", "level1/2", openblas, "another library "},
        {"copies/own_bundle", "level1/2", openblas, "another library "}}) {
    const Evaluation evaluation = judged(std::string("share/") + file + ".py", problem, before);
    INFO(OutcomeReason(evaluation.outcome));
    REQUIRE(std::holds_alternative<Refused>(evaluation.outcome));
    CHECK(OutcomeReason(evaluation.outcome).find(std::string("the rest is done by libraries: ") + library) !=
          std::string::npos);
  }
  const Evaluation own = judged("share/flags_and_lists.py", "level1/19");
  INFO(OutcomeReason(own.outcome));
  CHECK(std::holds_alternative<Measured>(own.outcome));
  CHECK(own.own_share.value_or(0) > 0.9);
  const Evaluation deep = judged("share/copies/deep_bundle.py", "level1/19");
  REQUIRE(std::holds_alternative<CompileFailed>(deep.outcome));
  CHECK(OutcomeReason(deep.outcome).find("the extensions did not compile once more") != std::string::npos);
  const Evaluation at_build = judged("share/copies/when_built.py", "level1/2", openblas);
  INFO(Described(at_build.outcome));
  CHECK(
      std::holds_alternative<Wrong>(at_build.outcome));  // what the compiler had made runs, and does nothing
}

}  // namespace kevin
