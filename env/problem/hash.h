#pragma once
// SHA-256, the one content hash of the environment (problems, candidates, evaluation keys, compile cache).

#include <string>
#include <string_view>

namespace kevin {

std::string Sha256Hex(std::string_view bytes);  // 64 lower-case hex digits

}  // namespace kevin
