"""Describes a user's PyTorch module as the parts of a problem file, for `kevin import`.

    import_module.py             one job a line on standard input, each a JSON object:
                                 {"file": path} or {"function": "module:name", "examples": path}, and "eval": bool,
                                 "folder": for "module:name", "sandbox": whether this process is in one,
                                 "distribution": null or a name, "small": null or {symbol: number}, and "dynamic":
                                 null or a list of {"name": symbol or "input.dimension", "low", "high"}, and "shapes":
                                 null or a list of {"set": name, "symbols": {symbol: number}, "weight": number}

Answers are lines: {"phase": ...} during the work, then either the parts or {"error": reason, "next": next step}. Each
job runs in a process of its own, so that a file cannot change Python or torch for the next one.
"""

import importlib
import importlib.machinery
import importlib.util
import json
import os
import sys

PACKAGE = "kevin_importer"  # the files beside this one, under a name that no user's file has


def part(name):
    if PACKAGE not in sys.modules:
        spec = importlib.machinery.ModuleSpec(PACKAGE, None, is_package=True)
        spec.submodule_search_locations.append(os.path.dirname(os.path.abspath(__file__)))
        sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
    return importlib.import_module(f"{PACKAGE}.{name}")


def answer(job, say):
    refusals = part("refusals")
    refusals.SANDBOXED = bool(job.get("sandbox"))
    try:
        say(part("describe").describe(job, say))
    except refusals.Refusal as refusal:
        say({"error": str(refusal), "next": refusal.next_step})
    except MemoryError:
        say({"error": "it does not fit into this machine's memory", "next": "import it on a larger machine"})
    except Exception as error:
        say({"error": refusals.first_line(error), "next": "check that it runs in Python alone"})


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of the file and of torch is not part of the answers

    def say(message):
        print(json.dumps(message), file=answers, flush=True)

    sys.dont_write_bytecode = True  # not beside an installed script or a user's file
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != here]
    say({"phase": "import torch"})
    try:
        import torch
    except Exception as error:
        say({"error": f"Python cannot import torch: {error}", "machine": True})
        return
    # Imported once for all jobs. Nothing is computed here: threads do not survive the fork.
    for name in ("torch._dynamo", "torch._export.non_strict_utils", "torch.export", "torch.fx.experimental.symbolic_shapes"):
        importlib.import_module(name)
    part("describe")
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            answer(json.loads(line), say)
            answers.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            say({"error": f"Python was killed by signal {os.WTERMSIG(status)}",
                 "next": "check the free memory, and that the file runs in Python alone"})
        elif os.WEXITSTATUS(status) != 0:
            say({"error": "the file ended Python", "next": "remove sys.exit and similar calls"})


if __name__ == "__main__":
    main()
