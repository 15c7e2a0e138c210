#pragma once
// Fast or slow: from timed pairs to a verdict and an interval. Pure arithmetic on log-ratios
//
//     d = log(time of the other side / time of the candidate),   so d > 0 is faster.
//
// Two questions, two sets of pairs. A sequential test may look after every pair and stop early; it gives only
// a verdict. A fixed number of further pairs, none of which took part in stopping, gives the number and its
// interval. (Stopping a 95 % interval as soon as it excludes 1 calls equal kernels faster 17 % of the time.)

#include <span>
#include <vector>

#include "env/environment.h"

namespace kevin {

// Noise that more pairs do not average away, as A/A measurements of this environment show it (bench_clock
// prints them). Standard deviations of a log-ratio.
struct ClockCalibration {
  double between_processes = 0.008;  // one fresh process against another
  double residual = 0.003;           // what is left after all averaging
  // Nothing but the candidate makes single pairs slow: they are not clamped where they are few (HasSlowPairsOfItsOwn).
  bool is_quiet = false;
};

// Asymptotic confidence sequence for the mean of log-ratios (Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas,
// "Time-uniform central limit theory and asymptotic confidence sequences", arXiv 2103.06476, theorem 2.2), on
// observations clamped to 2.5 robust standard deviations, widened by the calibration. Pairs of one process
// share the bias of that process: where there are several processes, the standard deviation is at least the
// one that the spread of their means implies.
class SequentialTest {
 public:
  // Pairs before the first decision: the sequence is asymptotic.
  static constexpr int kFirstLook = 6;
  // With processes of a few pairs each: enough for four processes.
  static constexpr int kFirstLookOverProcesses = 20;

  explicit SequentialTest(ClockCalibration calibration = {}, int first_look = kFirstLook)
      : calibration_(calibration), first_look_(static_cast<size_t>(first_look)) {}
  void Add(double log_ratio) { log_ratios_.push_back(log_ratio); }
  // Pairs added from here on come from a fresh process.
  void StartProcess() { starts_.push_back(log_ratios_.size()); }
  // kFast or kSlow: 1.0 is excluded. kSame: the interval lies within 2 % of 1.0. kAmbiguous: undecided.
  Verdict Current() const;

 private:
  ClockCalibration calibration_;
  size_t first_look_;
  std::vector<double> log_ratios_;
  std::vector<size_t> starts_;  // of the second process, the third, ...
};

// The ratio from fixed pairs, one vector of log-ratios per fresh process. Pairs are clamped to 2.5 robust
// standard deviations, slow ones of the candidate's own excepted; each process gives its mean; the 99 % interval adds the noise within processes, the
// spread between them (shrunk towards the calibration, since three processes say little about a variance) and
// the residual.
Ratio EstimateRatio(std::span<const std::vector<double>> log_ratios_by_process,
                    ClockCalibration calibration = {});

// The verdict where the number of pairs was fixed before the first of them and none was looked at before the last: what
// the interval says. kFast or kSlow: it excludes 1.0. kSame: it lies within 2 % of 1.0.
Verdict VerdictOf(const Ratio& ratio);

// Whether more pairs are far below the median (the candidate was slow in them) than disturbances of both sides alike
// explain, by 2.5 standard deviations of a fair coin. Such pairs are not clamped in the test or the estimate: a
// candidate that is slow in some calls pays for them. Of up to eight pairs of a quiet clock it is whether more are slow than
// fast: one of the four members of the input mixture is too few for the coin.
bool HasSlowPairsOfItsOwn(const std::vector<double>& log_ratios, bool is_quiet = false);

// How many further pairs bring the part of a 99 % interval that pairs average away to about `half_width` on each side. From the
// spread of these pairs, of which there is at least one; robust, at least 1.
int PairsFor(std::vector<double> log_ratios, double half_width);

// Of at least one value; of an even count the mean of the two in the middle.
double Median(std::vector<double> values);

// The standard deviation that the median distance from `centre` implies, of normal values. Of at least one.
double RobustDeviation(std::vector<double> values, double centre);

// Two-sided 99 % quantile of Student's t (so 0.995 in one tail), for real df >= 1.
double StudentQuantile99(double degrees_of_freedom);

}  // namespace kevin
