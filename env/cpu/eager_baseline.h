#pragma once
// What eager takes for a problem on this CPU, timed as the reference of a pair is: in its own process, on
// slots drawn anew, caches flushed, nothing else of Kevin's running.

#include <nlohmann/json_fwd.hpp>

#include "env/cpu/session.h"

namespace kevin {

// {"eager_us": median a call, "low_us", "high_us": quartiles, "batches", "calls": of a batch, "torch"}. Holds
// the CPU's lock for some 3 s. Throws Error(kBroken) when the reference's process ends.
nlohmann::json MeasureEager(Session& session);

}  // namespace kevin
