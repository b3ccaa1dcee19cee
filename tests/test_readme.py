"""The README's examples of models run, one after another, and the last one shards the model that they made."""

import copy
import re
from pathlib import Path

import torch
from test_sharding import in_two_processes

import torch_addmm_tc as tc


def examples(device) -> dict:
    """The names that the section's blocks define, run on `device`."""
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    section = readme.split("## In models")[1].split("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 4
    names = {}
    for block in blocks:
        exec(block.replace('"cuda" if torch.cuda.is_available() else "cpu"', repr(device)), names)
    return names


def test_examples_of_models(device):
    torch._dynamo.reset()
    names = examples(device)
    model, x, y = names["model"], names["x"], names["y"]
    assert [type(layer) for layer in model] == [tc.Linear, torch.nn.GELU, tc.Linear]
    exact = copy.deepcopy(model).double()(x.double())
    assert (y - exact).abs().max() <= 0.02 * exact.abs().max()


def shard(mesh):
    names = examples("cpu")
    model, x = names["model"].requires_grad_(False), names["x"]
    torch.manual_seed(0)
    for tensor in (x, *model.parameters()):
        tensor.copy_(torch.randn(tensor.shape) / 16)
    expected = model(x)
    assert torch.allclose(names["shard"](model, mesh)(x), expected, rtol=0.05, atol=0.05)


def test_example_of_sharding(tmp_path):
    in_two_processes(tmp_path, shard)
