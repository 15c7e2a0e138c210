#include "agent/diagnosis_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "agent/rates.h"
#include "agent/text.h"
#include "env/printable.h"

namespace kevin {
namespace {

constexpr double kDisturbed = 1.3;    // between the times of the diagnosis and of the verdict
constexpr double kNoise = 1.1;        // between two times of a diagnosis that count as equal
constexpr double kFits = 0.8;         // share of the largest cache that the tensors may fill
constexpr double kPoorScaling = 0.6;  // share of the threads
constexpr double kSlack = 0.15;       // between shares of the time that are found in two ways
constexpr double kWaiting = 0.15, kMath = 0.1, kSystem = 0.05, kLeastHot = 0.1;  // shares of samples
constexpr double kPageFaults = 8;                                                // a call
constexpr double kSpills = 0.1;  // of the instructions of a loop
constexpr int kLeastSpills = 3;

using Points = std::vector<std::string>;

std::string Us(double us) { return SignificantText(us, 3) + " us"; }

// Whether the times agree with that of the verdict.
bool HasTimes(const Diagnosis& d, double measured_us, Points* points) {
  if (!d.cold_us || measured_us <= 0) return true;
  const double ratio = *d.cold_us / measured_us;
  if (ratio <= kDisturbed && ratio >= 1 / kDisturbed) return true;
  points->push_back(fmt::format(
      "Its calls took {}, those of the measurement {}: other programs used the processor at one of these times. The "
      "times of the diagnosis are left out.",
      Us(*d.cold_us), Us(measured_us)));
  return false;
}

// Why more threads gain little is said where the bandwidth is the reason; where threads wait, AddWaiting says so.
void AddThreads(const Diagnosis& d, const MemoryFacts& memory, Points* points) {
  if (!d.cold_us || !d.one_thread_us || *d.cold_us <= 0 || *d.one_thread_us <= 0 || d.threads < 2) return;
  const double gain = *d.one_thread_us / *d.cold_us;
  std::string point =
      fmt::format("Threads: {} with 1 thread, {} with {}", Us(*d.one_thread_us), Us(*d.cold_us), d.threads);
  if (gain > kNoise) {
    point += fmt::format(", {} times as fast.", SignificantText(gain, 2));
  } else if (gain < 1 / kNoise) {
    point += fmt::format(": 1 thread is {} times as fast.", SignificantText(1 / gain, 2));
  } else {
    point += ": as fast with 1 thread, within noise.";
  }
  if (gain < kPoorScaling * d.threads && gain >= 1 / kNoise && memory.bandwidth_share >= kNearCeiling)
    point += " It is near the memory bandwidth, which more threads do not raise.";
  points->push_back(point);
}

// A sample stops the process: threads that resume one after the other seem to wait. Where the times with one thread
// and with all show that they hardly wait, nothing is said.
bool AgreesWithTimes(const Diagnosis& d) {
  if (!d.cold_us || !d.one_thread_us || *d.cold_us <= 0 || d.threads < 2) return true;
  const double busy = *d.one_thread_us / *d.cold_us / d.threads;
  return d.where.waiting <= 1 - busy + kSlack;
}

void AddWaiting(const Diagnosis& d, Points* points) {
  if (d.where.samples > 0 && d.where.waiting >= kWaiting && AgreesWithTimes(d)) {
    points->push_back(fmt::format(
        "Threads wait for others {} of their time: a part runs on one thread, the parts are unequal, or they are short "
        "against the start of the threads.",
        PercentText(d.where.waiting)));
  }
}

// Only tensors that fit into the largest cache can be in it: of others nothing follows from the second time.
void AddCaches(const Diagnosis& d, const MemoryFacts& memory, Points* points) {
  if (!d.cold_us || !d.warm_us || *d.warm_us <= 0 || *d.warm_us > kNoise * *d.cold_us) return;
  const bool is_known = memory.tensor_bytes > 0 && memory.cache_bytes > 0;
  if (is_known && memory.tensor_bytes > kFits * memory.cache_bytes) return;
  const std::string times = fmt::format(
      "Caches: {} with cold caches, as it is measured, {} when the call before used the same tensors",
      Us(*d.cold_us), Us(*d.warm_us));
  if (!is_known) {
    points->push_back(times + ".");
  } else if (*d.cold_us > kNoise * *d.warm_us) {
    points->push_back(fmt::format("{}: {} of the time is spent on fetching data from memory.", times,
                                  PercentText(1 - *d.warm_us / *d.cold_us)));
  } else {
    points->push_back(times + ", within noise: fetching data from memory is not what limits it.");
  }
}

void AddShares(const Diagnosis& d, Points* points) {
  if (d.where.math >= kMath) {
    points->push_back(fmt::format(
        "{} of the time is spent in functions of the math library: an approximation in vectors, of sufficient accuracy, "
        "replaces them.",
        PercentText(d.where.math)));
  }
  if (d.where.system >= kSystem)
    points->push_back(fmt::format("{} of the time is spent in system calls.", PercentText(d.where.system)));
  if (d.page_faults && *d.page_faults >= kPageFaults) {
    points->push_back(fmt::format(
        "A call causes {:.0f} page faults: it takes new memory from the system each time. Keep scratch memory in a "
        "static buffer.",
        *d.page_faults));
  }
  if (d.counters) {
    points->push_back(fmt::format(
        "Counters of the processor: {:.2g} instructions a cycle, {} misses of the last cache a call.",
        d.counters->instructions_per_cycle, SignificantText(d.counters->cache_misses_per_call, 3)));
  }
}

std::string LinesText(const HotLoop& loop) {
  if (loop.first_line == 0) return "in code of a header or of the compiler";
  return loop.first_line == loop.last_line ? fmt::format("line {}", loop.first_line)
                                           : fmt::format("lines {} to {}", loop.first_line, loop.last_line);
}

std::string ArithmeticText(const HotLoop& loop) {
  std::vector<std::string> parts;
  if (loop.packed > 0)
    parts.push_back(fmt::format("{} of arithmetic on vectors of {} bits", loop.packed, loop.vector_bits));
  if (loop.scalar > 0) parts.push_back(fmt::format("{} of scalar arithmetic", loop.scalar));
  if (loop.multiply_adds > 0 && !parts.empty())
    parts.back() += fmt::format(" ({})", Counted(loop.multiply_adds, "multiply-add"));
  if (loop.loads > 0) parts.push_back(fmt::format("{} with a load", loop.loads));
  if (loop.stores > 0) parts.push_back(fmt::format("{} with a store", loop.stores));
  return parts.empty() ? "" : fmt::format(", {}", fmt::join(parts, ", "));
}

// What is wrong with it.
std::string LoopFindings(const HotLoop& loop, int machine_bits) {
  std::string text;
  if (loop.scalar > 0 && loop.packed == 0) text += " Its arithmetic is not vectorised.";
  if (loop.packed > 0 && machine_bits > loop.vector_bits)
    text += fmt::format(" This machine has vectors of {} bits.", machine_bits);
  if (loop.stack >= kLeastSpills && loop.stack >= kSpills * loop.instructions) {
    text += fmt::format(
        " {} of the instructions access the stack: more values are alive than there are registers (spills).",
        loop.stack);
  }
  if (loop.calls > 0) text += fmt::format(" Calls in it: {}.", loop.calls);
  if (loop.divisions > 0) text += fmt::format(" Divisions and roots in it: {}.", loop.divisions);
  if (loop.gathers > 0) text += fmt::format(" Gathers in it: {}.", loop.gathers);
  return text;
}

std::string NoteText(const VectorNote& note, const HotLoop& loop) {
  const bool is_scalar = loop.scalar > 0 && loop.packed == 0;
  if (note.vector_bytes > 0 && is_scalar) {
    return fmt::format(
        " The compiler reports vectors at line {}, but this loop has none: it is the loop of the remainder, or it keeps "
        "the order of a floating-point sum (use several independent sums, or `#pragma omp simd reduction`).",
        note.line);
  }
  if (note.vector_bytes > 0 || loop.packed > 0) return "";
  return fmt::format(" The compiler, at line {}: {}.", note.line, note.reason);
}

void AddLoop(const Diagnosis& d, Points* points) {
  if (!d.loop) return;
  const HotLoop& loop = *d.loop;
  const bool is_sampled = d.where.samples > 0;
  if (is_sampled && loop.share < kLeastHot) return;
  std::string point =
      fmt::format("{}: {}, {}{} instructions{}.", is_sampled ? "Hot loop" : "Longest inner loop",
                  LinesText(loop), is_sampled ? PercentText(loop.share) + " of the threads' time, " : "",
                  loop.instructions, ArithmeticText(loop)) +
      LoopFindings(loop, d.machine_vector_bits);
  for (const VectorNote& note : loop.notes) point += NoteText(note, loop);
  const bool is_whole = loop.instructions <= static_cast<int>(loop.excerpt.size());
  const char* title = !is_sampled ? "its first instructions"
                      : is_whole  ? "the loop, with the share of time of each instruction"
                                  : "around its slowest instruction, with the share of time of each";
  point += fmt::format("\n\n  ```\n  {}\n", title);
  for (const HotInstruction& instruction : loop.excerpt) {
    point += fmt::format("  {:>5}  {}\n", instruction.share > 0 ? PercentText(instruction.share) : "",
                         instruction.text);
  }
  points->push_back(point + "  ```");
}

void AddStages(const Diagnosis& d, Points* points) {
  if (!d.stage_problem.empty())
    points->push_back(fmt::format("The marks of stages gave no times: {}.", d.stage_problem));
  if (d.stages.empty()) return;
  std::vector<std::string> parts;
  for (const StageShare& stage : d.stages) parts.push_back(stage.name + " " + PercentText(stage.share));
  points->push_back(fmt::format("Time by stage: {}.", fmt::join(parts, ", ")));
}

}  // namespace

std::string DiagnosisText(const Diagnosis& diagnosis, double measured_us, const MemoryFacts& memory) {
  Points points;
  AddStages(diagnosis, &points);
  if (HasTimes(diagnosis, measured_us, &points)) {
    AddThreads(diagnosis, memory, &points);
    AddCaches(diagnosis, memory, &points);
  }
  AddWaiting(diagnosis, &points);
  AddShares(diagnosis, &points);
  AddLoop(diagnosis, &points);
  if (points.empty()) return "";
  std::string text = "Diagnosis, from further calls that take no part in the times above:";
  for (const std::string& point : points) text += "\n- " + point;
  const bool has_marks = !diagnosis.stages.empty() || !diagnosis.stage_problem.empty();
  if (diagnosis.cold_us && !has_marks) {
    text +=
        "\nLines `// stage NAME` between statements of the kernel add the time of each part; in a measurement they are "
        "comments.";
  }
  return Clip(Printable(text), kMaxDiagnosisBytes);
}

}  // namespace kevin
