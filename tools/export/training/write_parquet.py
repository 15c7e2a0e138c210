"""Lines of JSON to a Parquet file: write_parquet.py SCHEMA LINES.jsonl FILE.parquet

SCHEMA is sft, preference, prompts or trajectory (tools/README.md has their columns). A row group has at most ROWS rows
and about BYTES of text, which bounds the memory needed, of readers too. The file takes its name when it is whole.
Prints {"rows": ..., "groups": ...}.
"""
import json
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq

ROWS, BYTES = 1000, 32 << 20

text, whole, number, real, flag = pa.string(), pa.int32(), pa.int64(), pa.float64(), pa.bool_()
message = pa.struct([("role", text), ("content", text)])
answer = pa.struct([("role", text), ("content", text), ("reasoning_content", text)])
place = [("problem", text), ("run", text), ("episode", text), ("turn", whole), ("policy", text), ("rules", text)]
python = [("backend", text), ("own_share", real)]
credit = [("reward", real), ("reward_se", real), ("return", real), ("advantage", real)]

SCHEMAS = {
    "sft": [("messages", pa.list_(answer)), *place, ("speedup", real), *python, *credit],
    "preference": [
        ("prompt", pa.list_(message)),
        ("chosen", pa.list_(answer)),
        ("rejected", pa.list_(answer)),
        ("chosen_reward", real),
        ("rejected_reward", real),
        ("chosen_from", pa.struct(place)),
        ("rejected_from", pa.struct(place)),
    ],
    "prompts": [
        ("data_source", text),
        ("prompt", pa.list_(message)),
        ("ability", text),
        ("reward_model", pa.struct([("style", text), ("ground_truth", text)])),
        (
            "extra_info",
            pa.struct([(name, number if name == "index" else text)
                       for name in ("index", "problem", "name", "kind", "size", "precision", "device", "rules")]),
        ),
    ],
    "trajectory": [
        ("prompt_ids", pa.list_(whole)),
        ("completion_ids", pa.list_(whole)),
        ("completion_mask", pa.list_(pa.int8())),
        ("logprobs", pa.list_(pa.float32())),
        *place,
        ("turns", whole),
        ("task", text),
        *credit,
        ("outcome", text),
        ("correct", flag),
        ("speedup", real),
        *python,
        ("stop_reason", text),
        *((name, real) for name in ("temperature", "top_p", "min_p")),
        ("top_k", whole),
        *((name, text) for name in ("model", "weights_hash", "tokenizer_hash", "kind", "device", "size")),
    ],
}


def convert(schema, source, target):
    rows = groups = size = 0
    batch = []
    part = target + ".part"
    with open(source, encoding="utf-8") as lines, pq.ParquetWriter(part, schema, compression="zstd") as writer:

        def flush():
            nonlocal batch, size, groups
            if batch:
                writer.write_table(pa.Table.from_pylist(batch, schema=schema), row_group_size=ROWS)
                batch, size, groups = [], 0, groups + 1

        for line in lines:
            batch.append(json.loads(line))
            size, rows = size + len(line), rows + 1
            if len(batch) == ROWS or size >= BYTES:
                flush()
        flush()
    os.replace(part, target)
    return {"rows": rows, "groups": groups}


if __name__ == "__main__":
    print(json.dumps(convert(pa.schema(SCHEMAS[sys.argv[1]]), sys.argv[2], sys.argv[3])))
