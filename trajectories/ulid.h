#pragma once
// ULIDs (github.com/ulid/spec): 48 bits of Unix time in milliseconds, then 80 random bits, as 26 characters
// of Crockford's base 32. Their text order is their time order.

#include <cstdint>
#include <string>
#include <string_view>

namespace kevin {

// A new id. Within a process each is greater than the one before, also within a millisecond or when the clock
// steps back; between processes equality has a probability of 2^-80. Any thread, also after fork().
std::string NewUlid();

// The time part, in milliseconds since 1970. `ulid` must be a ULID.
int64_t UlidMilliseconds(std::string_view ulid);

// What a person may have typed, as it is stored: upper case, I and L read as 1, O as 0.
std::string NormalizeUlid(std::string_view typed);

}  // namespace kevin
