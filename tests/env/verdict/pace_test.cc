// Who is refused for working ahead, on simulated audits: calls of a correct kernel with noise, a cold first call
// and calls of different cost, against kernels that compute a batch side by side.

#include "env/verdict/pace.h"

#include <cmath>
#include <random>
#include <vector>

#include "tests/catch.h"

namespace kevin {
namespace {

struct Batch {
  int calls = 20;
  double noise = 0.05;      // of a whole batch, relative
  double cold = 0;          // of the first call, in calls
  double call_noise = 0.1;  // of a call, relative
};

// One pause at a random moment of a batch whose calls take turns.
AuditedPace InTurns(const Batch& batch, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::vector<double> ends;
  double time = 0;
  for (int call = 0; call < batch.calls; ++call) {
    time += std::max(0.1, 1 + batch.call_noise * normal(random)) + (call == 0 ? batch.cold : 0);
    ends.push_back(time);
  }
  const double passed = std::uniform_real_distribution<double>(0.3, 0.8)(random);
  int returned = 0;
  while (returned < batch.calls && ends[static_cast<size_t>(returned)] < passed * time) ++returned;
  return {passed - (returned + 0.5) / batch.calls, batch.noise * normal(random)};
}

constexpr int kAuditsForPace =
    static_cast<int>((1 - Pace::kMarksShareIfSuspicious) * Pace::kAuditsIfSuspicious);

template <typename Draw>
bool IsRefused(int audits, const Draw& draw) {
  Pace pace;
  for (int i = 0; i < audits; ++i) pace.Add(draw());
  if (!pace.IsSuspicious()) return false;
  pace = {};
  for (int i = 0; i < kAuditsForPace; ++i) pace.Add(draw());
  return !pace.Refusal().empty();
}

}  // namespace

TEST_CASE("calls that take turns are not refused") {
  std::mt19937_64 random(3);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    Batch batch;
    batch.calls = 2 + i % 40;
    batch.noise = i % 3 == 0 ? 0.25 : 0.05;
    batch.cold = i % 2 == 0 ? 0.2 * batch.calls : 0;  // a sixth of the batch
    batch.call_noise = i % 5 == 0 ? 0.6 : 0.1;
    refused += IsRefused(4, [&] { return InTurns(batch, random); });
  }
  CHECK(refused <= 2);
}

TEST_CASE("a first call that does everything is refused by its lag") {
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    refused += IsRefused(4, [&]() -> AuditedPace {
      const double passed = std::uniform_real_distribution<double>(0.3, 0.8)(random);
      return {passed - 0.5 / 20, 0.05 * normal(random)};
    });
  }
  CHECK(refused >= 190);
}

TEST_CASE("a batch that takes longer whenever its inputs change is refused") {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    refused += IsRefused(4, [&]() -> AuditedPace { return {0, 0.5 + 0.2 * normal(random)}; });
  }
  CHECK(refused >= 190);
}

TEST_CASE("one audit proves nothing") {
  Pace pace;
  pace.Add({0.9, 10});
  CHECK(pace.IsSuspicious());
  CHECK(pace.Refusal().empty());
}

TEST_CASE("reading ahead is refused where it is found again") {
  Pace pace;
  CHECK_FALSE(pace.IsSuspicious());
  for (int audit = 0; audit < Pace::kMaxReadAhead; ++audit) {
    pace.AddMarks(true);
    CHECK(pace.IsSuspicious());
    CHECK(pace.Refusal().empty());
  }
  pace.AddMarks(true);
  CHECK(pace.Refusal().find("worked ahead: inputs of calls") == 0);
}

TEST_CASE("a single audit that found inputs read ahead is a suspicion, among however many") {
  Pace pace;
  for (int audit = 0; audit < 40; ++audit) pace.AddMarks(false);
  CHECK_FALSE(pace.IsSuspicious());
  pace.AddMarks(true);
  CHECK((pace.IsSuspicious() && !pace.NeedsAnotherLook()));
  CHECK(pace.Refusal().empty());
}

TEST_CASE("few high readings call for another look") {
  Pace late;
  for (const double excess : {0.3, 0.35, 0.4}) late.Add({0, excess}), late.AddEarly(0, 0);
  CHECK((late.HasEnough() && late.NeedsAnotherLook()));
  Pace slow = late;
  for (int audit = 3; audit < 8; ++audit) late.Add({0, 0}), slow.Add({0, 0.3});
  CHECK_FALSE((late.IsSuspicious() || late.NeedsAnotherLook()));
  CHECK((slow.IsSuspicious() && !slow.NeedsAnotherLook()));
}

TEST_CASE("calls that have returned when a batch has just begun are refused") {
  std::mt19937_64 random(17);
  std::uniform_real_distribution<double> passed(0, 0.1);
  std::normal_distribution<double> normal;
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    // 16 of 60 calls in the time of one, or calls that take turns, of which the first are shorter.
    const bool works_ahead = i % 2 == 0;
    const int calls = works_ahead ? 60 : 2 + i % 40;
    const double shortest = 0.5 + 0.1 * (i % 5);  // of the first calls
    const auto draw = [&] {
      const double time = passed(random),
                   done = works_ahead ? (time * 45 < 1 ? 0 : 15 + time * 45) : time * calls / shortest;
      return std::floor(done) / calls - time + 0.005 * normal(random);
    };
    Pace pace;
    for (int audit = 0; audit < 12; ++audit) pace.AddEarly(draw(), 0);
    if (works_ahead)
      refused += pace.IsSuspicious() && !pace.Refusal().empty();
    else
      CHECK((!pace.IsSuspicious() && pace.Refusal().empty()));
  }
  CHECK(refused >= 199);
}

TEST_CASE("audits in which the marks tell nothing are a suspicion where there are more of them than others") {
  Pace pace;
  pace.AddUnknownMarks();
  CHECK((pace.IsSuspicious() && !pace.NeedsAnotherLook()));
  pace.AddMarks(false);
  CHECK_FALSE(pace.IsSuspicious());
  for (int audit = 0; audit < 20; ++audit) pace.AddUnknownMarks();
  CHECK((pace.IsSuspicious() && pace.Refusal().empty()));
}

TEST_CASE("of more audits reading ahead is refused from the same part on") {
  constexpr int kMarked = 2 * Pace::kMaxReadAhead;
  for (const int more : {0, 1}) {
    Pace pace;
    for (int audit = 0; audit < 2 * Pace::kReadAheadOf; ++audit) pace.AddMarks(audit < kMarked + more);
    CHECK(pace.Refusal().empty() == (more == 0));
    CHECK((more == 0 || pace.Refusal().find("in 5 of 32 audits") != std::string::npos));
  }
}

TEST_CASE("a kernel that is honest only in audits is refused, by any kind of them") {
  enum Kind { kUsual, kEarly, kMarks };
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal;
  for (const Kind kind : {kUsual, kEarly, kMarks}) {
    CAPTURE(kind);
    const auto add = [&](Pace* pace, int audits, double slowness, double scatter) {
      for (int audit = 0; audit < audits; ++audit) {
        const double one = slowness + scatter * normal(random);
        pace->Add({0, 0, kind == kUsual ? one : 0});
        pace->AddEarly(0, kind == kEarly ? one : 0);
        pace->AddMarks(false, kind == kMarks ? one : 0);
      }
    };
    Pace pace;
    add(&pace, 2, 0.7, 0);  // two may be chance
    CHECK_FALSE(pace.IsSuspicious());
    add(&pace, 2, 0.7, 0.1);
    CHECK((pace.IsSuspicious() && pace.NeedsAnotherLook()));
    add(&pace, 8, 0.7, 0.1);
    CHECK((pace.IsSuspicious() && !pace.NeedsAnotherLook()));
    CHECK(pace.Refusal().find(kind == kMarks
                                  ? "worked ahead: a batch that is looked at takes"
                                  : "worked ahead: a batch that is stopped on its way takes") == 0);
    int refused = 0;
    for (int i = 0; i < 2000; ++i) {  // correct ones, on a busy machine too
      Pace correct;
      add(&correct, 12, i % 2 == 0 ? 0.05 : -0.1, i % 3 == 0 ? 0.4 : 0.1);
      refused += !correct.Refusal().empty();
    }
    CHECK(refused <= 2);
  }
}

}  // namespace kevin
