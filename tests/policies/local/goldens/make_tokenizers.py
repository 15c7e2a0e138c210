"""Small tokenizers of the families' kinds, and what the `tokenizers` library makes of corpus.txt with them.

Run with a Python that has `tokenizers` (made with 0.23.3); writes encodings.json, and tokenizers/*/tokenizer.json where it is
missing: the texts it is trained on change.
"""

import json
import os
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "../../../..")
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = CONTRACTIONS + r"\p{N}" + REST
LLAMA = CONTRACTIONS + r"\p{N}{1,3}" + REST


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(pattern, behavior, invert)


def byte_level(**options):
    return pre_tokenizers.ByteLevel(**{"add_prefix_space": False, "use_regex": False, **options})


def train(size, nfc, steps, **options):
    tokenizer = Tokenizer(models.BPE(**options))
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    files = [os.path.join(ROOT, name) for name in ("README.md", "env/verdict/verify.h", "env/verdict/estimate.h", "env/environment.h")]
    tokenizer.train(files + [os.path.join(HERE, "corpus.txt")], trainer)
    return tokenizer


def special(*texts, **flags):
    return [AddedToken(text, special=True, normalized=False, **flags) for text in texts]


def qwen():
    tokenizer = train(1500, True, [split(Regex(QWEN)), byte_level()])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in ("<tool_call>", "</tool_call>", "<think>", "</think>")])
    return tokenizer


def llama():
    tokenizer = train(1500, False, [split(Regex(LLAMA)), byte_level()], ignore_merges=True)
    names = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
    tokenizer.add_special_tokens(special(*names))
    bos = ("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"))
    template = processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1", special_tokens=[bos])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def odd():
    """What the format allows and the families do not use."""
    steps = [split("-", "merged_with_previous"), split(Regex(r"\d+"), "contiguous"), split("_", "merged_with_next"),
             split(Regex("[A-Z]"), "isolated"), split(Regex("[#~]+"), "removed"), split(Regex("[^()]+"), "isolated", True),
             split(Regex(r"(?=\+)"), "isolated"), byte_level(add_prefix_space=True, use_regex=True)]
    tokenizer = train(700, True, steps)
    tokenizer.add_special_tokens(special("<end>", rstrip=True) + special("<pad>", lstrip=True, rstrip=True) +
                                 special("<|im", "<|im_start|>", "<|im_sep|>"))
    tokenizer.add_tokens([AddedToken("word", single_word=True, normalized=False), AddedToken("Grün", normalized=True),
                          AddedToken("do", single_word=True, lstrip=True, normalized=True)])
    return tokenizer


def stored(name, make, merges_as_texts=False):
    path = os.path.join(HERE, "tokenizers", name, "tokenizer.json")
    if not os.path.exists(path):
        written = json.loads(make().to_str())
        if merges_as_texts:  # as before version 0.20 of the library
            written["model"]["merges"] = [" ".join(pair) for pair in written["model"]["merges"]]
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(written, file, ensure_ascii=False, separators=(",", ":"))
            file.write("\n")
    return Tokenizer.from_file(path)


def texts():
    with open(os.path.join(HERE, "corpus.txt"), encoding="utf-8") as file:
        whole = file.read()
    lines = whole.split("\n")
    rng = random.Random(7)
    yield ""
    yield from lines
    yield "\r\n".join(lines[29:36]) + "\n\n\n   \n\t\n"
    yield whole[-2000:]
    yield "e\u0301 E\u0301x a\u0323\u0308 a\u0308\u0323 A\u030a \u212b \u1100\u1161\u11a8 \u2126 \u212a \ufb01 Gru\u0308n do Gru\u0308ne \u0340 \u0958"
    yield "a b\u00a0\u00a0c\u2003d\u180ee\u200bf\u3000\u3000g\u0085h\u2028i\u2029\u000b\u000cj \ufeffk\x1c\x1d l\x7f\x00 m\u180e\u180e! 1\u180e2 \u180e\u180e \u180e."
    yield "a" * 300 + " " * 50 + "\n" * 20 + "=" * 100
    yield "".join(chr(code) for code in range(1, 0x250))
    pieces = [line[at:at + rng.randint(1, 12)] for line in lines for at in range(0, len(line), 40)]
    for _ in range(60):
        yield "".join(rng.choice(pieces) for _ in range(rng.randint(1, 6)))


def main():
    rng = random.Random(11)
    result = {}
    for name, make in (("qwen", qwen), ("llama", llama), ("odd", odd)):
        tokenizer = stored(name, make, merges_as_texts=name == "odd")
        encodings = []
        for text in texts():
            case = {"text": text}
            for key, plain in (("ids", False), ("plain_ids", True)):
                tokenizer.encode_special_tokens = plain
                case[key] = tokenizer.encode(text, add_special_tokens=False).ids
            if case["plain_ids"] == case["ids"]:
                del case["plain_ids"]
            encodings.append(case)
        tokenizer.encode_special_tokens = False
        decodings = []
        for _ in range(40):  # random ids are often broken UTF-8, and some do not exist
            ids = [rng.randrange(tokenizer.get_vocab_size() + 2) for _ in range(rng.randint(0, 15))]
            decodings.append({"ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=False),
                              "visible": tokenizer.decode(ids, skip_special_tokens=True)})
        result[name] = {"size": tokenizer.get_vocab_size(), "around": tokenizer.encode("").ids,
                        "encodings": encodings, "decodings": decodings}
    with open(os.path.join(HERE, "encodings.json"), "w", encoding="utf-8") as file:
        json.dump(result, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")


main()
