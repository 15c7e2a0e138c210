#include "env/error.h"
#include "env/gpu/examine/examine_job.h"
#include "env/gpu/examine/examiner.h"
#include "tests/catch.h"

namespace kevin {
namespace {

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// As ncu 2025.3 prints it, with fewer columns.
constexpr const char* kTable = R"csv(==PROF== Connected to process 25 (/tmp/t)
"ID","Kernel Name","gpu__time_duration.sum","dram__throughput.avg.pct_of_peak_sustained_elapsed","lts__t_sector_hit_rate.pct","sm__throughput.avg.pct_of_peak_sustained_elapsed","smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio","smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"
"","","us","%","%","%","inst","inst"
"0","rows(const float *, float *)","10.00","20","50","30","1.5","0.01"
"1","relu(const float *, float *, long)","1,412.50","91.4","3.1","22.2","12.25","0.40"
"2","rows(const float *, float *)","30.00","40","50","30","1.5","0.01"
)csv";

}  // namespace

TEST_CASE("counters become sentences, the longest kernel first") {
  const std::string text = CounterSentences(kTable);
  CHECK(Has(text,
            "`relu` (1412.5 us under the profiler): memory busy 91 %, multiprocessors busy 22 %, L2 hit rate "
            "3 %."));
  CHECK(Has(text,
            "Warps wait most for data from global memory or L2 (12.2 warp cycles an instruction), then for "
            "__syncthreads() (0.4)."));
  CHECK(text.find("`relu`") < text.find("`rows`"));
}

TEST_CASE("launches of one kernel are taken together, weighted by their time") {
  const std::string text = CounterSentences(kTable);
  CHECK(Has(text, "`rows` (40.0 us under the profiler, 2 launches): memory busy 35 %"));
}

TEST_CASE("no table, no sentences") {
  CHECK(CounterSentences("").empty());
  CHECK(CounterSentences("==ERROR== ERR_NVGPUCTRPERM\n").empty());
}

TEST_CASE("every counter that is asked for is read") {
  const std::string names = CounterNames();
  CHECK(Has(names, "gpu__time_duration.sum"));
  CHECK(Has(names, "dram__throughput.avg.pct_of_peak_sustained_elapsed"));
  CHECK(names.back() != ',');
}

TEST_CASE("compute-sanitizer's first finding, with its line") {
  const CheckReport report = ReadCheckReport("memcheck", R"(========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at oob(float *, long)+0x120 in candidate.cu:4
=========     by thread (255,0,0) in block (3,0,0)
=========     Access to 0x7f6c2e003ffc is out of bounds
=========     and is 16,381 bytes after the nearest allocation at 0x7f6c1e000000 of size 268,435,456 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: main [0x8e78] in t
========= 
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure"
=========     Saved host backtrace up to driver entry point at error
========= 
========= ERROR SUMMARY: 3 errors
)",
                                             "candidate.cu");
  CHECK(report.tool == "memcheck");
  CHECK(report.errors == 3);
  CHECK(report.line == 4);
  CHECK(report.finding ==
        "Invalid __global__ write of size 4 bytes\nat oob(float *, long)+0x120 in candidate.cu:4\n"
        "by thread (255,0,0) in block (3,0,0)\nAccess to 0x7f6c2e003ffc is out of bounds\n"
        "and is 16,381 bytes after the nearest allocation at 0x7f6c1e000000 of size 268,435,456 bytes");
}

TEST_CASE("a check that finds nothing says so") {
  const CheckReport report = ReadCheckReport("racecheck",
                                             "========= COMPUTE-SANITIZER\n========= RACECHECK SUMMARY: 0 "
                                             "hazards displayed (0 errors, 0 warnings)\n",
                                             "candidate.cu");
  CHECK(report.errors == 0);
  CHECK(report.finding.empty());
  CHECK(report.line == 0);
}

TEST_CASE("a job for the examiner survives its text form") {
  ExamineJob job;
  job.plan = "{}";
  job.trusted_cubin = std::string(
      "\x7f"
      "ELF\0\1",
      6);
  job.arguments = {
      {4096, {{0, 512, {3, 8.0F, 0.5F, 8, true, 2, 16, true}}, {2048, 512, {}, std::string("\0\xff", 2)}}},
      {64, {}}};
  job.untouched_memory = true;
  const ExamineJob back = ExamineJobFromText(ExamineJobToText(job));
  CHECK(back.plan == job.plan);
  CHECK(back.trusted_cubin == job.trusted_cubin);
  REQUIRE(back.arguments.size() == 2);
  CHECK(back.arguments[0].bytes == 4096);
  REQUIRE(back.arguments[0].fills.size() == 2);
  CHECK(back.arguments[0].fills[0].drawing.distribution == 3);
  CHECK(back.arguments[0].fills[0].drawing.scale == 8.0F);
  CHECK(back.arguments[0].fills[0].drawing.element_bytes == 8);
  CHECK(back.arguments[0].fills[0].drawing.whole);
  CHECK(back.arguments[0].fills[0].drawing.structure == 2);
  CHECK(back.arguments[0].fills[0].drawing.rows == 16);
  CHECK(back.arguments[0].fills[0].drawing.brain);
  CHECK(back.arguments[0].fills[1].offset_bytes == 2048);
  CHECK(back.arguments[0].fills[0].stored.empty());
  CHECK(back.arguments[0].fills[1].elements == 512);
  CHECK(back.arguments[0].fills[1].stored == std::string("\0\xff", 2));
  CHECK(back.arguments[1].fills.empty());
  CHECK(back.untouched_memory);
  CHECK_THROWS_AS(ExamineJobFromText("{}"), Error);
}

}  // namespace kevin
