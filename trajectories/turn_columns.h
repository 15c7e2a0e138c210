#pragma once
// The columns of turns and evaluations, in the order in which turns.cc writes and read_turns.cc reads them.

namespace kevin {

inline constexpr char kTurnColumns[] =
    "episode, turn, run, messages, reply, reasoning, prompt_token_ids, token_ids, logprobs, temperature, "
    "top_p, max_tokens, sampling_seed, stop_reason, prompt_tokens, completion_tokens, cached_tokens, "
    "reasoning_tokens, model, weights_hash, tokenizer_hash, chat_template_hash, parser_version, "
    "prompt_template, prompt_template_hash, summary, feedback, source_path, generate_s, overhead_s, "
    "seconds, reward, created_at";

inline constexpr char kEvaluationColumns[] =
    "id, episode, turn, purpose, key, key_parts, candidate, kind, problem_hash, size, inputs, precision, "
    "tf32, threads, tolerance_version, baseline_version, toolchain_version, device, device_model, driver, "
    "isolation, include_hashes, environment_version, outcome, reason, compiled, correct, verdict, "
    "speedup, speedup_low, speedup_high, log_se, pairs, processes, against_start, against_start_low, "
    "against_start_high, candidate_us, reference_us, gb_per_s, gflop_per_s, floor_us, max_error, "
    "error_bound, score, compile_s, verify_s, measure_s, wait_s, seeds, log, machine, cached_from, "
    "superseded_by, created_at, kernels, launch_list, profile, peak_gb_per_s, peak_gflop_per_s, device_s, "
    "machine_key, timeout_phase, timeout_limit_s, failed_shape, shapes";

}  // namespace kevin
