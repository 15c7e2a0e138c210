"""One step of GRPO in the Kevin recipe (two updates of the weights), written down plainly with transformers and
torch in float64. Prints grpo_step.json; grpo_step_test.cc does the same with ours.

    python grpo_step.py > grpo_step.json      (transformers 5, torch 2.11)
"""

import json
import math

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

VOCABULARY, SEED, STEP = 13, 7, 1
GAMMA, CLIP_LOW, CLIP_HIGH, LENGTH, CAP = 0.4, 0.2, 0.28, 16, 2.0
LEARNING_RATE, MAX_NORM, DECAY, EPSILON, TEMPERATURE = 2e-2, 0.05, 0.1, 1e-4, 0.9
MASK = (1 << 64) - 1


def formula_weights(name, shape):
    if name.endswith("norm.weight"):
        return torch.ones(shape, dtype=torch.float64)
    state = 14695981039346656037
    for byte in name.encode():
        state = ((state ^ byte) * 1099511628211) & MASK
    values = []
    for _ in range(math.prod(shape)):
        state = (state * 6364136223846793005 + 1442695040888963407) & MASK
        values.append((state >> 40) / (1 << 24))
    # In float32 as the C++ does it, so that both start from the same bits.
    values = (torch.tensor(values, dtype=torch.float32) - 0.5) * torch.tensor(1.6, dtype=torch.float32)
    return values.to(torch.float64).reshape(shape)


def shuffled(n, seed, draw):
    order, state = list(range(n)), seed ^ (draw * 0xD1342543DE82EF95 & MASK)
    for i in range(n, 1, -1):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        j = (z ^ (z >> 31)) % i
        order[i - 1], order[j] = order[j], order[i - 1]
    return order


def samples():
    """Four episodes of two turns; scores, returns and z-scores over all eight."""
    result, returns = [], []
    for e in range(4):
        scores = [0.4 * ((e * 3 + t * 2) % 5) for t in range(2)]
        for t in range(2):
            returns.append(sum(GAMMA ** (i - t) * scores[i] for i in range(t, 2)))
            n = 2 + (e + t) % 4
            result.append({
                "prompt": [(e + 3 * i + t) % VOCABULARY for i in range(3 + t)],
                "completion": [(e * 5 + i * i + 2 * t) % VOCABULARY for i in range(n)],
                "sampler": [-2.0 - 0.1 * ((e + t + i) % 5) for i in range(n)]})
    mean = sum(returns) / len(returns)
    deviation = math.sqrt(sum((r - mean) ** 2 for r in returns) / len(returns))
    for sample, r in zip(result, returns):
        sample["advantage"] = (r - mean) / deviation
    return result


def logprobs(model, sample):
    ids = torch.tensor([sample["prompt"] + sample["completion"]])
    logits = model(ids).logits[0] / TEMPERATURE
    every = torch.log_softmax(logits, dim=-1)
    start = len(sample["prompt"])
    return torch.stack([every[start + i - 1, token] for i, token in enumerate(sample["completion"])])


def main():
    config = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=64, tie_word_embeddings=False, rms_norm_eps=1e-6)
    model = Qwen2ForCausalLM(config).to(torch.float64)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(formula_weights(name, parameter.shape))
    batch = samples()
    with torch.no_grad():
        for sample in batch:
            sample["old"] = logprobs(model, sample)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0}],
        lr=LEARNING_RATE, betas=(0.9, 0.95), eps=EPSILON)
    order = shuffled(len(batch), SEED, STEP)
    half = len(order) // 2
    losses, norms = [], []
    for part in (order[:half], order[half:]):
        optimizer.zero_grad()
        loss = 0
        for index in part:
            sample = batch[index]
            now = logprobs(model, sample)
            ratio = torch.exp(now - sample["old"])
            a = sample["advantage"]
            surrogate = torch.minimum(ratio * a, ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH) * a)
            weight = torch.exp(sample["old"] - torch.tensor(sample["sampler"], dtype=torch.float64)).clamp(max=CAP)
            loss = loss - (surrogate * weight).sum() / (len(part) * LENGTH)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm.item())
    weights = {n: [round(v, 8) for v in p.detach().flatten().tolist()] for n, p in model.named_parameters()}
    print(json.dumps({"losses": losses, "norms": norms, "advantages": [s["advantage"] for s in batch],
                      "weights": weights}))


main()
