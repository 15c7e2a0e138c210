#!/ usr / bin / env python3
"""KernelBench's own verdict on a candidate, by its method as of its commit 423217d and in words of our own.

    kernelbench_judge.py   reads one JSON object from standard input, writes one JSON object a line: {"phase": ...}, then the
                           verdict, or {"error": ..., "machine": true} where this Python cannot do it

The method: Model and ModelNew are constructed each after seed 42. Five trials, whose seeds are the first five numbers drawn
after seed 42, make inputs with get_inputs() and compare shapes and torch.allclose with one tolerance for absolute and relative
differences (1e-4 in fp32, 1e-2 in fp16 and bf16). Then 3 calls to warm up and 100 timed ones of each side, one side after the
other with the same inputs;
the speed - up is the ratio of the means.More than 10 is flagged and still correct.On a GPU CUDA events
                before and after a call on the current stream tell its time,
    after 256 MB were written, which leave nothing of the inputs in the L2 cache;
the first timed call is dropped.

    What differs
    here(`differs` in the verdict)
    : a CPU has no CUDA events,
so the host's clock is read around each call there, and no cache is flushed.The reference is Kevin
    's Python form of the problem unless KernelBench' s own file is given; its random numbers
are then uniform in [0, 1) as in KernelBench's files, and its weights are those of the candidate by name, because only
KernelBench's own class draws them in the same order.

Choices of Triton's autotuner are not pinned here (autotune.py): KernelBench lets it measure in the first trial, in the one process
of the verdict, and a choice from elsewhere would make the verdict that of another kernel.

The candidate runs in this process, as in KernelBench: it could forge the verdict. Kevin's own verdict never depends on it.
"""

import json
import os
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
SEED, TRIALS, WARM_UPS, TIMINGS, EXCESSIVE = 42, 5, 3, 100, 10
FLUSHED_BYTES = 256 << 20
TOLERANCES = {"fp32": 1e-4, "fp16": 1e-2, "bf16": 1e-2}
MOST_TEXT = 600


class Failed(Exception):
    """A reason of an incorrect candidate."""


def first_line(error):
    return f"{type(error).__name__}: {error}"[:MOST_TEXT]


def load(path, name):
    import importlib.util
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Judge:
    def __init__(self, job, out):
        import torch
        self.torch, self.job, self.out = torch, job, out
        for path in ("reference", "bundle", "folder"):
            job[path] = os.path.abspath(job[path])
        self.device = torch.device(job["device"])
        self.on_gpu = self.device.type == "cuda"
        if self.on_gpu:
            torch.cuda.set_device(self.device)
        self.dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[job["precision"]]
        self.verdict = {
  "compiled" : True,
               "correct" : False,
                           "reason" : "",
                                      "trials" : TRIALS,
                                                 "trials_passed" : 0,
                                                 "max_difference" : None,
                                                                    "tolerance"
      : TOLERANCES[job["precision"]],
        "candidate_ms" : None,
                         "reference_ms" : None,
                                          "speedup" : None,
                                                      "timed_calls" : 0,
                                                      "excessive_speedup" : False,
                                                                            "input_shapes" : [],
                                                                                             "differs"
      : [] if self.on_gpu else["host clock around each call in place of CUDA events", "no cache is flushed"]}

    def phase(self, phase):
        print(json.dumps({"phase": phase}), file=self.out, flush=True)

    def wait(self):
        if self.on_gpu:
            self.torch.cuda.synchronize(self.device)

    def inputs(self):
        """KernelBench's files draw with rand; Kevin's Python form may name another distribution."""
        torch, normal = self.torch, self.torch.randn
        if not self.job["own_file"]:
            torch.randn = torch.rand
        try:
            given = self.reference.get_inputs()
        finally:
            torch.randn = normal
        cast = self.job["own_file"]  # every tensor, of integers too, as KernelBench does; else those that are not integers
        return [self.placed(x, cast) for x in given]

    def placed(self, x, cast):
        if not isinstance(x, self.torch.Tensor):
            return x
        return x.to(self.device, self.dtype) if cast or x.is_floating_point() else x.to(self.device)

    def construct(self):
        torch = self.torch
        torch.manual_seed(SEED)
        init = [self.placed(x, self.job["own_file"]) for x in self.reference.get_init_inputs()]
        torch.manual_seed(SEED)
        self.model = self.reference.Model(*init).to(self.device, self.dtype)
        torch.manual_seed(SEED)
        try:
            self.new = self.candidate.ModelNew(*init).to(self.device, self.dtype)
            self.wait()
        except Exception as error:
            raise Failed("ModelNew cannot be constructed: " + first_line(error)) from error
        if not self.job["own_file"]:
            self.share_weights()

    def share_weights(self):
        wanted, given = self.model.state_dict(), self.new.state_dict()
        missing = [name for name in wanted if name not in given or given[name].shape != wanted[name].shape]
        self.verdict["differs"] += ["the reference is Kevin's Python form of the problem", "inputs are uniform in [0, 1)"]
        if missing:
            self.verdict["differs"].append("the candidate has no weight " + ", ".join(missing[:4]) +
                                           ": its weights are not the reference's, which KernelBench's own file would tell")
        elif wanted:
            self.verdict["differs"].append("weights are the candidate's, by name")
        self.model.load_state_dict({
name: given[name] for name in wanted if name not in missing}, strict=False)

    def check(self):
        torch, tolerance = self.torch, self.verdict["tolerance"]
        torch.manual_seed(SEED)
        seeds = [torch.randint(0, 2**32 - 1, (1,)).item() for _ in range(TRIALS)]
        worst = 0.0
        for seed in seeds:
            torch.manual_seed(seed)
            inputs = self.inputs()
            self.verdict["input_shapes"] = [list(x.shape) for x in inputs if isinstance(x, torch.Tensor)]
            torch.manual_seed(seed)
            expected = self.model(*inputs)
            self.wait()
            try:
                given = self.new(*inputs)
                self.wait()
                if given.shape != expected.shape:
                    raise Failed(f"shape {tuple(given.shape)}, expected {tuple(expected.shape)}")
                is_close = torch.allclose(expected, given, atol=tolerance, rtol=tolerance)
                difference = (expected.double() - given.double()).abs().max().item() if expected.numel() else 0.0
                if worst == worst:  # once it is NaN it stays so
                    worst = max(worst, difference) if difference == difference else difference
            except Failed:
                raise
            except Exception as error:
                raise Failed("it raises: " + first_line(error)) from error
            self.verdict["max_difference"] = worst if worst == worst and worst < float("inf") else None
            self.verdict["trials_passed"] += is_close
        if self.verdict["trials_passed"] < TRIALS:
            most = f"the most by {worst:.3g}" if worst == worst else "in places one side is NaN or both are infinite"
            raise Failed(f"{TRIALS - self.verdict['trials_passed']} of {TRIALS} trials differ by more than {tolerance:g}, "
                         f"{most}")

    def time(self, model, inputs):
        for _ in range(WARM_UPS):
            model(*inputs)
            self.wait()
        if self.on_gpu:
            self.torch.cuda.empty_cache()
        dropped, once = (1, self.time_on_gpu) if self.on_gpu else (0, self.time_on_cpu)
        times, until = [], time.perf_counter() + self.job["timing_limit_s"]
        while len(times) < TIMINGS + dropped and (len(times) < 3 + dropped or time.perf_counter() < until):
            times.append(once(model, inputs))
        del times[:dropped]
        return sum(times) / len(times), len(times)

    def time_on_cpu(self, model, inputs):
        start = time.perf_counter()
        model(*inputs)
        return 1000 * (time.perf_counter() - start)

    def time_on_gpu(self, model, inputs):
        torch = self.torch
        self.wait()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.empty(FLUSHED_BYTES // 8, dtype=torch.int64, device=self.device).fill_(1)
        start.record()
        model(*inputs)
        end.record()
        self.wait()
        return start.elapsed_time(end)

    def measure(self):
        self.torch.manual_seed(SEED)
        inputs = self.inputs()
        candidate_ms, count = self.time(self.new, inputs)
        with self.torch.no_grad():  # of the reference only
            reference_ms, _ = self.time(self.model, inputs)
        speedup = reference_ms / candidate_ms
        self.verdict.update(candidate_ms=candidate_ms, reference_ms=reference_ms, timed_calls=count, speedup=speedup,
                            excessive_speedup=speedup > EXCESSIVE)
        if count < TIMINGS:
            self.verdict["differs"].append(f"{count} timed calls in place of {TIMINGS}")

    def run(self):
        import caller
        import extensions
        self.phase("load")
        self.reference = load(self.job["reference"], "reference")
        with open(self.job["bundle"], "rb") as file:
            described = caller.unpack(file.read(), self.job["folder"])
        extensions.use_compiled(self.job["folder"], described.get("extensions", {}))
        try:
            self.candidate = load(os.path.join(self.job["folder"], "candidate.py"), "candidate")
        except Exception as error:
            self.verdict["compiled"] = False
            raise Failed(first_line(error)) from error
        with self.torch.no_grad():
            self.construct()
            self.phase("check")
            self.check()
        self.verdict["correct"] = True
        self.phase("time")
        self.measure()


def main():
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a candidate prints is not the verdict
    job = json.loads(sys.stdin.readline())
    sys.path.insert(0, HERE)
    try:
        import torch
        import extensions
        torch.set_num_threads(job["threads"])
        extensions.prepare(job["library"])
        judge = Judge(job, out)
    except BaseException as error:
        print(json.dumps({"error": first_line(error), "machine": True}), file=out, flush=True)
        return
    try:
        judge.run()
    except Failed as error:
        judge.verdict["reason"] = str(error)
    except BaseException as error:
        traceback.print_exc()
        judge.verdict.update(correct=False, reason=first_line(error))
    print(json.dumps(judge.verdict), file=out, flush=True)


if __name__ == "__main__":
    main()
