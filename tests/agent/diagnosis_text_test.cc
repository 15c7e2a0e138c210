// Evidence of what limits a kernel, in words.

#include "agent/diagnosis_text.h"

#include "agent/machine.h"
#include "tests/agent/feedback_samples.h"
#include "tests/catch.h"
#include "tests/support/golden.h"

namespace kevin {
namespace {

using testing::FeedbackOn;
using testing::SomeMeasured;

HotLoop SomeLoop() {
  HotLoop loop;
  loop.first_line = 12, loop.last_line = 14;
  loop.share = 0.71;
  loop.instructions = 37, loop.packed = 12, loop.multiply_adds = 8, loop.vector_bits = 256;
  loop.loads = 6, loop.stores = 1;
  for (int i = 0; i < 10; ++i)
    loop.excerpt.push_back(
        {"vfmadd231ps ymm" + std::to_string(i) + ",ymm15,YMMWORD PTR [rdx+rax*4]", i == 5 ? 0.4 : 0.02});
  return loop;
}

Diagnosis SomeDiagnosis() {
  Diagnosis d;
  d.threads = 2;
  d.cold_us = 106, d.warm_us = 60, d.one_thread_us = 180;
  d.where = {150, 0.9, 0.02, 0, 0};
  d.machine_vector_bits = 256;
  d.loop = SomeLoop();
  return d;
}

std::string Diagnosed(const Diagnosis& d) {
  return FeedbackOn(SomeMeasured(1.5, Verdict::kFast), "", "", &d);
}

}  // namespace

TEST_CASE("evidence of what limits a kernel") {
  Diagnosis scalar = SomeDiagnosis();
  scalar.warm_us = 100, scalar.one_thread_us = 110;
  scalar.where = {150, 0.5, 0.45, 0, 0};
  scalar.loop->packed = 0, scalar.loop->scalar = 12, scalar.loop->vector_bits = 0,
  scalar.loop->multiply_adds = 0;
  scalar.loop->notes = {{12, 0, "there is a branch in it"}};
  Diagnosis in_order = scalar;
  in_order.loop->notes = {{12, 32, ""}};
  in_order.loop->instructions = 3;
  in_order.loop->excerpt.resize(3);
  Diagnosis troubled = SomeDiagnosis();
  troubled.loop->stack = 9, troubled.loop->divisions = 2, troubled.loop->gathers = 1,
  troubled.loop->calls = 1;
  troubled.machine_vector_bits = 512;
  troubled.page_faults = 1234;
  troubled.where = {150, 0.3, 0.05, 0.4, 0.2};
  troubled.counters = HardwareCounters{1.5, 12345};
  Diagnosis staged;
  staged.stages = {{"(before the first)", 0.04}, {"pack", 0.12}, {"multiply", 0.84}};
  Diagnosis unmarked;
  unmarked.stage_problem = "with calls of a timer in their places the kernel does not compile";
  Diagnosis unsampled = SomeDiagnosis();
  unsampled.where = {}, unsampled.loop->share = 0;
  Diagnosis even = SomeDiagnosis();
  unsampled.loop->multiply_adds = 1;
  even.loop->share = 0.05;
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"vectors, memory takes a part", Diagnosed(SomeDiagnosis())},
      {"scalar, one thread waits", Diagnosed(scalar)},
      {"a sum in order", Diagnosed(in_order)},
      {"spills, page faults, the math library", Diagnosed(troubled)},
      {"stages", Diagnosed(staged)},
      {"marks that do not compile", Diagnosed(unmarked)},
      {"no samples", Diagnosed(unsampled)},
      {"no loop stands out", Diagnosed(even)},
      {"no evidence", Diagnosed({})},
  };
  testing::CheckGoldenTexts("tests/agent/golden/feedback_diagnosis.txt", texts);
  CHECK(DiagnosisText({}).empty());
}

TEST_CASE("a diagnosis made while the processor was busy concludes nothing from its times") {
  Diagnosis diagnosis = SomeDiagnosis();
  diagnosis.cold_us = 4300, diagnosis.one_thread_us = 4900, diagnosis.warm_us = 4000;
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  for (const double measured_us : {0.0, 4000.0, 5000.0}) {
    CHECK(has(DiagnosisText(diagnosis, measured_us), "Threads: 4900 us with 1 thread"));
    CHECK(has(DiagnosisText(diagnosis, measured_us), "Caches: 4300 us"));
  }
  for (const double measured_us : {1856.0, 9000.0}) {
    const std::string text = DiagnosisText(diagnosis, measured_us);
    CHECK(has(text, "Its calls took 4300 us"));
    CHECK_FALSE(has(text, "with 1 thread"));
    CHECK_FALSE(has(text, "Caches:"));
    CHECK(has(text, "Hot loop"));
  }
  diagnosis.warm_us = 5000;  // longer than with cold caches
  CHECK_FALSE(has(DiagnosisText(diagnosis), "Caches:"));
}

TEST_CASE("the words on threads and caches follow the numbers beside them, over a grid") {
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  constexpr double kMega = 1 << 20;
  for (const double ratio : {0.2, 0.85, 0.95, 1.0, 1.05, 1.15, 1.7, 2.0}) {
    Diagnosis d;
    d.threads = 2, d.cold_us = 100, d.one_thread_us = 100 * ratio;
    for (const double share : {0.0, 0.5, 0.85}) {
      const std::string text = DiagnosisText(d, 0, {0, 0, share});
      INFO(text);
      CHECK(has(text, "as fast with 1 thread, within noise") == (ratio > 0.9 && ratio < 1.1));
      CHECK(has(text, "1 thread is ") == (ratio < 0.9));
      CHECK(has(text, "us with 2, ") == (ratio > 1.1));
      CHECK(has(text, "near the memory bandwidth") == (share > 0.8 && ratio > 0.9 && ratio < 1.2));
      CHECK_FALSE(has(text, ", 1 times as fast"));
    }
    d.threads = 1;
    CHECK(DiagnosisText(d).empty());  // nothing to compare
    d.one_thread_us.reset();
    d.warm_us = 100 / ratio;  // the cold call takes `ratio` of it
    for (const double tensor_mb : {1.0, 100.0}) {
      const std::string text = DiagnosisText(d, 0, {tensor_mb * kMega, 32 * kMega, 0});
      INFO(ratio << " " << tensor_mb << ": " << text);
      const bool may_tell =
          tensor_mb < 32 && ratio > 0.9;  // else they cannot lie in the cache, or other work disturbed it
      CHECK(has(text, "Caches: ") == may_tell);
      CHECK(has(text, "spent on fetching data") == (may_tell && ratio > 1.1));
      CHECK(has(text, "is not what limits it") == (may_tell && ratio < 1.1));
    }
    // Sizes that are not known: the times, and no conclusion.
    const std::string text = DiagnosisText(d);
    CHECK(has(text, "Caches: ") == (ratio > 0.9));
    CHECK_FALSE((has(text, "fetching") || has(text, "limits it")));
  }
}

TEST_CASE("what is known of memory reaches the words on caches: of a CPU, not of a GPU") {
  Diagnosis d;
  d.threads = 2, d.cold_us = 106.8, d.warm_us = 50;
  static const Problem problem = testing::ReluProblem();
  static const SizedProblem sized = AtSize(problem, "small");
  const auto told = [&](double cache_bytes, const std::string& device, const std::string& kind) {
    Evaluation evaluation;
    evaluation.device = device;
    evaluation.outcome = SomeMeasured(1.5, Verdict::kFast);
    FeedbackContext context{testing::kSource, &sized, 2, kind, {}, &d};
    context.cache_bytes = cache_bytes;
    return Feedback(evaluation, context);
  };
  const double bytes = 2.0 * static_cast<double>(sized.inputs[0].bytes);  // of x and out
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(has(told(2 * bytes, "cpu: fake", "cpp"), "53 % of the time is spent on fetching data from memory."));
  CHECK_FALSE(has(told(bytes, "cpu: fake", "cpp"), "Caches:"));
  CHECK(has(told(0, "cpu: fake", "cpp"), "the call before used the same tensors.\n"));
  CHECK_FALSE(has(told(2 * bytes, "cuda:0: fake", "modelnew"), "fetching"));
}

TEST_CASE("threads that wait: said where the times with one thread and with all do not speak against it") {
  Diagnosis d;
  d.threads = 2, d.cold_us = 100;
  d.where = {150, 0.5, 0.45, 0, 0};
  const auto is_said = [&] {
    return DiagnosisText(d).find("Threads wait for others 45 %") != std::string::npos;
  };
  CHECK(is_said());  // no time with one thread
  for (const double one_thread_us : {90.0, 100.0, 125.0}) {
    d.one_thread_us = one_thread_us;
    CHECK(is_said());
  }
  for (const double one_thread_us : {150.0, 193.0}) {
    d.one_thread_us = one_thread_us;
    CHECK_FALSE(is_said());
  }
}

TEST_CASE("the largest cache of a machine") {
  CHECK(LargestCacheBytes({"L1d 32K", "L2 1024K", "L3 32768K"}) == int64_t{32} << 20);
  CHECK(LargestCacheBytes({"L1d 48K", "L2 2M"}) == int64_t{2} << 20);
  CHECK(LargestCacheBytes({"L4 1G", "L3 64M"}) == int64_t{1} << 30);
  CHECK(LargestCacheBytes({}) == 0);
  CHECK(LargestCacheBytes({"L3 ", "", "L2"}) == 0);
}

TEST_CASE("a diagnosis is bounded, and shows hidden characters") {
  Diagnosis hostile = SomeDiagnosis();
  hostile.stages = {{"\x1b[2Jpack", 1}};
  hostile.loop->notes.assign(3, {12, 0, std::string(5000, 'x')});
  hostile.loop->packed = 0, hostile.loop->scalar = 1;
  const std::string text = DiagnosisText(hostile);
  CHECK(text.size() <= kMaxDiagnosisBytes);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find("\\x1b[2Jpack") != std::string::npos);
}

}  // namespace kevin
