#include "tests/env/gpu/gpu_candidates.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "tests/env/cpu/cpu_fixture.h"
#include "tests/folders.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

// All others are for level1/19.
const std::map<std::string, std::string> kProblems = {{"half_precision_matmul", "level1/1"},
                                                      {"bfloat16_matmul", "level1/1"},
                                                      {"tf32_matmul", "level1/1"},
                                                      {"half_of_k_matmul", "level1/1"},
                                                      {"tiled_matmul", "level1/1"},
                                                      {"weights_of_the_first_call", "level1/12"},
                                                      {"scaled_rows", "level1/12"},
                                                      {"zeros_for_softmax", "level1/23"},
                                                      {"mean_for_softmax", "level1/23"},
                                                      {"three_quarters_of_softmax", "level1/23"},
                                                      {"softmax_without_maximum", "level1/23"},
                                                      {"softmax_from_first_element", "level1/23"},
                                                      {"loss_around_64", "level1/95"},
                                                      {"softmax_around_66", "level1/23"},
                                                      {"loss_around_130", "level1/95"},
                                                      {"tanh_by_exponentials", "level1/22"},
                                                      {"softplus_unguarded", "level1/29"},
                                                      {"max_from_zero", "level1/49"},
                                                      {"shared_softmax", "level1/23"},
                                                      {"replay_from_globals", "level1/47"},
                                                      {"replay_from_workspace", "level1/47"},
                                                      {"replay_from_shared", "level1/47"},
                                                      {"replay_from_stack", "level1/47"},
                                                      {"half_precision_sum", "level1/47"},
                                                      {"sum_never_reset", "level1/94"},
                                                      {"two_passes", "level1/47"},
                                                      {"programmatic_second_launch", "level1/47"},
                                                      {"cooperative_two_passes", "level1/47"},
                                                      {"last_block_reduces", "level1/47"},
                                                      {"index_out_of_range", "level1/51"},
                                                      {"index_of_the_second", "level1/51"},
                                                      {"plain_argmax", "level1/51"}};

const std::set<std::string> kAtFullSize = {"all_but_one", "right_at_first_by_global"};

// The part of the message that stops them.
const std::map<std::string, std::string> kStopped = {
    {"allocates", "its memory outlives the launch"},
    {"allocates_with_new", "its memory outlives the launch"},
    {"applies_priority", "it outlives the launch in the L2 cache"},
    {"asserts", "the environment checks the answers"},
    {"block_of_1025", "CUDA allows 1024"},
    {"breaks", "there is no debugger"},
    {"cluster_of_32", "cluster.x is 32"},
    {"declares_clock", "a kernel may not read the time"},
    {"discards_l2", "it outlives the launch in the L2 cache"},
    {"endless_templates", "excessive recursion at instantiation"},
    {"twenty_thousand_launches", "more than 16384 operations"},
    {"grid_of_0", "grid.x is 0"},
    {"hides_clock", "a kernel may not read the time"},
    {"huge_workspace", "workspaces of 1099511627776 bytes"},
    {"includes_a_file", "cannot open source file \"/etc/passwd\""},
    {"includes_endless_file", "cannot open source file \"/dev/zero\""},
    {"large_globals", "64 KiB of __device__ variables"},
    {"launch_allocates", "`cudaMalloc` is not possible in launch"},
    {"launch_calls_system", "`system` is not known in launch"},
    {"launch_never_ends", "more than 1000000 steps"},
    {"launch_overflows", "`*` overflows long"},
    {"launch_past_the_output", "are more than `out` (16777216 bytes) has"},
    {"launch_recurses", "calls are nested deeper than 64"},
    {"launch_writes_host_memory", "cannot become long*"},
    {"line_and_file", "Parsing error near '%'"},
    {"tensor_map_negative_stride", "bytes from byte 0 on are more than `out`"},
    {"tensor_map_past_the_end", "size 1 is 140737488355328; it must be 1 to 2^32"},
    {"launches_by_hand", "Unresolved extern function 'cudaLaunchDeviceV2'"},
    {"launches_from_device", "device-side kernel launch"},
    {"managed_memory", "managed and unified variables are refused"},
    {"prints_a_flood", "printf in a kernel is refused"},
    {"prints_by_hand", "printf in a kernel is refused"},
    {"reads_clock", "a kernel may not read the time"},
    {"reads_global_timer", "a kernel may not read the time"},
    {"reads_grid_number", "it distinguishes launches"},
    {"reads_performance_counter", "performance counters are read from outside"},
    {"sets_inputs_from_launch", "inputs are read-only"},
    {"shared_300_kib", "307200 bytes of dynamic shared memory"},
    {"static_shared_300_kib", "declares 307200 bytes of __shared__ memory"},
    {"traps", "the environment checks answers"},
    {"undefined_function", "Unresolved extern function 'evil'"},
    {"workspace_just_over", "17179869184 allowed"}};

// State that they keep is restored or poisoned before each call, or they ask for something permitted, or the
// reaction of the device depends on the moment. They may fail, but must not gain.
const std::set<std::string> kNoGain = {"bulk_load_in_flight",
                                       "bulk_store_in_flight",
                                       "first_inputs",
                                       "four_hundred_launches",
                                       "four_thousand_launches",
                                       "half_in_timed_calls",
                                       "heats_the_device",
                                       "keeps_inputs_in_l2",
                                       "keeps_outputs_in_l2",
                                       "late_block",
                                       "leaves_cluster_barrier",
                                       "lets_the_next_begin",
                                       "mark_in_reserved_shared",
                                       "overwrites_code",
                                       "prefetches_ahead",
                                       "programmatic_first_launch",
                                       "reads_beyond_inputs",
                                       "replay_by_pointer",
                                       "replay_from_globals",
                                       "replay_from_shared",
                                       "replay_from_stack",
                                       "replay_from_workspace",
                                       "right_at_first_by_global",
                                       "right_at_first_by_stack",
                                       "right_at_first_by_workspace",
                                       "scans_low_addresses",
                                       "skip_every_third",
                                       "skip_every_third_in_neighbour",
                                       "sleeps",
                                       "takes_all_registers",
                                       "weights_of_the_first_call",
                                       "work_ahead",
                                       "work_ahead_checked",
                                       "workspace_to_the_limit",
                                       "writes_the_neighbours_shared"};

std::vector<GpuCandidate> CandidatesIn(const fs::path& folder) {
  std::vector<GpuCandidate> candidates;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string ending = entry.path().extension();
    if (ending != ".cu" && ending != ".ptx") continue;
    GpuCandidate found;
    found.name = entry.path().stem();
    const auto problem = kProblems.find(found.name);
    found.problem = problem == kProblems.end() ? "level1/19" : problem->second;
    if (kAtFullSize.count(found.name)) found.size = "full";
    found.candidate = {ending == ".ptx" ? "ptx" : "cuda", TextOf(entry.path())};
    candidates.push_back(std::move(found));
  }
  std::sort(candidates.begin(), candidates.end(), [](const GpuCandidate& a, const GpuCandidate& b) {
    return std::tie(a.problem, a.size, a.name) < std::tie(b.problem, b.size, b.name);
  });
  return candidates;
}

fs::path Folder() { return SourceFolder() / "tests/env/gpu/red_team"; }

}  // namespace

std::vector<GpuCandidate> GpuAttacks() {
  std::vector<GpuCandidate> attacks = CandidatesIn(Folder());
  for (GpuCandidate& attack : attacks) {
    const auto stopped = kStopped.find(attack.name);
    attack.ending = stopped != kStopped.end()    ? Ending::kStopped
                    : kNoGain.count(attack.name) ? Ending::kNoGain
                                                 : Ending::kCaught;
    if (stopped != kStopped.end()) attack.complaint = stopped->second;
  }
  return attacks;
}

std::vector<GpuCandidate> CorrectGpuKernels() { return CandidatesIn(Folder() / "correct"); }

}  // namespace kevin
