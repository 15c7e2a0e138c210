"""What the steps of `kevin train --online` take on a published shape with random weights: making turns, training, new weights to
the sampler.

    python online_step.py PATH-OF-KEVIN --shape 1.5B [--steps 3] [--samples 8] [--max-tokens 1024] [OPTIONS OF kevin train ...]
    python online_step.py PATH-OF-KEVIN --shape 7B --lora 32
    python online_step.py PATH-OF-KEVIN --shape 7B --ranks 2 --shard          over two GPUs, started by torchrun

Needs torch and transformers. The model's folder is written below --folder (default: a temporary one) and deleted. Random weights
answer with some hundred to some thousand random tokens. The tokenizer makes one token in 200 a whole kernel for an elementwise
problem, so that some answers are correct, and a step judges and learns. Prints one row of a Markdown table a step."""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENIZER = os.path.join(HERE, "..", "policies", "local", "goldens", "tokenizers", "qwen", "tokenizer.json")
TEMPLATE = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
FUNCTIONS = {"level1/19": "v > 0 ? v : 0", "level1/20": "v > 0 ? v : 0.01f * v", "level1/21": "1 / (1 + expf(-v))", "level1/22": "tanhf(v)"}
KERNEL_EACH, ANSWER_TOKENS = 200, 400  # the tokens that `end_after` aims at
KERNELS = {"cuda": """__global__ void apply(const float* x, float* out) {
  const long i = blockIdx.x * BLOCKL + threadIdx.x;
  const float v = x[i];
  out[i] = EXPRESSION;
}
void launch(const float* x, float* out) { apply<<<B * N / BLOCK, BLOCK>>>(x, out); }""",
           "cpp": """#include <cmath>
extern "C" void launch(const float* x, float* out) {  // BLOCK
  for (long i = 0; i < B * N; ++i) {
    const float v = x[i];
    out[i] = EXPRESSION;
  }
}"""}
# Qwen2.5's: hidden, layers, heads, heads of keys, width of the MLP, vocabulary, tied embeddings.
SHAPES = {"25M": (384, 6, 6, 2, 1536, 24000, True), "0.5B": (896, 24, 14, 2, 4864, 151936, True),
          "1.5B": (1536, 28, 12, 2, 8960, 151936, True), "7B": (3584, 28, 28, 4, 18944, 152064, False)}


def word(number, kind):
    """The text of a token that the small tokenizer lacks, in the letters of its vocabulary."""
    if number % KERNEL_EACH:
        return f"~k{number}"
    number //= KERNEL_EACH
    kernel = KERNELS[kind].replace("BLOCK", str(32 << number // len(FUNCTIONS) % 5))
    kernel = kernel.replace("EXPRESSION", list(FUNCTIONS.values())[number % len(FUNCTIONS)])
    return f"\n```{kind}\n// {number}\n{kernel}\n```\n".replace(" ", "\u0120").replace("\n", "\u010a")


def write_tokenizer(folder, vocabulary, kind):
    """A small tokenizer whose vocabulary is filled up: a random model answers with any token."""
    with open(TOKENIZER) as file:
        tokenizer = json.load(file)
    words = tokenizer["model"]["vocab"]
    first = 1 + max(max(words.values()), *(token["id"] for token in tokenizer["added_tokens"]))
    words.update({word(i, kind): i for i in range(first, vocabulary)})
    with open(os.path.join(folder, "tokenizer.json"), "w") as file:
        json.dump(tokenizer, file)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
        json.dump({"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "chat_template": TEMPLATE}, file)
    return next(token["id"] for token in tokenizer["added_tokens"] if token["content"] == "<|im_end|>")


def end_after(model, end, tokens):
    """The value biases of the last layer give all states one large direction. The end's row of the head lies in it."""
    import torch
    attention = model.model.layers[-1].self_attn
    with torch.no_grad():
        bias = torch.randn_like(attention.v_proj.bias)
        repeated = bias.view(model.config.num_key_value_heads, -1).repeat_interleave(attention.num_key_value_groups, 0).flatten()
        direction = attention.o_proj.weight.float() @ repeated.float()
        scale = 100 / direction.norm()
        attention.v_proj.bias.copy_(bias * scale)
        hidden = model.config.hidden_size
        logit = math.log(model.config.vocab_size / tokens)
        model.lm_head.weight[end] = (direction / direction.norm() * logit / math.sqrt(hidden)).to(model.lm_head.weight.dtype)


def write_model(folder, shape, kind):
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM
    hidden, layers, heads, kv_heads, ffn, vocabulary, tied = SHAPES[shape]
    os.makedirs(folder)
    end = write_tokenizer(folder, vocabulary, kind)
    config = Qwen2Config(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
                         intermediate_size=ffn, vocab_size=vocabulary, tie_word_embeddings=tied, max_position_embeddings=32768,
                         eos_token_id=end, bos_token_id=None)
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = Qwen2ForCausalLM(config)
    end_after(model, end, ANSWER_TOKENS)
    model.save_pretrained(folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kevin")
    parser.add_argument("--shape", default="1.5B", choices=SHAPES)
    parser.add_argument("--folder", help="where the model and the run are written")
    parser.add_argument("--kind", default="cuda", choices=KERNELS)
    parser.add_argument("--steps", default="3")
    parser.add_argument("--problems", default="4")
    parser.add_argument("--samples", default="8")
    parser.add_argument("--turns", default="2")
    parser.add_argument("--max-tokens", default="2048")
    parser.add_argument("--ranks", type=int, default=1)
    known, options = parser.parse_known_args()
    with tempfile.TemporaryDirectory(dir=known.folder) as folder:
        model = os.path.join(folder, "model")
        # A process of its own gives the GPU's memory back.
        if os.fork() == 0:
            write_model(model, known.shape, known.kind)
            sys.stdout.flush()
            os._exit(0)
        if os.wait()[1] != 0:
            return 1
        command = [os.path.abspath(known.kevin), "train", "--online", "--model", model, "--out", os.path.join(folder, "out"), "--db",
                   os.path.join(folder, "kevin.db"), "--suite", ",".join(FUNCTIONS), "--algorithm", "grpo",
                   "--steps", known.steps, "--problems-per-step", known.problems, "--samples", known.samples, "--turns", known.turns,
                   "--max-tokens", known.max_tokens, "--checkpoint-every", "0", "--json", *options]
        print(f"`kevin {' '.join(command[1:])}`\n")
        if known.ranks > 1:
            command = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node", str(known.ranks)] + command
        print("| step | whole, s | turns, s | answering, s | judging, s | training, s | weights to the sampler, s | tokens trained | tokens/s | \\|dlogp\\| |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for line in process.stdout:
            e = json.loads(line)
            if e.get("event") == "step":
                sync = e["sync_s"] or 0
                print(f"| {e['step']} | {e['turns_s'] + e['seconds']:.1f} | {e['turns_s']:.1f} | {e['generate_s'] or 0:.1f} | "
                      f"{e['judge_s'] or 0:.1f} | {e['train_s']:.1f} | {sync:.4f} | {e['tokens']} | {e['tokens_per_s']:.0f} | {e['delta_logprob'] or 0:.2g} |", flush=True)
        return process.wait()


if __name__ == "__main__":
    sys.exit(main())
