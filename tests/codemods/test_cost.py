"""What questions about a project cost: every question ends, and none is worked out twice where once is
enough."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from small import project_of, rewrite_of

from codemods.analysis.link import Links
from codemods.rule import Maybe, Project, Sharded

_HEAD = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
_NESTED = """\
def mapped(function, data, other=None):
    if isinstance(data, tuple):
        return tuple(mapped(function, part, other) for part in data)
    if isinstance(data, dict):
        return {key: mapped(function, value, other) for key, value in data.items()}
    first, second, third = mapped(function, data[0]), mapped(function, data[1]), mapped(function, data)
    data = [first, (second, third), {"first": first, "second": [second, first]}]
    return mapped(function, (data, (other, data)), third) if other else function(data)


def sent(data):
    kept = {"data": data, "again": mapped(sent, data)}
    kept["again"], (kept["data"], data) = mapped(sent, kept), kept["again"]
    return mapped(sent, [kept, (data, kept["data"])], data)


model = FSDP(build())
batch = sent(mapped(sent, {"model": model}, model))
use(batch)
"""


def _asked(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[ast.expr, object], int]:
    """Question -> how often it was worked out, counted from now on."""
    asked: dict[tuple[ast.expr, object], int] = {}
    answer = Links._at

    def counted(links: Links, module: object, node: ast.expr, path: object) -> object:
        asked[node, path] = asked.get((node, path), 0) + 1
        return answer(links, module, node, path)  # type: ignore[arg-type]

    monkeypatch.setattr(Links, "_at", counted)
    return asked


def _last_use(project: Project) -> ast.expr:
    return next(project.modules["main.py"].called("use")).args[0]


def test_containers_that_grow_in_a_circle_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = project_of(tmp_path, {"main.py": _HEAD + _NESTED})
    asked = _asked(monkeypatch)
    project.sharded(project.modules["main.py"], _last_use(project))
    nodes = {node for node, _ in asked}
    assert len(nodes) > 15
    assert max(asked.values()) <= 3, "within a circle an answer is kept after two tries"
    assert len(asked) < 60 * len(nodes), "paths into containers are as short as they are told apart"


def test_what_is_put_deep_into_containers_is_found(tmp_path: Path) -> None:
    text = 'a = {"b": [{"c": (FSDP(net), 1)}]}\nuse(a["b"][0]["c"][0])\n'
    project = project_of(tmp_path, {"main.py": _HEAD + text})
    assert isinstance(project.sharded(project.modules["main.py"], _last_use(project)), Sharded | Maybe)


def test_calls_that_a_thread_makes_are_no_places(tmp_path: Path) -> None:
    text = (
        "import threading\nfrom torch.optim import AdamW\n\n\n"
        "def train(net):\n    optimizer = AdamW(net.parameters())\n    net = FSDP(net)\n"
        "    return sum(p.numel() for p in net.parameters())\n\n\n"
        "def again(net):\n    optimizer = AdamW(net.parameters())\n    print(optimizer)\n"
        "    net = FSDP(net)\n\n\n"
        "threading.Thread(target=again, args=(build(),)).start()\n"
        "threading.Thread(target=train, args=(build(),)).start()\ntrain(build())\n"
    )
    done, _ = rewrite_of(tmp_path, {"main.py": _HEAD + text})
    assert "FM504" in {item.finding.code for item in done.reported}
    project = project_of(tmp_path, {"main.py": _HEAD + text})
    module = project.modules["main.py"]
    function = next(f for f in module.nodes(ast.FunctionDef) if isinstance(f, ast.FunctionDef))
    assert len(project.links.functions.calls(module, function)) == 2
    assert [ast.unparse(c) for _, c in project.links.calls_of(module, function)] == ["train(build())"]


def test_names_are_found_in_the_order_of_the_text(tmp_path: Path) -> None:
    text = "def f(self):\n    return self.rank + rank(1, self.size)\n\n\nsize = FSDP.rank.size(rank)\n"
    module = project_of(tmp_path, {"main.py": _HEAD + text}).modules["main.py"]
    found = [ast.unparse(node) for node in module.named("size", "rank")]
    assert found == ["self.rank", "rank", "self.size", "size", "FSDP.rank", "FSDP.rank.size", "rank"]
    assert [ast.unparse(call) for call in module.called("size")] == ["FSDP.rank.size(rank)"]
    assert module.words() >= {"rank", "size", "self", "FSDP"} and "f" not in module.words()


@pytest.mark.parametrize("wrap", ["", "net = FSDP(net)\n"])
def test_where_nothing_is_wrapped_nothing_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrap: str
) -> None:
    """An optimizer, parameters that are kept, a seed, tied weights, quantised weights: they matter to wrapped
    models alone, and where there is none neither their files are parsed nor anybody is asked about them."""
    models = (
        "class Kept:\n    def __init__(self, net):\n        self.params = list(net.parameters())\n\n"
        "    def total(self):\n        return [p.norm() for p in self.params]\n\n\n"
        "net.head.weight = net.embed.weight\nnet.tie_weights()\nset_seed(rank)\n"
        "quantised = Linear4bit(bitsandbytes, load_in_4bit=True)\n"
    )
    parts = {"models.py": models, "build.py": "from torch.optim import AdamW\nAdamW(net.parameters())\n"}
    main = "import build, models\n\nnet = build.make()\nprint(FSDP, models.Kept(net).total())\n" + wrap
    asked = _asked(monkeypatch)
    done, _ = rewrite_of(tmp_path, {"main.py": _HEAD + main, **parts})
    assert done.read == (3 if wrap else 1)
    assert bool(asked) is bool(wrap)


def test_which_functions_a_call_means_is_worked_out_once(tmp_path: Path) -> None:
    text = "def made(net):\n    return net\n\n\nkeep = made\nmodel = [keep][0](FSDP(net))\nuse(model)\n"
    project = project_of(tmp_path, {"main.py": _HEAD + text})
    module = project.modules["main.py"]
    call = next(c for c in module.calls() if isinstance(c.func, ast.Subscript))
    meant = project.links.functions.meant(module, call.func)
    assert [getattr(function, "name", "") for _, function in meant] == ["made"]
    assert project.links.functions.meant(module, call.func) is meant


def test_a_partial_answer_is_not_kept(tmp_path: Path) -> None:
    links = project_of(tmp_path, {"main.py": _HEAD}).links
    known: dict[str, int] = {}

    def partial() -> int:
        links.cut(1)
        return 1

    assert links.kept(known, "circle", partial) == 1 and known == {}
    assert links.kept(known, "circle", lambda: 2) == 2 and known == {"circle": 2}
    assert links.kept(known, "circle", lambda: 3) == 2
