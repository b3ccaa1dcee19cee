"""Fits constants of the cost model to the times in files of bench.candidates. It needs no GPU.

    python -m bench.refit FILE [FILE ...] --constants NAME,NAME [--rounds N]

The command builds the package once more in build/refit/, for the CPU, with the constants of csrc/gemm/cost_*.cpp as variables.
In each round it makes one constant after the other larger or smaller by a step and keeps what lowers the loss. A step that
lowers it grows, and one that does not shrinks.

A problem's loss tells how badly the predictions rank its candidates: the Kullback-Leibler divergence of the weights that
times give them from the weights that predictions give them. A weight falls to 1 / e where a candidate takes 3 % longer, so that
slow candidates hardly count. A tenth of the mean error of the predictions near the shortest is added.

The command fits to every second problem and prints how the picks fare at those and at the others, exchanges the halves, and
then fits to all. A gain at the fitted half alone is a fit to noise, and so is a constant that the halves move apart.
"""

import argparse
import ctypes
import itertools
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from bench.report import SLOWER, geometric_mean

ROOT = Path(__file__).parent.parent
COPY = ROOT / "build" / "refit"
DECLARATION = re.compile(r"^constexpr double (k\w+ = [-\d.e]+(?:, k\w+ = [-\d.e]+)*);", re.MULTILINE)
VARIABLE_H = """#pragma once
#include <map>
#include <string>
inline std::map<std::string, double*>& variables() {
  static std::map<std::string, double*> all;
  return all;
}
inline double variable(const char* name, double& x, double value) {
  variables()[name] = &x;
  return value;
}
extern "C" __attribute__((used, visibility("default"))) inline bool set_constant(const char* name, double value) {
  const auto found = variables().find(name);
  if (found == variables().end()) return false;
  *found->second = value;
  return true;
}
"""

NEAR = 0.03  # the difference of two times' logarithms at which the longer weighs 1 / e of the shorter
FAR = 0.3  # the most of an error that counts, and how near predictions are to the shortest whose errors count
ERROR_WEIGHT = 0.1
FIRST_STEP = 0.2  # of a constant's value


def declarations(source: str) -> dict[str, float]:
    """Return {name: value} of a C++ source's constants."""
    return {name: float(x) for line in DECLARATION.findall(source) for name, x in re.findall(r"(k\w+) = ([-\d.e]+)", line)}


def as_variables(source: str) -> str:
    """Return a C++ source with its constants as variables."""

    def declaration(line):
        return " ".join(f'double {x} = variable("{x}", {x}, {value});' for x, value in declarations(line[0]).items())

    return '#include "variable.h"\n' + DECLARATION.sub(declaration, source)


def write(path: Path, text: str):
    """Write a file unless it has that text already: the build leaves older files alone."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def build_copy() -> dict[str, float]:
    """Build the package in COPY with its constants as variables, and return {name: value} of them."""
    constants = {}
    for name in ("csrc", "torch_addmm_tc"):
        shutil.copytree(
            ROOT / name, COPY / name, ignore=shutil.ignore_patterns("*.so", "__pycache__", "cost_*.cpp"), dirs_exist_ok=True
        )
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, COPY / name)
    write(COPY / "csrc/gemm/variable.h", VARIABLE_H)
    for path in sorted((ROOT / "csrc/gemm").glob("cost_*.cpp")):
        found = declarations(path.read_text())
        if twice := constants.keys() & found.keys():
            raise SystemExit(
                f"two files declare {', '.join(sorted(twice))}; rename one, so that a name stands for one constant"
            )
        constants |= found
        write(COPY / "csrc/gemm" / path.name, as_variables(path.read_text()))
    without_gpu = os.environ | {"CUDA_VISIBLE_DEVICES": "", "TORCH_CUDA_ARCH_LIST": ""}
    subprocess.run([sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"], cwd=COPY, env=without_gpu, check=True)
    return constants


def log_weights(times) -> list[float]:
    """Return the logarithms of the weights, whose sum is 1, that times give their candidates."""
    relative = [-math.log(x / min(times)) / NEAR for x in times]
    total = math.log(sum(map(math.exp, relative)))
    return [x - total for x in relative]


class CostModel:
    """The cost model with constants that can be set. It imports the package from COPY, so no other may be imported before.

    Args:
        constants: what build_copy() returned.
    """

    def __init__(self, constants: dict[str, float]):
        sys.path.insert(0, str(COPY))
        from torch_addmm_tc import _C
        from torch_addmm_tc.tools.planning import Plan

        assert Path(_C.__file__).is_relative_to(COPY), "another build of the package was imported before"
        self.constants, self._plan, self._library = constants, Plan, ctypes.CDLL(_C.__file__)
        self._library.set_constant.argtypes = (ctypes.c_char_p, ctypes.c_double)
        self._library.set_constant.restype = ctypes.c_bool

    def set(self, name: str, value: float):
        assert self._library.set_constant(name.encode(), value), f"no constant {name}"

    def predictions(self, problem) -> list[float]:
        """Return the predicted times of the candidates of a problem that bench.fit loaded, a Timed."""
        return [self._plan.of(problem.key, problem.gpu, x.exact_name).pick.microseconds for x, _ in problem.candidates]

    def loss(self, problems) -> float:
        """Return the mean loss at some Timed, as the module describes it."""
        total = 0.0
        for problem in problems:
            predicted, times = self.predictions(problem), [time for _, time in problem.candidates]
            divergence = NEAR * sum(math.exp(t) * (t - p) for t, p in zip(log_weights(times), log_weights(predicted)))
            near = [(p, t) for p, t in zip(predicted, times) if math.log(p / min(predicted)) < FAR]
            total += divergence + ERROR_WEIGHT * sum(min(FAR, abs(math.log(t / p))) for p, t in near) / len(near)
        return total / len(problems)

    def fit(self, problems, names: list[str], rounds: int) -> dict[str, float]:
        """Return the values of the constants `names` that lower the loss at `problems`, and leave them set."""
        values, steps = {name: self.constants[name] for name in names}, dict.fromkeys(names, 1 + FIRST_STEP)
        for name, value in values.items():
            self.set(name, value)
        least = self.loss(problems)
        for name in itertools.chain.from_iterable([names] * rounds):
            for value in (values[name] * steps[name], values[name] / steps[name]):
                self.set(name, value)
                if (loss := self.loss(problems)) < least:
                    least, values[name] = loss, value
                    steps[name] **= 1.2
                    break
            else:
                steps[name] **= 0.5
            self.set(name, values[name])
        return values

    def outcome(self, problems) -> str:
        """Write the picks' regret, and how many are slower than SLOWER of torch.addmm's speed."""
        picked = []
        for problem in problems:
            predicted = self.predictions(problem)
            picked.append(problem.candidates[predicted.index(min(predicted))][1])
        regret = geometric_mean(time / problem.fastest[1] for problem, time in zip(problems, picked))
        slow = sum(problem.torch_addmm / time < SLOWER for problem, time in zip(problems, picked))
        return f"{regret:.4f}, {slow} of {len(picked)}"


def main():
    parser = argparse.ArgumentParser(prog="python -m bench.refit", description=__doc__.split("\n")[0])
    parser.add_argument("files", type=Path, nargs="+", help="what bench.candidates wrote")
    parser.add_argument("--constants", required=True, help="names in csrc/gemm/cost_*.cpp, joined by commas")
    parser.add_argument("--rounds", type=int, default=4, help="how often each constant is tried")
    options = parser.parse_args()
    constants, names = build_copy(), options.constants.split(",")
    if unknown := [name for name in names if name not in constants]:
        parser.error(f"csrc/gemm/cost_*.cpp declares no {', '.join(unknown)}; it declares {', '.join(constants)}")
    model = CostModel(constants)
    from bench.fit import load  # imports the package

    problems = [problem for path in options.files for problem in load(path) if len(problem.candidates) > 1]
    if len(problems) < 2:
        raise SystemExit("these files hold no two problems with times of several candidates that this build has")
    halves = {"every second": problems[::2], "the others": problems[1::2], "all": problems}
    lines = [
        f"| fitted to | {' | '.join(f'regret and slower than {SLOWER}x at {half}' for half in halves)} |",
        "|---" * 4 + "|",
    ]
    lines.append(f"| nothing | {' | '.join(map(model.outcome, halves.values()))} |")
    columns = {"now": {name: constants[name] for name in names}}
    for half, chosen in halves.items():
        columns[half] = model.fit(chosen, names, options.rounds)
        lines.append(f"| {half} | {' | '.join(map(model.outcome, halves.values()))} |")
    lines += ["", f"| constant | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    lines += [f"| {name} | {' | '.join(f'{values[name]:.4g}' for values in columns.values())} |" for name in names]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
