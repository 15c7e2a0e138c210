#pragma once
// System calls. The candidate gets a list of what arithmetic on ready buffers needs and nothing else; the
// compiler gets everything but what no compiler needs.

#include "env/sandbox/sandbox.h"

namespace kevin {

// False when the kernel has no seccomp filters. Refused calls fail with EPERM (clone3 with ENOSYS, so that
// the C library falls back to clone, whose flags can be read).
bool InstallSeccompFilter(SandboxProfile profile);

}  // namespace kevin
