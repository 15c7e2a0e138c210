#pragma once
// The steps of tokenizer.json before and after the model: normalizer, pre_tokenizer, decoder, post_processor.
// Each function takes the whole file and throws std::invalid_argument with the reason when a step is not
// known.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "policies/local/text/pre_tokenizer.h"

namespace kevin::local {

bool ReadNormalizer(const nlohmann::json& root);  // whether text becomes NFC
PreTokenizer ReadPreTokenizer(const nlohmann::json& root);
void CheckDecoder(const nlohmann::json& root);  // it undoes the alphabet of bytes
void ReadPostProcessor(const nlohmann::json& root, int32_t vocabulary_size, std::vector<int32_t>& before,
                       std::vector<int32_t>& after);

}  // namespace kevin::local
