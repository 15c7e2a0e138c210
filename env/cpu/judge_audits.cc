#include <algorithm>
#include <cmath>
#include <random>
#include <tuple>
#include <utility>

#include "env/cpu/cpu_judgement.h"
#include "env/cpu/peak.h"
#include "env/process/machine.h"

namespace kevin {
namespace {

// That an audit comes next, before each round and after each audit. Under suspicion as many audits as rounds, mixed with
// them at random: a kernel that is honest while it is audited is honest in times that count, too.
constexpr double kAuditShare = 0.15, kAuditShareIfSuspicious = 0.5;
// Of audits before a round: those that remove marks, without a suspicion. One more is at the end of each process.
constexpr double kMarksShare = 0.25;
constexpr int kMostAuditsOfAnotherLook = 48;
constexpr int kMostMissedPauses = 2;  // of an audit for marks, which is made again then
// To set the mark of a page takes so long: of slots up to 0.4 us were seen (a matrix product on a virtual machine). A kernel's
// own pages get less, so that it gains nothing by touching more of them than it needs.
constexpr double kMarkOfSlot_us = 0.5, kMarkOfOwnPage_us = 0.2;
constexpr double kPageBytes = 4096, kMostOwnPages = 1 << 14;
constexpr double kQuietShare =
    0.05;  // of a window: how long threads of the reference may wait for a processor

}  // namespace

// Two batches with the same pauses, in random order: only the inputs of one change. Before there is a suspicion an audit for
// marks needs no comparison of times: it is the one whose inputs change.
bool CpuJudgement::AuditRound(const Processes& processes, double marks_share, std::optional<bool> is_early) {
  const int calls = std::uniform_int_distribution<int>(min_calls_, max_calls_)(session_.random());
  if (calls < 2) return false;
  const double usual_us = (timed_us_.empty() ? candidate_us_ : Median(timed_us_)) * calls;
  std::bernoulli_distribution is_for_marks(marks_share);
  const bool removes_marks = BatchProcess::HasMarks() && processes.candidate->process().ShowsMarks() &&
                             is_for_marks(session_.random());
  const auto draw = [&] {
    return DrawAuditPlan(usual_us, static_cast<size_t>(calls), session_.layout().inputs_bytes, removes_marks,
                         session_.random(), is_early);
  };
  AuditPlan plan = draw();
  if (removes_marks) {
    for (int more = 0; !AuditMarks(processes, calls, plan) && more < kMostMissedPauses; ++more) {
      VisitAllSlots(processes);
      plan = draw();
    }
    return true;
  }
  VisitAllSlots(processes);  // else its batches are delayed by what the audit before has removed
  plan.changes = session_.random()() % 2 == 0;
  const AuditedBatch first = AuditBatch(processes, calls, plan);
  plan.changes = !plan.changes;
  const AuditedBatch second = AuditBatch(processes, calls, plan);
  const auto& [changed, same] = plan.changes ? std::tie(second, first) : std::tie(first, second);
  if (!changed.happened || !same.happened) return true;
  if (plan.is_early) {
    pace_.AddEarly((same.ahead + changed.ahead) / 2, same.slowness);
  } else {
    pace_.Add({same.lag, std::log(changed.ran_us / same.ran_us), same.slowness});
  }
  return true;
}

bool CpuJudgement::AuditMarks(const Processes& processes, int calls, AuditPlan plan) {
  plan.changes = !is_suspected_ || session_.random()() % 2 == 0;
  AuditedBatch audited = AuditBatch(processes, calls, plan);
  if (is_suspected_) {
    plan.changes = !plan.changes;
    const AuditedBatch second = AuditBatch(processes, calls, plan);
    if (!audited.happened) {
      audited = second;
    } else if (second.happened) {
      audited.read_ahead |= second.read_ahead;
      audited.marks_work |= second.marks_work;
      audited.slowness = std::min(audited.slowness, second.slowness);
    }
    VisitAllSlotsOfReference();
  }
  has_removed_marks_ = true;
  if (!audited.happened) return false;
  if (!audited.marks_work && !audited.read_ahead) {
    pace_.AddUnknownMarks();
  } else {
    pace_.AddMarks(audited.read_ahead, audited.slowness);
  }
  return true;
}

bool CpuJudgement::AuditRound(const Processes& processes) {
  return AuditRound(processes, is_suspected_ ? Pace::kMarksShareIfSuspicious : kMarksShare);
}

// In a process of its own, between batches that do not count: a kernel may be honest in late batches of a process.
void CpuJudgement::LookAgain() {
  if (!pace_.NeedsAnotherLook()) return;
  const size_t samples = result_.samples.size();
  const Processes processes = StartWarm(false);
  for (int audits = 0; audits < kMostAuditsOfAnotherLook && pace_.NeedsAnotherLook(); ++audits) {
    if (session_.random()() % 2 == 0) TimedRound(processes.All(), 0, -1, "audit");
    if (!AuditRound(processes, 0.5)) break;
    VisitAllSlots(processes);
  }
  result_.samples.resize(samples);
}

void CpuJudgement::AuditNowAndThen(const Processes& processes) {
  std::bernoulli_distribution comes_next(is_suspected_ ? kAuditShareIfSuspicious : kAuditShare);
  while (comes_next(session_.random()) && AuditRound(processes)) ++audits_;
  VisitAllSlots(processes);
}

// An audit removes the marks of accesses from every page of its process, and where it may refuse the kernel from those of all
// processes. The processor sets a mark at the next access, which takes longer than to read the page (16 MiB: 1.45 ms
// instead of 0.5 ms).
void CpuJudgement::VisitAllSlots(const Processes& processes) {
  if (!std::exchange(has_removed_marks_, false)) return;
  const std::vector<uint16_t> slots = session_.DrawSlots(session_.slots());
  Fill(slots);
  RunCandidate(*processes.candidate, slots, "measure");
  CheckGuards(*processes.candidate, slots);
  if (is_suspected_ && processes.start) processes.start->Run(slots, "measure");
}

// After each audit of a suspected kernel: unlike the others this process stays until the end.
void CpuJudgement::VisitAllSlotsOfReference() {
  const std::vector<uint16_t> slots = session_.DrawSlots(session_.slots());
  session_.RestoreReference(slots);
  RunReference(slots);
  PublishReference();
}

CpuJudgement::AuditedBatch CpuJudgement::AuditBatch(const Processes& processes, int calls,
                                                    const AuditPlan& plan) {
  TimedProcess& process = *processes.candidate;
  const std::vector<uint16_t> slots = session_.DrawSlots(calls);
  Fill(slots);
  double reference_us = 0;
  const double waited_s = session_.reference_process().WaitedSeconds();
  // As before every other timed batch: else a long break would exclude an audit.
  const bool runs_before = session_.random()() % 2 == 0;
  if (runs_before) {
    FlushCaches(session_.options().threads);
    reference_us += RunReference(slots);
  }
  if (!plan.removes_marks) StopAsLongAsForAudit();
  Audit audit(session_, process.process(), process.outputs(), slots, plan,
              {is_suspected_, processes.start ? &processes.start->process() : nullptr});
  if (plan.removes_marks) marks_s_ = audit.MarksSeconds();
  FlushCaches(session_.options().threads);
  RunCandidate(process, slots, "measure", audit.Pauses());
  audit.AfterBatch();
  CheckGuards(process, slots);
  if (audit.Deferred()) {
    throw Ended{Refused{"deferred work: a call that had returned had not finished its outputs"}};
  }
  if (!runs_before || plan.changes) {  // with the inputs as they are after the changes
    session_.RestoreReference(slots);
    reference_us += RunReference(slots);
  }
  process.AddOtherWindow(reference_us);
  const double share = (session_.reference_process().WaitedSeconds() - waited_s) / (reference_us * 1e-6);
  PublishReference();
  for (size_t call = 0; call < slots.size(); ++call) {
    CheckResult check = checker_.AgainstReference(
        slots[call], session_.OutputsOf(process.outputs(), slots[call]), session_.ReferenceOutputsOf(call));
    if (check.ok) continue;
    if (audit.WereInputsChanged(call)) {
      throw Ended{Refused{"worked ahead: a call answered its inputs as they were before it began"}};
    }
    check.message += NoteOf(call, 0);
    throw Ended{WrongTimedAnswer(check)};
  }
  const bool is_busy = share > kQuietShare;
  const double lag = is_busy ? std::min(audit.Lag(), audit.CpuLag()) : audit.Lag();
  const double ahead = is_busy ? std::min(audit.Ahead(), audit.CpuAhead()) : audit.Ahead();
  const double marks_us = plan.removes_marks ? MarksMicroseconds(process, slots.size()) : 0;
  const double slowness = Slowness(process, audit.RanUs(), slots.size(), marks_us, is_busy);
  return {audit.RanUs(), lag, ahead, slowness, audit.Happened(), audit.ReadAhead(), audit.MarksWork()};
}

// Logarithm of an audited batch's time over that of a timed one. On a busy machine a process that is stopped and started
// waits for processors, which its processor time does not show; on a quiet one a kernel could hide behind that by burning
// more of it in timed batches.
double CpuJudgement::Slowness(const TimedProcess& process, double ran_us, size_t calls, double marks_us,
                              bool is_busy) const {
  if (timed_us_.empty()) return 0;
  const auto count = static_cast<double>(calls);
  const double slowness = std::log(ran_us / (Median(timed_us_) * count + marks_us));
  if (!is_busy) return slowness;
  const double cpu_us = process.CpuOfBatch_s() * 1e6;
  return std::min(slowness, std::log(cpu_us / (Median(timed_cpu_us_) * count + marks_us)));
}

// What it may take to set the marks of a batch again.
double CpuJudgement::MarksMicroseconds(const TimedProcess& process, size_t calls) const {
  const SlotLayout& layout = session_.layout();
  const double slots_pages = static_cast<double>(layout.inputs_bytes + layout.outputs_bytes) / kPageBytes /
                             session_.slots() * static_cast<double>(calls);
  const double own_pages = static_cast<double>(process.process().MarkedBytes()) / kPageBytes - slots_pages;
  return kMarkOfSlot_us * slots_pages + kMarkOfOwnPage_us * std::clamp(own_pages, 0.0, kMostOwnPages);
}

// A suspicion is no proof: what was measured until now does not count, and audits among the rounds that are measured instead
// decide alone.
bool CpuJudgement::BeginsSuspicion() {
  if (is_suspected_ || !pace_.IsSuspicious()) return false;
  is_suspected_ = true;
  pace_ = {};
  audits_ = 0;
  return true;
}

void CpuJudgement::RefuseWorkAhead() const {
  if (!is_suspected_) return;
  if (const std::string refusal = pace_.Refusal(); !refusal.empty()) throw Ended{Refused{refusal}};
}

}  // namespace kevin
