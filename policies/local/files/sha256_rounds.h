#pragma once
// SHA-256's inner loop by the processor's own instructions, where it has them.

#include <cstddef>
#include <cstdint>

namespace kevin::local {

bool HasShaInstructions();
// `state`: eight words, as FIPS 180-4 has them; `blocks`: of 64 bytes each. Only where HasShaInstructions().
void Sha256Blocks(uint32_t state[8], const uint8_t* data, size_t blocks);

}  // namespace kevin::local
