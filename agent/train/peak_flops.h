#pragma once
// How much arithmetic a GPU can do at most, for the share of it that training uses:
//
//   mfu = FLOP of the model's products in a step / (train_s * ranks * peak)
//
// FLOP: 2 for each number of the model that a token is multiplied with, three times (forward, backward to the
// inputs, backward to the weights; twice where only adapters are trained), the head's for trained tokens
// alone; and attention's 6 * layers * heads * head_dim * length^2 a sequence. What is computed again to save
// memory does not count, nor do passes without gradients. peak: the vendor's, dense.

#include <optional>
#include <string>

namespace kevin {

// FLOP/s of products of bfloat16 or float16 with sums of float32, by the name that the driver gives the GPU;
// nullopt: unknown.
std::optional<double> PeakFlops(const std::string& gpu_name);

}  // namespace kevin
