#pragma once
// Names: ids of rows (ULIDs), and the process that works on a row, so that a later program can tell whether it lives.
//
// ULIDs (github.com/ulid/spec): 48 bits of Unix time in milliseconds, then 80 random bits, as 26 characters of
// Crockford's base 32. Their text order is their time order.

#include <cstdint>
#include <string>
#include <string_view>

namespace kevin {

// A new id. Within a process each is greater than the one before, also within a millisecond or when the clock
// steps back; between processes equality has a probability of 2^-80. Any thread, also after fork().
std::string NewUlid();

// The time part, in milliseconds since 1970. `ulid` must be a ULID.
int64_t UlidMilliseconds(std::string_view ulid);

// The text that a user typed, as it is stored: upper case, I and L read as 1, O as 0.
std::string NormalizeUlid(std::string_view typed);

// "host boot-id pid-namespace pid start-time" of this process.
std::string ThisProcess();

// True only if `owner` has ended for certain: same host and pid namespace, but an earlier boot, no such pid, or
// another process under its pid. Of other hosts and namespaces nothing is known.
bool IsDead(const std::string& owner);

}  // namespace kevin
