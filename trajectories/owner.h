#pragma once
// Who works on a row: a process, named so that a later program can tell whether it still lives.

#include <string>

namespace kevin {

// "host boot-id pid-namespace pid start-time" of this process.
std::string ThisProcess();

// True only if `owner` is known to be gone: same host and pid namespace, but an earlier boot, no such pid, or
// another process under its pid. Of other hosts and namespaces nothing is known.
bool IsDead(const std::string& owner);

}  // namespace kevin
