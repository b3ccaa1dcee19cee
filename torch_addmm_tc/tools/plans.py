"""Tables of measured plans, and the log of problems to measure. `python -m torch_addmm_tc tune` writes a table.

A table is a JSON object: "format", what its plans hold for ("gpu", "version", "candidate_set"), and "plans". Plans map a
problem, written as problem_key returns it, to {"plan", "planner", "microseconds", "spread"}: the name to run, the planner's own
pick, and the median times and spreads of all that was timed, by name.
"""

import functools
import hashlib
import importlib.metadata
import json
import os
import warnings
from pathlib import Path

import torch

from torch_addmm_tc import _C

FORMAT = "torch_addmm_tc plans 1"
TUNE = "run `python -m torch_addmm_tc tune`"
PLANS_VARIABLE, LOG_VARIABLE = "TORCH_ADDMM_TC_PLANS", "TORCH_ADDMM_TC_LOG"

_loaded = None  # the path whose plans the process runs


@functools.cache
def candidate_set() -> str:
    """Return a digest of the kernels and configurations that names stand for."""
    facts = [
        [kernel[x] for x in ("name", "maths", "split_k", "clusters", "narrower")]
        + [{k: v for k, v in config.items() if k != "compiled_for"} for config in kernel["configs"]]
        for kernel in _C.kernels()
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def version() -> str:
    """Return the package's version."""
    try:
        return importlib.metadata.version("torch_addmm_tc")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def new_table(name: str, sm: int, num_sms: int) -> dict:
    """Return a table without plans, for a GPU with this driver's name."""
    gpu = {"name": name, "sm": sm, "num_sms": num_sms}
    return {"format": FORMAT, "gpu": gpu, "version": version(), "candidate_set": candidate_set(), "plans": {}}


def differences(table: dict) -> list[str]:
    """Return what makes a table another build's, a phrase each."""
    own = {"version": version(), "candidate_set": candidate_set()}
    return [f"{name} {table[name]} where this build has {x}" for name, x in own.items() if table[name] != x]


def read_table(path) -> dict:
    """Return the table in a file.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it holds no table.
    """

    def fail(what):
        raise ValueError(f"{path} holds no table of plans: {what}. To write one, {TUNE}.")

    try:
        table = json.loads(Path(path).read_text())
    except ValueError as error:
        fail(f"it is not JSON ({error})")
    found = table.get("format") if isinstance(table, dict) else type(table).__name__
    if found != FORMAT:
        fail(f"'format' must be {FORMAT!r}, but got {found!r}")
    for name, example in new_table("", 0, 0).items():
        if type(table.get(name)) is not type(example):
            fail(f"{name!r} must be a {type(example).__name__}, but got {table.get(name)!r}")
    if {k: type(v) for k, v in table["gpu"].items()} != {"name": str, "sm": int, "num_sms": int}:
        fail(f"'gpu' must have a name, sm and num_sms, but got {table['gpu']!r}")
    for problem, entry in table["plans"].items():
        if not isinstance(entry, dict) or not isinstance(entry.get("plan"), str):
            fail(f"the entry of '{problem}' must have a 'plan', but got {entry!r}")
    return table


def _gpus() -> list[dict]:
    """Return each visible GPU as tables write it."""
    gpus = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    return [{"name": x.name, "sm": 10 * x.major + x.minor, "num_sms": x.multi_processor_count} for x in gpus]


def _ignored(path, why):
    warnings.warn(f"{path} is ignored, because it has {why}. To measure plans for this process, {TUNE}.", stacklevel=3)


def load_plans(path):
    """Run a table's plans for exactly the table's problems, in place of the planner's, and of the table that was loaded before.

    Plans of another GPU, version or set of candidates are ignored with a warning. The function does not initialise CUDA: the
    warning about the GPU comes when CUDA is initialised. The environment variable TORCH_ADDMM_TC_PLANS names a table to load
    at import.

    Args:
        path: a table that `python -m torch_addmm_tc tune` wrote.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it holds no table, or a problem or a name that does not exist. Nothing is loaded then.
    """
    global _loaded
    table = read_table(path)
    if why := differences(table):
        _ignored(path, " and ".join(why))
        return
    gpu = table["gpu"]
    try:
        _C.load_plans(gpu["name"], gpu["sm"], gpu["num_sms"], {x: entry["plan"] for x, entry in table["plans"].items()})
    except ValueError as error:
        raise ValueError(f"{path}: {error}. To write another table, {TUNE}.") from None
    _loaded = path

    def check_gpu():
        if _loaded == path and gpu not in (present := _gpus()):
            _ignored(path, f"plans of {gpu} where this process has {present}")

    torch.cuda._lazy_call(check_gpu)  # runs once CUDA is initialised; initialising it here would break later forks


def unload_plans():
    """Return to the planner's own plans."""
    global _loaded
    _loaded = None
    _C.unload_plans()


def log_problems(path=None):
    """Append every problem that the op plans on a GPU from now on to a file, a line each, once.

    The file is written where a thread plans a problem. Calls whose plan is in the thread's cache write nothing. The environment
    variable TORCH_ADDMM_TC_LOG names a file to log to from the import on.

    Args:
        path: the file, which may hold problems already. None ends the log.

    Raises:
        OSError: if the file cannot be written.
    """
    if path is not None:
        with open(path, "a"):
            pass
    _C.log_problems("" if path is None else os.path.abspath(path))


def read_log(path) -> list[str]:
    """Return a log's problems, each once.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if a line is no problem.
    """
    problems = list(dict.fromkeys(Path(path).read_text().splitlines()))
    try:
        for problem in problems:
            _C.describe_problem(problem)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return problems


def follow_environment():
    """Load the table and start the log that environment variables name."""
    if path := os.environ.get(PLANS_VARIABLE):
        load_plans(path)
    if path := os.environ.get(LOG_VARIABLE):
        log_problems(path)
