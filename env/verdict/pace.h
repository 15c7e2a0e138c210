#pragma once
// Whether the calls of a batch take turns: the judgement on all audits of a candidate (env/cpu/audit.h).

#include <string>
#include <vector>

namespace kevin {

// What one audited batch tells about the pace of its calls.
struct AuditedPace {
  // Share of the batch's time that had passed at the first pause, less the share of calls that were finished by
  // then: about 0 where calls take turns, about 0.5 where the first call does everything.
  double lag = 0;
  // Logarithm of its time over that of a batch which was paused at the same moments, but whose inputs stayed.
  double excess = 0;
  // Logarithm of the time of the batch whose inputs stayed over that of a timed batch.
  double slowness = 0;
};

// The judgement on all audits of an evaluation. A single audit proves nothing: other programs, or a first call
// with cold caches, delay a correct kernel too. All figures are refused on their mean, where Student's
// 99.5 % bound below it exceeds the limit. Reading ahead is counted, in audits of its own: removing the marks delays a
// batch, which a kernel can feel. Pure arithmetic.
class Pace {
 public:
  static constexpr double kMaxLag = 0.2;
  static constexpr double kMaxExcess = 0.15;
  static constexpr double kMaxSlowness = 0.2;
  // A batch that is paused within its first tenth has no more calls behind it than that, and some of their scatter. In more
  // audits than this a kernel is refused.
  static constexpr double kMaxAhead = 0.15;
  static constexpr int kMaxAheads = 2;
  // A suspicion is no proof: it is put to new audits, which alone decide.
  static constexpr int kAuditsIfSuspicious = 40;
  static constexpr double kMarksShareIfSuspicious = 0.4;  // of them: audits for marks
  // Of 16 audits for marks, and as large a part of more: single marks may have a cause outside of the kernel, which is seen
  // in most audits if it works ahead.
  static constexpr int kMaxReadAhead = 2, kReadAheadOf = 16;

  void Add(const AuditedPace& audit);
  // Of an audit whose first pause came within the first tenth of the batch. `ahead`: the share of the calls that had returned
  // by then, less the share of the time that had passed; not above 0 where calls take turns.
  void AddEarly(double ahead, double slowness);
  // Whether in an audit, at a pause, inputs of calls that had not begun had been read. Not by guesses of the processor:
  // much of a tensor.
  // `slowness`: as of AuditedPace, without what it takes to set the marks again.
  void AddMarks(bool read_ahead, double slowness = 0);
  // Of an audit for marks in which they could not be removed: the kernel's memory management had handed those of another process
  // to the candidate's. Under suspicion all lose theirs.
  void AddUnknownMarks() { ++unknown_marks_; }
  // The mean lag exceeds half of its limit, the mean excess its limit by more than chance explains (an audit of a correct
  // kernel scatters by 0.15 on a quiet virtual machine), an audit found that inputs were read ahead (none of 189 audits of
  // correct kernels beside programs that come and go did; a kernel may work ahead only until it was paused a few times), many
  // calls have returned when a batch has just begun, marks tell nothing in most audits, or audited batches take longer than
  // timed ones: a kernel may be honest where it notices an audit.
  bool IsSuspicious() const;
  // Whether it is known how far the figures of both kinds scatter.
  bool HasEnough() const { return lags_.size() >= kLeastAudits && slowness_early_.size() >= kLeastAudits; }
  // A suspicion, but not by inputs that were read ahead, by so few audits that chance may explain it: more of them come first,
  // which cost a correct kernel less than a second measurement.
  bool NeedsAnotherLook() const;
  // Empty, or why the kernel is refused.
  std::string Refusal() const;

 private:
  static constexpr size_t kLeastAudits = 3, kAuditsOfAnotherLook = 8;

  bool IsMostlyUnknown() const { return unknown_marks_ > static_cast<int>(slowness_with_marks_.size()); }
  bool IsEarlySuspicious() const;
  static bool Exceeds(const std::vector<double>& values, double limit);

  std::vector<double> lags_, excesses_, slowness_;
  std::vector<double> slowness_early_;       // of each early audit
  int ahead_ = 0;                            // of them
  std::vector<double> slowness_with_marks_;  // of each audit for marks
  int read_ahead_ = 0;                       // of them
  int unknown_marks_ = 0;                    // beside them
};

}  // namespace kevin
