"""Drop-ins without a kernel: the files that `kevin optimize` would write, in which PyTorch computes the original in place of
the kernel. Tests of import and drop-in use them where they need no compiler."""

import ast
import base64
import json
import os
import re
import subprocess
import sys
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PARTS = os.path.join(ROOT, "tools", "export", "package")
# In place of operator_part.py's _load(): the operators, computed by the original. `calls` counts them.
KERNEL = '''
def _load():
    library = torch.library.Library(NAMESPACE, "DEF")
    arguments = ", ".join(f"Tensor{f'(a{i}!)' if i in INOUTS else ''} x{i}" for i in range(len(NAMES)))
    count = len(SHAPES[0][1])
    results = "Tensor" if count == 1 else "(" + ", ".join(["Tensor"] * count) + ")"
    calls = []

    def kernel(*tensors):
        for tensor, dtype in zip(tensors, _DTYPES):
            if tensor.dtype != dtype:
                raise RuntimeError(f"{NAMESPACE}: must have the dtype {dtype}")
        if shape_of(*tensors) is None:
            raise RuntimeError(f"{NAMESPACE}: made for other shapes")
        calls.append(1)
        with torch.no_grad():
            found = reference(*tensors)
        found = found if isinstance(found, (tuple, list)) else [] if found is None else [found]
        kept = [t.data_ptr() for t in tensors]
        found = [t.clone() if t.data_ptr() in kept else t.contiguous() for t in found][:count]
        return found[0] if count == 1 else tuple(found) if found else None

    for name in ("run", "forward"):
        library.define(f"{name}({arguments}) -> {results}")
        library.impl(name, kernel, "CPU")
    return [library, calls]
'''


def described(jobs):
    """The answers of env/import to jobs (import_module.py), each without its phases."""
    script = os.path.join(ROOT, "env", "import", "import_module.py")
    lines = "".join(json.dumps({"eval": True, **job}) + "\n" for job in jobs)
    done = subprocess.run([sys.executable, script], input=lines, capture_output=True, text=True, check=True)
    def refused(word):
        raise ValueError(f"not JSON: {word}")
    answers = [json.loads(line, parse_constant=refused) for line in done.stdout.splitlines()]
    answers = [a for a in answers if "phase" not in a]
    assert len(answers) == len(jobs), (done.stdout, done.stderr)
    return answers


def extents(shape, sizes):
    return tuple(int(eval(str(d).replace("/", "//"), {"__builtins__": {}}, dict(sizes))) for d in shape)


def write(answer, out, space):
    """Writes OUT.py and its folder from an answer of the import."""
    folder = os.path.basename(out).removesuffix(".py") + "_kernel"
    place = os.path.join(os.path.dirname(out), folder)
    os.makedirs(place, exist_ok=True)
    inputs, sizes = answer["inputs"], answer["sizes"]["full"]
    inouts = [i for i, one in enumerate(inputs) if one["role"] == "inout"]
    outputs = answer["outputs"][:len(answer["outputs"]) - len(inouts)]
    dynamic = [shape["symbols"] for shape in answer.get("shapes", []) if shape["set"] == "dynamic"]
    shapes = [(tuple(extents(i["shape"], at) for i in inputs), tuple(extents(o["shape"], at) for o in outputs))
              for at in dynamic or [sizes]]
    drawn = []
    for one in inputs:
        values = None
        if "values" in one:
            values = f"stored_{one['name']}.bin"
            with open(os.path.join(place, values), "wb") as file:
                file.write(zlib.decompress(base64.b64decode(one["values"])))
        drawn.append((one["distribution"], [one.get("scale", 1.0)] * len(shapes), one.get("offset", 0.0), "none", values))
    first = next((i for i, one in enumerate(inputs) if one["role"] == "param"), len(inputs))
    module = answer["module"]
    assert module is not None, answer["notes"]
    origin = json.dumps({**module["details"], "class": module["class"], "import": module["import"]})
    values = {"NAMESPACE": space, "DEVICE": "cpu", "FOLDER": folder, "INFERENCE_ONLY": bool(inouts),
              "NAMES": [i["name"] for i in inputs], "DTYPES": [i["dtype"] for i in inputs] + [o["dtype"] for o in outputs],
              "INOUTS": inouts, "FIRST_PARAMETER": first, "PARAMETERS_IN_DICT": len(inputs) - first > 16,
              "BLOCK_OFFSETS": None, "SHAPES": shapes, "DRAWN": drawn, "REFERENCE": answer["reference"], "ORIGIN": origin}
    text = "".join(f"{name} = {value!r}\n" for name, value in values.items())
    parts = [open(os.path.join(PARTS, name), encoding="utf-8").read() for name in part_names()]
    operator = parts[0]
    begin, end = operator.index("\ndef _load():"), operator.index("\n\nif not _IS_REGISTERED:")
    parts[0] = operator[:begin] + KERNEL + "\n" + operator[end:]
    with open(out, "w", encoding="utf-8") as file:
        file.write(text + "".join(parts))
    if not module["import"]:
        with open(os.path.join(place, "original.py"), "w", encoding="utf-8") as file:
            file.write(answer["source"] + "\n")
    ast.parse(text)


def part_names():
    """The parts of an exported file of a module, in order, as tools/export/torch_package.cc puts them together."""
    with open(os.path.join(ROOT, "tools", "export", "torch_package.cc"), encoding="utf-8") as file:
        text = file.read()
    return re.findall(r'Part\("(\w+_part\.py)"\)', text[text.index("std::string PythonFile"):text.index("fs::path PackageParts")])
