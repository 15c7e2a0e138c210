#include "env/ceilings.h"

#include <fstream>

#include "tests/catch.h"
#include "tests/support/fakes.h"

namespace kevin {
namespace {

Ceilings Of(double gb_per_s, double gflop_per_s, bool is_quiet = true) {
  return {gb_per_s, {{kFp32Unit, gflop_per_s}}, is_quiet};
}

}  // namespace

TEST_CASE("ceilings are measured once a machine and read by later processes") {
  const testing::TempFolder folder;
  int measured = 0;
  const auto measure = [&] { return ++measured, Of(40 + measured, 200); };
  CHECK(CeilingStore(folder.path() / "ceilings", "this machine").Get(measure).gb_per_s == 41);
  CeilingStore later(folder.path() / "ceilings", "this machine");
  CHECK(later.Get(measure).gb_per_s == 41);
  CHECK((later.Get(measure).gflop_per_s.at(kFp32Unit) == 200 && measured == 1));
  CHECK(CeilingStore(folder.path() / "ceilings", "another machine").Get(measure).gb_per_s == 42);
}

TEST_CASE("what was measured on a busy machine is measured again by the next process, and never falls") {
  const testing::TempFolder folder;
  int measured = 0;
  CeilingStore first(folder.path(), "key");
  const auto busy = [&] { return ++measured, Of(30, 210, false); };
  CHECK(first.Get(busy).gb_per_s == 30);
  CHECK((first.Get(busy).gb_per_s == 30 && measured == 1));
  CeilingStore second(folder.path(), "key");
  const auto quiet = [&] { return ++measured, Of(45, 200); };
  CHECK((second.Get(quiet).gb_per_s == 45 && second.Get(quiet).gflop_per_s.at(kFp32Unit) == 210 &&
         measured == 2));
  CHECK((CeilingStore(folder.path(), "key").Get(quiet).is_quiet && measured == 2));
}

TEST_CASE("a machine that is never quiet is measured three times") {
  const testing::TempFolder folder;
  int measured = 0;
  const auto busy = [&] { return ++measured, Of(30 + measured, 210, false); };
  for (int process = 0; process < 5; ++process) CeilingStore(folder.path(), "key").Get(busy);
  CHECK((measured == 3 && CeilingStore(folder.path(), "key").Get(busy).gb_per_s == 33));
}

TEST_CASE("a kernel beyond a ceiling has it measured again, once a process") {
  const testing::TempFolder folder;
  int measured = 0;
  CeilingStore store(folder.path(), "key");
  const auto measure = [&] { return Of(40, ++measured == 1 ? 100 : 200); };
  store.Get(measure);
  store.See(102, kFp32Unit, measure);
  store.See(500, kTf32Unit, measure);
  CHECK(measured == 1);
  store.See(150, kFp32Unit, measure);
  CHECK((measured == 2 && store.Get(measure).gflop_per_s.at(kFp32Unit) == 200));
  store.See(1000, kFp32Unit, measure);
  CHECK(measured == 2);
  CHECK(CeilingStore(folder.path(), "key").Get(measure).gflop_per_s.at(kFp32Unit) == 200);
}

TEST_CASE("a damaged file, or one of another key, is no ceiling") {
  const testing::TempFolder folder;
  int measured = 0;
  const auto measure = [&] { return ++measured, Of(40, 200); };
  CeilingStore(folder.path(), "key").Get(measure);
  const auto file = std::filesystem::directory_iterator(folder.path())->path();
  for (const char* text : {"", "{", "[]", "{\"key\":\"key\"}",
                           "{\"key\":\"other\",\"gb_per_s\":9,\"gflop_per_s\":{},\"is_quiet\":true}",
                           "{\"key\":\"key\",\"gb_per_s\":-9,\"gflop_per_s\":{},\"is_quiet\":true}",
                           "{\"key\":\"key\",\"gb_per_s\":1e30,\"gflop_per_s\":{},\"is_quiet\":true}"}) {
    std::ofstream(file) << text;
    const int before = measured;
    CHECK(CeilingStore(folder.path(), "key").Get(measure).gb_per_s == 40);
    CHECK(measured == before + 1);
  }
}

TEST_CASE("products of split inputs: the better unit, and only where it exceeds fp32 FMA") {
  const SplitCeiling of_h200 = SplitCeilingOf({{kFp32Unit, 60000}, {kTf32Unit, 390000}, {kBf16Unit, 700000}});
  CHECK((std::string(of_h200.unit) == kTf32Unit && of_h200.products == 3 && of_h200.gflop_per_s == 130000));
  const SplitCeiling by_bf16 = SplitCeilingOf({{kFp32Unit, 60000}, {kTf32Unit, 190000}, {kBf16Unit, 720000}});
  CHECK((std::string(by_bf16.unit) == kBf16Unit && by_bf16.parts == 3 && by_bf16.gflop_per_s == 120000));
  const SplitCeiling by_fp16 =
      SplitCeilingOf({{kFp32Unit, 60000}, {kTf32Unit, 390000}, {kFp16Unit, 690000}, {kBf16Unit, 700000}});
  CHECK((std::string(by_fp16.unit) == kFp16Unit && by_fp16.parts == 2 && by_fp16.gflop_per_s == 230000));
  CHECK(SplitCeilingOf({{kFp32Unit, 60000}, {kTf32Unit, 150000}}).products == 0);
  CHECK(SplitCeilingOf({{kTf32Unit, 0}}).gflop_per_s == 0);
  CHECK(SplitCeilingOf({}).products == 0);
}

TEST_CASE("the unit of a workload") {
  CHECK(std::string(UnitFor({}, false)) == kFp32Unit);
  CHECK(std::string(UnitFor({}, true)) == kFp32Unit);
  Workload workload;
  workload.tf32 = true;
  CHECK(std::string(UnitFor(workload, true)) == kTf32Unit);
  workload.precision = "bf16";
  CHECK(std::string(UnitFor(workload, true)) == kBf16Unit);
  CHECK(std::string(UnitFor(workload, false)) == kFp32Unit);
  CHECK(GflopCeiling(Of(1, 2), workload, true) == 0);
}

}  // namespace kevin
