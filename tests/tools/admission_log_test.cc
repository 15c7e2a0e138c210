#include <fstream>

#include "env/error.h"
#include "tests/catch.h"
#include "tests/support/fakes.h"
#include "tools/admission.h"

namespace kevin {
namespace {

AdmissionRecord Admitted() {
  AdmissionRecord record{"chains/7", "hash 7", {.size = "full"}, "cuda:0: GPU"};
  record.decoys = record.rejected = 9;
  record.right = record.right_passed = 1;
  record.too_near = 2;
  record.python_not_tried = "no torch";
  record.seconds = 1.5;
  return record;
}

}  // namespace

TEST_CASE("what one admission found, the next one finds in the file") {
  const testing::TempFolder folder;
  const std::filesystem::path file = folder.path() / "log.jsonl";
  AdmissionRecord rejected = Admitted(), failed = Admitted();
  rejected.problem = "chains/8", rejected.problem_hash = "hash 8", rejected.reason = "zeros passed";
  failed.problem = "chains/9", failed.problem_hash = "hash 9", failed.error = "it does not fit";
  {
    AdmissionLog log(file);
    CHECK(log.Find(Admitted()) == nullptr);
    for (const AdmissionRecord& record : {Admitted(), rejected, failed})
      log.Add({{{"event", "decoy"}, {"name", "zeros"}}, ToJson(record)}, record);
    CHECK(log.Find(rejected) != nullptr);
  }
  std::ofstream(file, std::ios::app) << "{\"event\": \"admi";  // cut off by a kill
  const AdmissionLog log(file);
  REQUIRE(log.Find(Admitted()) != nullptr);
  CHECK(log.Find(Admitted())->seconds == 1.5);
  CHECK(log.Find(Admitted())->rejected == 9);
  CHECK(log.Find(Admitted())->too_near == 2);
  CHECK(log.Find(Admitted())->python_not_tried == "no torch");
  REQUIRE(log.Find(rejected) != nullptr);
  CHECK(log.Find(rejected)->reason == "zeros passed");
  CHECK(log.Find(failed) == nullptr);  // to be tried again
  AdmissionRecord other = Admitted();
  other.workload.size = "small";
  CHECK(log.Find(other) == nullptr);
  other = Admitted(), other.problem_hash = "edited";
  CHECK(log.Find(other) == nullptr);
  other = Admitted(), other.device = "cpu";
  CHECK(log.Find(other) == nullptr);
  other = Admitted(), other.workload.precision = "bf16";
  CHECK(log.Find(other) == nullptr);
}

TEST_CASE("an admission event says what is known, and null what is not") {
  AdmissionRecord record = Admitted();
  CHECK(ToJson(record)["admitted"] == true);
  CHECK(ToJson(record)["precision"] == "fp32");
  CHECK(ToJson(record)["reason"].is_null());
  CHECK(ToJson(record)["python_not_tried"] == "no torch");
  record.reason = "zeros passed";
  CHECK(ToJson(record)["admitted"] == false);
  CHECK(ToJson(record)["reason"] == "zeros passed");
  record.error = "no memory", record.python_not_tried = "";
  CHECK(ToJson(record)["admitted"].is_null());
  CHECK(ToJson(record)["reason"] == "no memory");
  CHECK(ToJson(record)["python_not_tried"].is_null());
}

TEST_CASE("without a file nothing is kept; one that cannot be written is said") {
  AdmissionLog none("");
  none.Add({ToJson(Admitted())}, Admitted());
  CHECK(none.Find(Admitted()) != nullptr);
  AdmissionLog nowhere("/proc/nowhere/log.jsonl");
  CHECK_THROWS_AS(nowhere.Add({ToJson(Admitted())}, Admitted()), Error);
}

}  // namespace kevin
