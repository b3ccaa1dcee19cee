"""README and docs/: Python examples run, relative links resolve, and README stays short."""

import copy
import re
from pathlib import Path

import pytest
import torch
from test_sharding import run_in_two_processes

import torch_addmm_tc as tc

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("bench/results/*.md")])
CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def examples(page, device) -> dict:
    """Run a page's Python examples in order on `device`, and return the names that they define."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    names = {}
    for block in blocks:
        exec(block.replace('"cuda" if torch.cuda.is_available() else "cpu"', repr(device)), names)
    return names


def test_readme_example(device):
    names = examples("README.md", device)
    x, weight, bias = (names[name].double() for name in ("x", "weight", "bias"))
    exact = x @ weight.t() + bias
    assert (names["y"] - exact).abs().max() <= 0.002 * exact.abs().max() and names["z"].dtype == torch.float32


def test_integrations_examples_of_models(device):
    torch._dynamo.reset()
    names = examples("docs/integrations.md", device)
    model, x, y = names["model"], names["x"], names["y"]
    assert [type(layer) for layer in model] == [tc.Linear, torch.nn.GELU, tc.Linear]
    exact = copy.deepcopy(model).double()(x.double())
    assert (y - exact).abs().max() <= 0.02 * exact.abs().max()


def check_sharding_example(mesh):
    names = examples("docs/integrations.md", "cpu")
    model, x = names["model"].requires_grad_(False), names["x"]
    torch.manual_seed(0)
    for tensor in (x, *model.parameters()):
        tensor.copy_(torch.randn(tensor.shape) / 16)
    expected = model(x)
    assert torch.allclose(names["shard"](model, mesh)(x), expected, rtol=0.05, atol=0.05)


def test_integrations_example_of_sharding(tmp_path):
    run_in_two_processes(tmp_path, check_sharding_example)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, by GitHub's rule."""
    headings = re.findall(r"^#+ (.*)$", CODE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_resolve(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", CODE.sub("", page.read_text())):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {link}, but {target.name} has no such heading"


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) < 150
