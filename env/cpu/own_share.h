#pragma once
// How much of a Python candidate's work its own kernels do: where its threads are at random moments, read from outside
// (thread_samples.h). Waiting, system calls, Python itself and torch's binding to it count on neither side. The process may
// do the work of a library in memory that counts as its own: this is a rule for honest candidates and cheap copies, no bound
// that holds against any machine code.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "env/cpu/session.h"
#include "env/cpu/thread_samples.h"
#include "env/cpu/timed_process.h"
#include "env/verdict/judgement.h"

namespace kevin {

// Who executes a candidate's kernels. Those of Triton have no compiler for CPUs: Python and numpy execute them, and count
// as its own then. The form follows from the words of a text (env/python/python_rules.h), so it is only a claim: numpy counts as
// own only beside loads and stores of Triton's interpreter, more of it as another library, and products of matrices always.
enum class KernelForm { kCompiled, kInterpreted };

struct OwnShare {
  int own = 0, library = 0;         // samples: in its own kernels, in another's code
  int least_seen = 0;               // samples in kernels, of either, below which they say nothing
  int all = 0;                      // samples, wherever the threads were
  int moments = 0, unreadable = 0;  // as in ThreadSamples. All of them unreadable: this machine does not tell
  std::map<std::string, int> by_library;  // as there; interpreted kernels: "numpy" too
  // nullopt: too few samples were in kernels of either.
  std::optional<double> Value() const;
  // "torch 80 %, MKL 15 %": of the work, the largest first, without those below 1 %. Empty: none is known.
  std::string Libraries() const;
};

OwnShare CountOwnShare(const ThreadSamples& samples, KernelForm form);
// Whether more samples could move the share to the other side of `least`: it lies within three standard errors, or there are
// too few.
bool IsShareOpen(const OwnShare& share, double least);

// `own_libraries_fd`: of BuiltLibraries. Runs batches of these slots for 0.8 s, and for 5 s at most while the share is open
// beside Problem::least_own_share.
OwnShare MeasureOwnShare(Session& session, TimedProcess& process, int own_libraries_fd,
                         std::span<const uint16_t> slots, KernelForm form);

}  // namespace kevin
