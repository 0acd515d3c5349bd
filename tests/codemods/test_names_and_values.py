"""Names, values and links across modules."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from small import marked, project_of, rewrite_of

from codemods.analysis.values import CallValue, Choice, DictValue, Literal, Named, Opaque, Sequenced, options
from codemods.rule import Maybe, No, Sharded
from codemods.torch_names import FSDP

_IMPORTS = {
    "direct": ("from torch.distributed.fsdp import FullyShardedDataParallel", "FullyShardedDataParallel"),
    "alias": ("from torch.distributed.fsdp import FullyShardedDataParallel as FSDP", "FSDP"),
    "long module": (
        "from torch.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel as F",
        "F",
    ),
    "module alias": ("import torch.distributed.fsdp as x", "x.FullyShardedDataParallel"),
    "whole path": ("import torch.distributed.fsdp", "torch.distributed.fsdp.FullyShardedDataParallel"),
    "from package": ("from torch.distributed import fsdp", "fsdp.FullyShardedDataParallel"),
    "through torch": ("import torch", "torch.distributed.fsdp.FullyShardedDataParallel"),
    "star": ("from torch.distributed.fsdp import *", "FullyShardedDataParallel"),
    "rebound": (
        "from torch.distributed.fsdp import FullyShardedDataParallel\nFSDP = FullyShardedDataParallel",
        "FSDP",
    ),
    "version gate": (
        "try:\n    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        "except ImportError:\n    FSDP = None",
        "FSDP",
    ),
    "re-exported": ("from exports import FSDP", "FSDP"),
    "re-exported by star": ("from stars import *", "FSDP"),
    "attribute of a module": ("import exports", "exports.FSDP"),
}


@pytest.mark.parametrize("name", _IMPORTS)
def test_the_wrap_is_found_under_any_name(name: str, tmp_path: Path) -> None:
    header, called = _IMPORTS[name]
    project = project_of(
        tmp_path,
        {
            "main.py": f"{header}\nmodel = {called}(model)\n# fsdp\n",
            "exports.py": "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n",
            "stars.py": "from exports import *\n",
        },
    )
    assert [ast.unparse(site.function) for site in project.wraps] == [called]
    symbol = project.resolve(project.wraps[0].module, project.wraps[0].function)
    assert symbol is not None and symbol.name == FSDP


def test_another_class_of_that_name_is_no_wrap(tmp_path: Path) -> None:
    project = project_of(
        tmp_path,
        {
            "main.py": "from torch_xla.fsdp import XlaFullyShardedDataParallel as FSDP\nm = FSDP(m)\n",
            "own.py": "class FSDP:\n    pass\n\nm = FSDP(m)\n",
        },
    )
    assert project.wraps == []


@pytest.mark.parametrize("layout", ["", "src/", "a/b/"])
def test_relative_and_absolute_imports_find_the_module(layout: str, tmp_path: Path) -> None:
    project = project_of(
        tmp_path,
        {
            f"{layout}pkg/__init__.py": "",
            f"{layout}pkg/wrap.py": """
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
                def shard(model):
                    return FSDP(model)
            """,
            f"{layout}pkg/sub/__init__.py": "",
            f"{layout}pkg/sub/near.py": "from ..wrap import shard\nmodel = shard(net)\nmodel.state_dict()\n",
            f"{layout}far.py": "import pkg.wrap\nmodel = pkg.wrap.shard(build())\nmodel.state_dict()\n",
        },
    )
    for path in (f"{layout}pkg/sub/near.py", f"{layout}far.py"):
        module = project.modules[path]
        assert isinstance(project.sharded(module, marked(module, "model")), Sharded), path


def test_what_a_repository_does_not_link_with_fsdp_is_not_read(tmp_path: Path) -> None:
    project = project_of(
        tmp_path,
        {
            "wrap.py": "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nimport layers\n",
            "main.py": "import wrap\n",
            "layers.py": "x = 1\n",
            "other.py": "import json\n",
        },
    )
    assert sorted(project.linked) == ["layers.py", "main.py", "wrap.py"]
    assert set(project.modules) <= set(project.linked)


_VALUES = {
    "literal": ("v = 3", "v", Literal),
    "through names": ("a = None\nb = a\nv = b", "v", Literal),
    "another module's": ("from other import SHARED as v", "v", CallValue),
    "module attribute": ("import other\nv = other.SHARED", "v", CallValue),
    "enum member": (
        "from torch.distributed.fsdp import ShardingStrategy as S\nv = S.FULL_SHARD",
        "v",
        Named,
    ),
    "call result": ("from other import make\nv = make()", "v", Sequenced),
    "element of a tuple result": ("from other import make\n_, v = make()", "v", Literal),
    "conditional": ("v = 1 if flag else 2", "v", Choice),
    "both branches": ("v = 0\nif flag:\n    v = 1\nelse:\n    v = 2", "v", Choice),
    "dict": ("v = dict(a=1)\nv['b'] = 2\nv.update(c=3)", "v", DictValue),
    "item of a dict": ("d = {'a': 1}\nv = d['a']", "v", Literal),
    "element from the end": ("d = 'a', None\nv = d[-1]", "v", Literal),
    "default of a dataclass field": ("from other import Config\nc = Config(b=2)\nv = c.a", "v", Choice),
    "given dataclass field": ("from other import Config\nc = Config(b=2)\nv = c.b", "v", Choice),
    "no such element": ("d = 'a', None\nv = d[-3]", "v", Opaque),
    "unknown": ("v = cfg.x", "v", Opaque),
}


@pytest.mark.parametrize("name", _VALUES)
def test_values_are_followed(name: str, tmp_path: Path) -> None:
    text, asked, kind = _VALUES[name]
    project = project_of(
        tmp_path,
        {
            "main.py": f"{text}\nuse({asked}); fsdp = True\n",
            "other.py": "from functools import partial\nSHARED = partial(len)\n"
            "def make():\n    return 1, 'two'\n"
            "@dataclass\nclass Config:\n    a: int = 1\n    b: int = 0\n",
        },
    )
    module = project.modules["main.py"]
    value = project.evaluate(module, marked(module, asked))
    assert isinstance(value, kind), value
    if name == "both branches":
        assert sorted(o.value for o in options(value) if isinstance(o, Literal)) == [1, 2]
    if isinstance(value, DictValue):
        assert sorted(value.items) == ["a", "b", "c"] and value.complete
    if "dataclass" in name:
        known = [option.value for option in options(value) if isinstance(option, Literal)]
        assert known == [{"default": 1, "given": 2}[name.split()[0]]]
    if name == "element of a tuple result":
        assert isinstance(value, Literal) and value.value == "two"


@pytest.mark.parametrize("star", ["from . import *", "from .sub import *", "from pkg import *"])
def test_values_are_followed_through_star_imports(star: str, tmp_path: Path) -> None:
    project = project_of(
        tmp_path,
        {
            "pkg/__init__.py": "SHARED = 3\n",
            "pkg/sub.py": "SHARED = 3\n",
            "pkg/main.py": f"{star}\nuse(SHARED); fsdp = True\n",
        },
    )
    module = project.modules["pkg/main.py"]
    assert isinstance(project.evaluate(module, marked(module, "SHARED")), Literal)


_METHOD_CALLS = {
    "on an object's class": ("", "Trainer.wrap(trainer, model, 'x')"),
    "a class method": ("@classmethod\n    ", "Trainer.wrap(model, 'x')"),
    "a static method": ("@staticmethod\n    ", "Trainer.wrap(None, model, 'x')"),
}


@pytest.mark.parametrize("name", _METHOD_CALLS)
def test_parameters_of_methods_have_the_values_of_calls_on_the_class(name: str, tmp_path: Path) -> None:
    decorator, call = _METHOD_CALLS[name]
    project = project_of(
        tmp_path,
        {
            "main.py": f"class Trainer:\n    {decorator}def wrap(self, model, kind):\n"
            f"        use(kind); fsdp = True\n{call}\n",
        },
    )
    module = project.modules["main.py"]
    value = project.evaluate(module, marked(module, "kind"))
    assert isinstance(value, Literal) and value.value == "x"


def test_parameters_have_the_values_of_every_call(tmp_path: Path) -> None:
    project = project_of(
        tmp_path,
        {
            "wrap.py": "def wrap(strategy=None, *, size):\n    use(strategy, size); fsdp = True\n",
            "one.py": "from wrap import wrap\nwrap(size=1)\n",
            "two.py": "from wrap import wrap\nwrap('x', size=2)\n",
        },
    )
    module = project.modules["wrap.py"]
    strategy = {
        o.value
        for o in options(project.evaluate(module, marked(module, "strategy")))
        if isinstance(o, Literal)
    }
    size = {
        o.value for o in options(project.evaluate(module, marked(module, "size"))) if isinstance(o, Literal)
    }
    assert strategy == {None, "x"}
    assert size == {1, 2}


_HEAD = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
_LINKS = {
    "same name": ("model = FSDP(model)\nuse(model)", "model", Sharded),
    "before the wrap": ("use(model)\nmodel = FSDP(model)", "model", No),
    "in a branch": ("model = build()\nif flag:\n    model = FSDP(model)\nuse(model)", "model", Maybe),
    "in both branches": (
        "if flag:\n    model = FSDP(model)\nelse:\n    model = FSDP(model, None)\nuse(model)",
        "model",
        Sharded,
    ),
    "chained": ("model = FSDP(model).to('cuda')\nuse(model)", "model", Sharded),
    "conditional expression": ("model = FSDP(model) if flag else model\nuse(model)", "model", Maybe),
    "unpacked": ("a, model = 1, FSDP(net)\nuse(model)", "model", Sharded),
    "element of a list": ("for model in [FSDP(a), FSDP(b)]:\n    use(model)", "model", Sharded),
    "value of a dict": ("models = {'a': FSDP(a), 'b': 1}\nuse(models['a'])", "models['a']", Sharded),
    "stored in a dict": ("models = {}\nmodels['a'] = FSDP(a)\nuse(models['a'])", "models['a']", Sharded),
    "declared": ("def f(model: FSDP):\n    use(model)", "model", Sharded),
    "declared in a string": ("def f(model: 'FSDP'):\n    use(model)", "model", Sharded),
    "evident from a static method": (
        "def f(model):\n    FSDP.optim_state_dict(model, o)\n    use(model)",
        "model",
        Sharded,
    ),
    "parameter": ("def f(net):\n    use(net)\nmodel = FSDP(model)\nf(model)", "net", Sharded),
    "parameter of one of two": ("def f(net):\n    use(net)\nf(FSDP(model))\nf(build())", "net", Maybe),
    "returned": ("def f(m):\n    return FSDP(m)\nmodel = f(net)\nuse(model)", "model", Sharded),
    "attribute": (
        "class T:\n    def __init__(self, m):\n        self.model = FSDP(m)\n"
        "    def save(self):\n        use(self.model)",
        "self.model",
        Sharded,
    ),
    "attribute wrapped in place": (
        "class T:\n    def __init__(self):\n        self.model = build()\n"
        "    def shard(self):\n        self.model = FSDP(self.model)\n"
        "    def save(self):\n        use(self.model)",
        "self.model",
        Sharded,
    ),
    "attribute of an instance": (
        "class T:\n    def __init__(self, model):\n        self.model = model\n"
        "trainer = T(FSDP(net))\nuse(trainer.model)",
        "trainer.model",
        Sharded,
    ),
    "wrapped by a function within": (
        "def f():\n    m = build()\n    def g():\n        nonlocal m\n        m = FSDP(m)\n    use(m)",
        "m",
        Maybe,
    ),
    "wrapped in place by a function": (
        "model = build()\ndef f():\n    global model\n    model = FSDP(model)\nf()\nuse(model)",
        "model",
        Maybe,
    ),
    "named by a pattern": (
        "model = FSDP(model)\nmatch other():\n    case model:\n        use(model)",
        "model",
        No,
    ),
    "behind a pattern that names it": (
        "model = FSDP(model)\nmatch other():\n    case [model]:\n        pass\nuse(model)",
        "model",
        Maybe,
    ),
    "named by a handler": (
        "model = FSDP(model)\ntry:\n    go()\nexcept E as model:\n    use(model)",
        "model",
        No,
    ),
    "wrapped in a try": (
        "model = build()\ntry:\n    model = FSDP(model)\nexcept E:\n    raise\nuse(model)",
        "model",
        Sharded,
    ),
    "plain": ("model = build()\nuse(model)", "model", No),
}


if sys.version_info >= (3, 11):
    _LINKS["wrapped in a try of groups"] = (
        "model = build()\ntry:\n    model = FSDP(model)\nexcept* E:\n    raise\nuse(model)",
        "model",
        Sharded,
    )


@pytest.mark.parametrize("name", _LINKS)
def test_sharded_models_are_followed(name: str, tmp_path: Path) -> None:
    text, asked, kind = _LINKS[name]
    project = project_of(tmp_path, {"main.py": f"{_HEAD}{text}\n"})
    module = project.modules["main.py"]
    use = next(c for c in module.calls() if isinstance(c.func, ast.Name) and c.func.id == "use")
    assert ast.unparse(use.args[0]) == asked
    assert isinstance(project.sharded(module, use.args[0]), kind)


def test_optimizers_are_linked_with_their_model(tmp_path: Path) -> None:
    project = project_of(
        tmp_path,
        {
            "main.py": f"""
                {_HEAD}
                import torch
                def build_optimizer(net):
                    groups = [{{"params": net.parameters()}}]
                    return torch.optim.AdamW(groups, lr=1.0)
                model = FSDP(model)
                optimizer = build_optimizer(model)
                other = torch.optim.SGD(plain.parameters())
                use(optimizer, other)
            """
        },
    )
    module = project.modules["main.py"]
    use = next(c for c in module.calls() if isinstance(c.func, ast.Name) and c.func.id == "use")
    assert isinstance(project.optimizer_of(module, use.args[0]), Sharded)
    assert isinstance(project.optimizer_of(module, use.args[1]), No)


def test_methods_taken_from_the_class_are_translated_or_reported_under_any_alias(tmp_path: Path) -> None:
    files = {
        "a.py": """
            import torch.distributed.fsdp as tdf

            FSDP = tdf.FullyShardedDataParallel
            model = FSDP(model)
            FSDP.clip_grad_norm_(model, 1.0)
            norm = FSDP.clip_grad_norm_(model, max_norm=c, norm_type=2)
            FSDP.clip_grad_norm_(other, 1.0)
            with FSDP.no_sync(model):
                pass
        """
    }
    done, texts = rewrite_of(tmp_path, files)
    assert "nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n" in texts["a.py"]
    assert (
        "norm = nn.utils.clip_grad_norm_(model.parameters(), c, norm_type=2).full_tensor()" in texts["a.py"]
    )
    left = [(r.finding.code, r.finding.place.line) for r in done.open_findings]
    assert left == [("FM516", 3), ("FM301", 7), ("FM516", 8)]
