#!/usr/bin/env python3
"""Makes nf4.json: what bitsandbytes makes of hashed numbers in NF4, plain and with double quantisation.

Usage: python make_nf4.py > nf4.json   (made with bitsandbytes at 95f9af30 on a CPU, torch 2.11.0)

20 x 970 numbers: 304 blocks of 64, the last one short, in two groups of scales. The numbers are cubes, for a
wide spread, with a block of zeros and numbers on the borders between levels.
"""
import json
import sys

import numpy
import torch
from bitsandbytes.functional import create_dynamic_map, dequantize_4bit, quantize_4bit

from make_models import uniforms

numbers = (uniforms("nf4", 20 * 970) ** 3).astype(numpy.float32)
numbers[64:128] = 0
levels = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
          -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
          0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
levels = numpy.array(levels, dtype=numpy.float32)
numbers[128:143] = (levels[1:] + levels[:-1]) / 2
numbers[143] = 1


def hexadecimal(tensor):
    return tensor.reshape(-1).numpy().tobytes().hex()


def numbers_of(tensor):
    return [float(f"{value:.9g}") for value in tensor.reshape(-1).tolist()]


matrix = torch.from_numpy(numbers.reshape(20, 970))
codes, state = quantize_4bit(matrix, blocksize=64, quant_type="nf4", compress_statistics=False)
nested_codes, nested = quantize_4bit(matrix, blocksize=64, quant_type="nf4", compress_statistics=True)
assert torch.equal(codes, nested_codes)
json.dump({"codes": hexadecimal(codes), "scales": numbers_of(state.absmax), "scale_codes": hexadecimal(nested.absmax),
           "group_scales": numbers_of(nested.state2.absmax), "scale_offset": float(nested.offset),
           "sum": float(dequantize_4bit(codes, state).double().abs().sum()),
           "double_sum": float(dequantize_4bit(nested_codes, nested).double().abs().sum()),
           "dynamic_map": numbers_of(create_dynamic_map())}, sys.stdout)
print()
