#pragma once
// A prepared candidate in Python without compiled extensions, as env/python/build_candidate.py writes it.

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "env/process/shared_memory.h"
#include "tests/catch.h"

namespace kevin {

// `stages`: those that a diagnosis times.
inline Fd BundleOf(const std::string& source, const std::string& kind,
                   const std::vector<std::string>& stages = {}) {
  nlohmann::json header = {{"files", {{{"name", "candidate.py"}, {"bytes", source.size()}}}},
                           {"extensions", nlohmann::json::object()},
                           {"kind", kind}};
  if (!stages.empty()) header["stages"] = stages;
  const std::string text = header.dump() + "\n" + source;
  Fd bundle = CreateSharedFile("kevin-bundle", text.size());
  REQUIRE(pwrite(bundle.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  return bundle;
}

}  // namespace kevin
