// What the trials of a kernel's knobs say.

#include "agent/knob_feedback.h"

#include "tests/agent/feedback_samples.h"
#include "tests/catch.h"
#include "tests/support/golden.h"

namespace kevin {
namespace {

using testing::kSource;
using testing::SomeMeasured;

KnobTrial Trial(int64_t tile, int64_t unroll, std::optional<double> us, bool chosen = false) {
  return {{{"TILE", tile}, {"UNROLL", unroll}},
          us ? "measured" : "wrong",
          us ? "" : "out[0, 3] is 1.5, should be 0.25",
          us,
          us.value_or(0) > 20,
          chosen,
          0.5};
}

std::string FeedbackWith(const Outcome& outcome, const std::vector<KnobTrial>& trials) {
  Evaluation evaluation;
  evaluation.outcome = outcome;
  return Feedback(evaluation, {kSource, nullptr, 2, "cpp", trials});
}

}  // namespace

TEST_CASE("feedback on knobs says what mattered") {
  KnobTrial crashed = Trial(256, 1, std::nullopt);
  crashed.outcome = "crashed", crashed.reason = "signal 11 (segmentation fault) in the first call";
  KnobTrial too_large = Trial(256, 1, std::nullopt);
  too_large.outcome = "crashed",
  too_large.reason =
      "cuLaunchKernelEx: CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE (720, too many blocks in cooperative launch) "
      "during verify";
  KnobTrial only = Trial(64, 1, std::nullopt, true);
  only.outcome.clear(), only.reason.clear();
  const Measured measured = SomeMeasured(1.5, Verdict::kFast);
  const Wrong wrong{"out[0, 3] is 1.5, should be 0.25", 1.25, 0.001};
  std::vector<KnobTrial> many;
  for (int i = 0; i < 16; ++i) many.push_back(Trial(16 << i % 4, 1 << i / 4, 100 + i * i, i == 0));
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"a setting was chosen",
       FeedbackWith(measured, {Trial(64, 1, 12.0), Trial(128, 1, 10.0), Trial(256, 1, 24.0),
                               Trial(128, 2, 9.9, true), Trial(128, 4, 10.4)})},
      {"no two settings differ in one knob alone",
       FeedbackWith(measured, {Trial(64, 1, 12.0), Trial(128, 2, 10.0, true), Trial(256, 4, 24.0)})},
      {"several pairs of one knob",
       FeedbackWith(measured, {Trial(64, 1, 12.0), Trial(128, 1, 10.0), Trial(64, 2, 9.0),
                               Trial(128, 2, 9.0, true), Trial(64, 4, 10.4), Trial(256, 4, std::nullopt)})},
      {"the first values are the fastest",
       FeedbackWith(measured, {Trial(64, 1, 10.0, true), Trial(128, 1, 11.0)})},
      {"some failed", FeedbackWith(measured, {Trial(64, 1, std::nullopt), Trial(128, 1, 10.0, true), crashed,
                                              Trial(64, 2, std::nullopt)})},
      {"one does not fit the GPU", FeedbackWith(measured, {Trial(128, 1, 10.0, true), too_large})},
      {"none is correct",
       FeedbackWith(wrong, {Trial(64, 1, std::nullopt, true), Trial(128, 1, std::nullopt), crashed})},
      {"the chosen one is incorrect by the full rules",
       FeedbackWith(wrong, {Trial(64, 1, 12.0), Trial(64, 2, 6.0, true)})},
      {"the chosen one is incorrect by a little",
       FeedbackWith(Wrong{"out[1, 2] is 1.4797, should be 1.4798; 2 of 100 elements are off", 4.7e-5, 4.5e-5},
                    {Trial(64, 1, 12.0), Trial(64, 2, 6.0, true), Trial(128, 2, std::nullopt)})},
      {"nothing was tried", FeedbackWith(measured, {only})},
      {"of many the fastest and the slowest", FeedbackWith(measured, many)},
      {"a value separates incorrect settings from correct ones",
       FeedbackWith(measured,
                    {Trial(64, 1, 90.0, true), Trial(256, 1, std::nullopt), Trial(256, 2, std::nullopt)})},
  };
  testing::CheckGoldenTexts("tests/agent/golden/feedback_knobs.txt", texts);
  CHECK(KnobNotes({}).empty());
  const std::string of_many = KnobNotes(many);
  CHECK(of_many.starts_with("Knobs: 16 settings tried, 16 correct; "));
  CHECK(of_many.find("- (6 with 1.64 to 2.69 are left out; the slowest:)") != std::string::npos);
  CHECK(of_many.find("- TILE = 128, UNROLL = 8: 3.25") != std::string::npos);
  CHECK(of_many.find("Small differences are noise.") != std::string::npos);
  CHECK(of_many.find("Settings should not change the result") == std::string::npos);
  CHECK(FeedbackWith(measured, {}).find("Knobs") == std::string::npos);
}

}  // namespace kevin
