// Which schedules suit rows of a length: where a row fits between passes, and how many rows there are to fill
// the device with.

#include <algorithm>

#include "policies/search/cuda_prelude.h"
#include "policies/search/cuda_staged.h"

namespace kevin::search {
namespace {

int PowerOfTwoFrom(int64_t count, int low, int high) {
  int power = low;
  while (power < high && power < count) power *= 2;
  return power;
}

bool FitsRegisters(int64_t terms) {
  const int width = PackWidth(terms);
  return terms <= 1024 * std::min(32, 16 * width);
}

}  // namespace

std::vector<Knob> RowKnobs(const StagedWork& work, const TaskDevice& device) {
  const ReducedLayout& layout = work.form.layout;
  const int64_t bytes = layout.terms * 4, reserve = kSlots * 4 + 1024;
  const bool is_long = layout.terms >= 16384, few_rows = layout.outer < 4 * device.multiprocessors;
  Knob row{"row", {}};
  const auto add = [&](bool fits, const std::string& value) {
    if (fits) row.values.push_back(value);
  };
  if (!work.is_per_row && OnlyFullLeaf(work)) {
    add(FitsRegisters(layout.terms), "registers");
    for (const int blocks : {8, 4, 2}) {
      add(is_long && (bytes + blocks - 1) / blocks + reserve <= device.block_shared_bytes,
          "cluster" + std::to_string(blocks));
    }
    add(layout.terms >= 2048 && bytes + reserve <= device.block_shared_bytes, "shared");
  }
  row.values.push_back("block");
  const bool splits = is_long && few_rows;
  const bool is_shared_out = row.values[0] == "block" && splits;
  if (splits) row.values.insert(is_shared_out ? row.values.begin() : row.values.end(), {"split", "split4"});
  const int64_t packs = layout.terms / PackWidth(layout.terms);
  Knob threads{"threads", {}};
  Knob each{"each", {"4", "2", "8"}};
  if (is_long) {
    threads.values = row.values[0].rfind("cluster", 0) == 0 ? std::vector<std::string>{"1024", "512"}
                                                            : std::vector<std::string>{"256", "512"};
    if (row.values[0] == "registers") threads.values = {"1024"};
  } else {
    const bool in_registers = row.values[0] == "registers";
    // Registers: packs * width / threads must stay within what one thread can hold.
    const int least = in_registers ? PowerOfTwoFrom((packs + 15) / 16, 32, 1024) : 32;
    const int best = std::max(least, PowerOfTwoFrom((packs + 3) / 4, 32, 1024));
    threads.values = {std::to_string(best)};
    if (best < 1024) threads.values.push_back(std::to_string(best * 2));
    if (best > least) threads.values.push_back(std::to_string(best / 2));
    if (packs < 4 * 1024) each.values = {"4", "2"};
  }
  return {row, threads, each, MathKnob(work.form.root)};
}

}  // namespace kevin::search
