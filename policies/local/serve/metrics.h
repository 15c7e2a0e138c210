#pragma once
// An engine's figures in Prometheus' text format.

#include <string>

#include "policies/local/generate/engine.h"

namespace kevin::local {

std::string MetricsText(const EngineStatistics& statistics);

}  // namespace kevin::local
