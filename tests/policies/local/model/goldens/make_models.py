#!/usr/bin/env python3
"""Makes models.json: what transformers computes for tiny models of every family.

Usage: python make_models.py > models.json   (made with transformers 5.23.0, torch 2.11.0, on a CPU in float32)

The weights come from the integer hash below, which tests/policies/local/hashed_model.cc repeats; they are
not stored. For each model: its config.json as this transformers writes it, a prompt, the 256 tokens that follow
greedily, and the logits of a few positions.
"""
import json
import sys
import tempfile

import numpy
import torch
import transformers
from safetensors.numpy import save_file

MASK = (1 << 64) - 1
NEW_TOKENS = 256
PROMPT_TOKENS = 24
VOCABULARY = 160


def fnv(name):
    value = 14695981039346656037
    for byte in name.encode():
        value = ((value ^ byte) * 1099511628211) & MASK
    return value


def uniforms(name, count):
    """In [-1, 1), 24 bits each: splitmix64 of the name's hash and the place."""
    with numpy.errstate(over="ignore"):
        x = numpy.uint64(fnv(name)) + numpy.arange(1, count + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        x = x ^ (x >> numpy.uint64(31))
    return (x >> numpy.uint64(40)).astype(numpy.float64) / (1 << 23) - 1


def hashed(name, shape):
    u = uniforms(name, int(numpy.prod(shape)))
    if name.endswith("norm.weight"):
        values = 1 + 0.25 * u
    elif name.endswith(".bias"):
        values = 0.5 * u
    elif name == "model.embed_tokens.weight":
        values = 1.5 * u
    else:
        values = numpy.sqrt(6.0 / shape[1]) * u
    return values.astype(numpy.float32).reshape(shape)


def tensors(config):
    c, get = config, lambda field: getattr(config, field)
    head_dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    yield "model.embed_tokens.weight", (c.vocab_size, c.hidden_size)
    for layer in range(c.num_hidden_layers):
        prefix = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}{norm}.weight", (c.hidden_size,)
        for name, heads in (("q", c.num_attention_heads), ("k", c.num_key_value_heads), ("v", c.num_key_value_heads)):
            yield f"{prefix}self_attn.{name}_proj.weight", (heads * head_dim, c.hidden_size)
            if c.model_type == "qwen2":
                yield f"{prefix}self_attn.{name}_proj.bias", (heads * head_dim,)
        yield f"{prefix}self_attn.o_proj.weight", (c.hidden_size, c.num_attention_heads * head_dim)
        if c.model_type.startswith("qwen3"):
            yield f"{prefix}self_attn.q_norm.weight", (head_dim,)
            yield f"{prefix}self_attn.k_norm.weight", (head_dim,)
        blocks = [("mlp.", c.intermediate_size)]
        if c.model_type == "qwen3_moe" and layer not in c.mlp_only_layers:
            yield f"{prefix}mlp.gate.weight", (c.num_experts, c.hidden_size)
            blocks = [(f"mlp.experts.{expert}.", c.moe_intermediate_size) for expert in range(c.num_experts)]
        for block, ffn in blocks:
            yield f"{prefix}{block}gate_proj.weight", (ffn, c.hidden_size)
            yield f"{prefix}{block}up_proj.weight", (ffn, c.hidden_size)
            yield f"{prefix}{block}down_proj.weight", (c.hidden_size, ffn)
    yield "model.norm.weight", (c.hidden_size,)
    if not c.tie_word_embeddings:
        yield "lm_head.weight", (c.vocab_size, c.hidden_size)


def configs():
    shape = dict(vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=3, num_attention_heads=4,
                 num_key_value_heads=2, intermediate_size=112, max_position_embeddings=512, bos_token_id=1,
                 eos_token_id=2, pad_token_id=0, dtype="float32")
    yarn = dict(rope_type="yarn", rope_theta=1e6, factor=8.0, original_max_position_embeddings=64)
    llama3 = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=64)
    default = dict(rope_type="default", rope_theta=1e6)
    yield "qwen2", transformers.Qwen2Config(**shape, rope_parameters=default)
    yield "qwen2_yarn", transformers.Qwen2Config(**{**shape, "max_position_embeddings": 64}, rope_parameters=yarn,
                                                 tie_word_embeddings=True)
    yield "qwen3", transformers.Qwen3Config(**shape, head_dim=24, rope_parameters=default, tie_word_embeddings=True)
    yield "qwen3_moe", transformers.Qwen3MoeConfig(
        **shape, head_dim=32, rope_parameters=default, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=48,
        norm_topk_prob=True, mlp_only_layers=[1], decoder_sparse_step=1)
    yield "llama", transformers.LlamaConfig(**shape, rope_parameters=llama3, rms_norm_eps=1e-5)
    yield "llama_all_heads", transformers.LlamaConfig(
        **{**shape, "num_key_value_heads": 4}, rope_parameters=dict(rope_type="default", rope_theta=1e4))


def main():
    results = {}
    for name, config in configs():
        weights = {tensor: hashed(tensor, size) for tensor, size in tensors(config)}
        with tempfile.TemporaryDirectory() as folder:
            save_file(weights, f"{folder}/model.safetensors", metadata={"format": "pt"})
            config.save_pretrained(folder)
            text = json.load(open(f"{folder}/config.json"))
            model, loading = transformers.AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float32, output_loading_info=True)
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            unfit = [key for key in loading[kind] if key != "lm_head.weight"]
            assert not unfit, (name, kind, unfit)
        model.eval()
        prompt = [int((u + 1) / 2 * VOCABULARY) for u in uniforms("prompt " + name, PROMPT_TOKENS)]
        ids = list(prompt)
        with torch.no_grad():
            cache = None
            for _ in range(NEW_TOKENS):
                fresh = ids if cache is None else ids[-1:]
                out = model(torch.tensor([fresh]), past_key_values=cache, use_cache=True)
                cache = out.past_key_values
                ids.append(int(out.logits[0, -1].argmax()))
            logits = model(torch.tensor([ids])).logits[0]
        gaps = torch.topk(logits[PROMPT_TOKENS - 1:-1], 2).values
        print(f"{name}: {len(set(ids))} tokens, least gap {float((gaps[:, 0] - gaps[:, 1]).min()):.1e}, "
              f"largest {float(logits.abs().max()):.1f}", file=sys.stderr)
        rows = [PROMPT_TOKENS - 1, 140, len(ids) - 1]
        results[name] = {"config": text, "prompt": prompt, "greedy": ids[PROMPT_TOKENS:],
                         "logits": {str(row): [float(f"{v:.8g}") for v in logits[row].tolist()] for row in rows}}
    lines = ",\n".join(f'"{name}": {{\n' + ",\n".join(f'  "{k}": {json.dumps(v)}' for k, v in result.items()) + "}"
                       for name, result in results.items())
    print("{\n" + lines + "\n}")


main()
