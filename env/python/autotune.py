"""What Triton's autotuner chooses among configurations that a text computes. (A list that stands in the text is a knob, and
the text that is judged has one entry left: env/knobs/config_lists.h.)

On a GPU the first process of a candidate lets the autotuner measure. Its choices are recorded, and pinned in every later
process: a single one stays alone in the list, several stand in the autotuner's cache under their keys. So all processes run
the same kernels, and none measures within a timed call. In Triton's interpreter times say nothing: the first configuration
that pruning leaves is taken. Each choice is a line of the worker's log.
"""

import ast
import functools
import hashlib
import os

MOST = 200  # choices
MOST_CHARACTERS = 400  # of one

made = []  # autotuners of this process that have something to choose
pinned = {}  # identity to [(key as text, configuration as text)]


def install():
    """Once, in the process that workers are forked from. Nothing without Triton."""
    try:
        from triton import knobs
        from triton.runtime.autotuner import Autotuner
    except ImportError:
        return
    initialise = Autotuner.__init__

    @functools.wraps(initialise)
    def initialise_pinned(self, *arguments, **options):
        initialise(self, *arguments, **options)
        try:
            use_pinned(self)
        except Exception:  # a list of other things: the autotuner itself tells
            pass

    Autotuner.__init__ = initialise_pinned
    if knobs.runtime.interpret:
        take_first(Autotuner)


def take_first(autotuner):
    prune = autotuner.prune_configs

    def prune_to_first(self, kwargs):
        first = prune(self, kwargs)[0]
        tell(self, first)
        return [first]

    autotuner.prune_configs = prune_to_first
    autotuner._bench = lambda self, *arguments, config, **meta: [0.0, 0.0, 0.0]


def identity(tuner):
    texts = "\n".join(str(config) for config in tuner.configs)
    return f"{tuner.base_fn.__name__} {hashlib.sha256(texts.encode()).hexdigest()}"


def tell(tuner, config, key=None):
    """To the log, which may be full."""
    at = "" if key is None else f" for {key}"
    try:
        os.write(1, f"autotuned {tuner.base_fn.__name__}{at}: {config}\n"[:MOST_CHARACTERS].encode(errors="replace"))
    except OSError:
        pass


def choices():
    """Of this process until now: [{"tuner": identity, "key": text, "config": text}]."""
    found = []
    for tuner in made:
        found += [{"tuner": identity(tuner), "key": repr(key)[:MOST_CHARACTERS], "config": str(config)}
                  for key, config in tuner.cache.items()]
    return found[:MOST]


def pin(recorded):
    """For the autotuners that this process makes from now on. What is recorded may be anything."""
    for choice in recorded[:MOST]:
        pinned.setdefault(choice["tuner"], []).append((str(choice["key"]), str(choice["config"])))


def use_pinned(tuner):
    if len(tuner.configs) < 2:
        return
    if len(made) < MOST:
        made.append(tuner)
    by_text = {str(config): config for config in tuner.configs}
    chosen = [(key, by_text[text]) for key, text in pinned.get(identity(tuner), []) if text in by_text]
    if len({str(config) for _, config in chosen}) == 1:
        tuner.configs = [chosen[0][1]]
        tell(tuner, chosen[0][1])
        return
    for key, config in chosen:
        tuner.cache[ast.literal_eval(key)] = config
        tell(tuner, config, key)
