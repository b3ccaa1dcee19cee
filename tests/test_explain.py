"""The commands `explain` and `layout`, and the arithmetic of `explain`."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torch_addmm_tc as tc
from torch_addmm_tc.__main__ import main
from torch_addmm_tc.tools import explain
from torch_addmm_tc.tools.banks import LAYOUTS
from torch_addmm_tc.tools.explain import Occupancy, Problem, Waves
from torch_addmm_tc.tools.planning import H200


@pytest.fixture
def command(capsys):
    """Return a function that runs `python -m torch_addmm_tc` in this process and returns (exit code, stdout, stderr)."""

    def call(*arguments):
        try:
            code = main(list(arguments))
        except SystemExit as exit:
            code = exit.code
        return code, *capsys.readouterr()

    return call


def lines(done):
    code, out, err = done
    assert code == 0 and not err, err
    return out.splitlines()


def assert_one_line_error(done, *parts):
    code, out, err = done
    last = err.splitlines()[-1]
    assert code == 2 and not out
    assert "error: " in last and all(part in last for part in parts), err


@pytest.mark.parametrize("arguments, code, text", [
    (("layout",), 0, "mma_swizzle"),
    (("layout", "xor"), 0, "ldmatrix.trans"),
    (("explain", "1024", "2304", "768"), 0, "-> "),
    (("explain", "-1", "3", "3"), 2, "argument M"),
])  # fmt: skip
def test_commands_run_as_processes(arguments, code, text):
    done = subprocess.run([sys.executable, "-m", "torch_addmm_tc", *arguments], capture_output=True, text=True)
    assert done.returncode == code and text in (done.stderr if code else done.stdout) and "Traceback" not in done.stderr


# ---- explain ----

FACTS = ["tiles", "waves", "per SM", "per block", "work", "arithmetic", "memory", "predicted"]


@pytest.mark.parametrize("dtype", ("float16", "bfloat16", "float32"))
@pytest.mark.parametrize("c", ("full", "fp32", "bias", "none"))
def test_explain_shows_the_pick_and_every_fact(command, dtype, c):
    out = lines(command("explain", "1024", "2304", "768", "--dtype", dtype, "--c", c, "--b", "col"))
    assert out[0].startswith(f"1024 x 2304 x 768, {dtype}, A row, B col, C {c}, on ")
    pick = [line for line in out if line.startswith("-> ")]
    assert len(pick) == 1 and "predicted" in pick[0]
    if dtype == "float32":
        assert "wgmma_bf16x6" in pick[0] and any("does not multiply operands of this dtype" in line for line in out)
    else:
        assert any("x the pick's time" in line for line in out)
    assert [line[:12].strip() for line in out[-len(FACTS) :]] == FACTS


@pytest.mark.parametrize("name", ("explain", "layout"))
def test_examples_of_docs_equal_the_commands_output(command, monkeypatch, name):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    section = (Path(__file__).parent.parent / "docs" / "kernels.md").read_text().split(f"$ python -m torch_addmm_tc {name} ")[1]
    arguments, example = section.split("```")[0].split("\n", 1)
    code, out, _ = command(name, *arguments.split())
    assert code == 0 and out == example


@pytest.mark.parametrize("sizes, c, text", [
    (("0", "3", "3"), "full", "the result is empty"),
    (("3", "0", "0"), "bias", "the result is empty"),
    (("3", "3", "0"), "full", "K = 0, so the result is beta * C"),
    (("3", "3", "0"), "none", "K = 0, so the result is zeros"),
])  # fmt: skip
def test_explain_says_when_nothing_is_to_be_computed(command, sizes, c, text):
    assert lines(command("explain", *sizes, "--c", c))[-1] == f"nothing to compute: {text}"


def test_explain_accepts_the_smallest_and_the_largest_sizes(command):
    lines(command("explain", "1", "1", "1"))
    lines(command("explain", *[str(2**30)] * 3, "--dtype", "float32", "--a", "col"))


def test_explain_says_when_no_kernel_runs_on_the_gpu(command, monkeypatch):
    monkeypatch.setattr(explain, "H200", tc.Gpu(sm=75, num_sms=40, smem_per_block=64 * 1024))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    code, out, _ = command("explain", "8", "8", "8")
    assert code == 1 and out.endswith("no kernel runs this on this GPU\n")
    assert "the GPU is too old for it" in out and "->" not in out


@pytest.mark.parametrize("arguments, parts", [
    (("-1", "3", "3"), ("argument M", "'-1'")),
    (("3", "x", "3"), ("argument N", "'x'")),
    (("3", "3", "nan"), ("argument K", "'nan'")),
    (("3", "3", str(2**30 + 1)), ("argument K", "2^30")),
    (("3", "3"), ("K",)),
    (("3", "3", "3", "--dtype", "int8"), ("--dtype", "int8")),
    (("3", "3", "3", "--c", "half"), ("--c", "half")),
])  # fmt: skip
def test_explain_rejects_bad_arguments(command, arguments, parts):
    assert_one_line_error(command("explain", *arguments), *parts)


def test_layout_rejects_the_json_option(command):
    assert_one_line_error(command("--json", "layout"), "--json is not for layout")


CONFIG = {"tile_m": 128, "tile_n": 128, "threads": 256, "blocks_per_sm": 2, "smem_bytes": 72 * 1024}


def test_occupancy_matches_hand_computed_values():
    fit = Occupancy.of(CONFIG, H200)
    assert fit.registers == 128 and fit.limits == {"threads": 8, "registers": 2, "shared memory": 3}
    assert fit.blocks == 2 and fit.limiting == "registers"
    fit = Occupancy.of(CONFIG | {"blocks_per_sm": 1, "smem_bytes": 160 * 1024}, H200)
    assert fit.registers == 255 and fit.blocks == 1 and fit.limiting == "registers and shared memory"
    small = tc.Gpu(86, 28, 99 * 1024, smem_per_sm=100 * 1024, threads_per_sm=1536)
    assert Occupancy.of(CONFIG, small).limiting == "shared memory"


def test_waves_match_hand_computed_values():
    assert Waves.of(4096, 4096, CONFIG, H200) == Waves(work_tiles=1024, blocks=264, slots=264)
    waves = Waves.of(4096, 4096, CONFIG, H200)
    assert waves.count == 4 and waves.last == 1024 - 3 * 264
    full = Waves.of(128 * 264, 1, CONFIG, H200)
    assert full.count == 1 and full.last == 264
    one = Waves.of(1, 1, CONFIG, H200)
    assert (one.work_tiles, one.blocks, one.count, one.last) == (1, 1, 1, 1)
    split = Waves.of(128, 4096, CONFIG, H200, k_slices=4)
    assert (split.work_tiles, split.blocks, split.last) == (128, 128, 128)


def test_explain_shows_split_k_within_one_wave(command, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # an H200
    facts = {line[:12].strip(): line[12:] for line in lines(command("explain", "512", "512", "16384"))}
    tiles, splits, blocks = map(
        int, re.match(r"(\d+) of \S+ each in (\d+) K slices, on a grid of (\d+) x", facts["tiles"]).groups()
    )
    assert splits > 1 and blocks == tiles * splits <= H200.num_sms


@pytest.mark.parametrize(
    "m, n, k", [(8192, 8192, 8192), (4096, 4096, 4096), (65536, 256, 256), (1, 4096, 4096), (16384, 4096, 128)]
)
def test_predictions_do_not_beat_the_roofline(command, m, n, k):
    for c in ("full", "fp32", "bias", "none"):
        last = lines(command("explain", str(m), str(n), str(k), "--c", c))[-1]
        assert 0 < float(re.search(r"is ([\d.]+)% of it", last)[1]) < 100


@pytest.mark.parametrize("c, extra", [("full", 4 * 15), ("fp32", 8 * 15), ("bias", 2 * 15 + 2 * 5), ("none", 2 * 15)])
def test_work_matches_hand_computed_values(c, extra):
    work = Problem(3, 5, 7, torch.float16, "row", "row", c).work
    assert work.flops == 210 and work.bytes == 2 * (21 + 35) + extra


def test_prediction_counts_the_bytes_of_a_meta_c():
    """The problem is memory-bound, so reading C makes the prediction longer. A meta C costs as much as a C with storage."""
    times = {
        c: Problem(16384, 16384, 1, torch.float16, "row", "row", c).plan(H200).candidates[0].microseconds
        for c in ("none", "fp32")
    }
    assert times["none"] < times["fp32"]
    x = torch.empty(256, 256, dtype=torch.float16)
    meta = x.to("meta")
    assert tc.plan(x, x, x, gpu=H200) == tc.plan(meta, meta, meta, gpu=H200)


# ---- layout ----


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_prints_the_map_and_the_accesses_of_each_form(command, name):
    out = lines(command("layout", name))
    about, layouts = LAYOUTS[name]
    assert out[0] == f"{name}: {about}"
    for layout in layouts:
        at = out.index(layout.name)
        assert out[at + 1].split() == ["vector", *map(str, range(layout.vectors))]
        first = [int(x) for x in out[at + 2].removeprefix("row 0").split()]
        assert first == [layout.group(0, vector) for vector in range(layout.vectors)]
        for x in layout.accesses:
            figures = [str(x.width), str(len(x.degrees)), str(x.worst), f"{x.average:.2f}", str(x.conflicts)]
            assert any(line.startswith(x.name) and line.split()[-5:] == figures for line in out[at:])


def test_layout_rejects_bad_arguments(command, monkeypatch):
    assert_one_line_error(command("layout", "diagonal"), "diagonal", "xor")
    assert_one_line_error(command("layout", "--png", "x.png"), "--png needs a NAME")
    for module in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, module, None)
    assert_one_line_error(command("layout", "xor", "--png", "x.png"), "needs matplotlib", "pip install")


def test_layout_writes_png_files(command, tmp_path):
    pytest.importorskip("matplotlib")
    for name in LAYOUTS:
        lines(command("layout", name, "--png", str(tmp_path / f"{name}.png")))
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert_one_line_error(command("layout", "xor", "--png", str(tmp_path / "none" / "x.png")), "--png: ", "none")
    assert_one_line_error(command("layout", "xor", "--png", str(tmp_path / "x.word")), "--png: ", "word")


def test_explain_counts_the_columns_that_a_tile_covers(command, monkeypatch):
    """The pick covers 72 of a tile's 128 columns, so that 128 tiles fill the SMs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # an H200
    done = lines(command("explain", "48", "9216", "16384", "--b", "col", "--c", "bias"))
    facts = {line[:12].strip(): line[12:] for line in done}
    assert "72 columns of a tile" in done[2] and facts["tiles"].startswith("128 of 48x72, ")


def test_explain_counts_the_products_that_a_math_takes(command, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # an H200
    done = lines(command("explain", "4096", "4096", "4096", "--dtype", "float32"))
    facts = {line[:12].strip(): line[12:] for line in done}
    peak = H200.peaks["wgmma_tflops"] / 6
    assert (
        facts["arithmetic"]
        == f"{2 * 4096**3 / peak / 1e6:.4g} us at the GPU's peak, {peak:.4g} TFLOP/s of wgmma in six products of bf16 parts"
    )
