"""Where objects come from, through assignments of every form."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from small import marked, project_of

from codemods.analysis.origins import Origins

_CLASS = "class T:\n    def __init__(self):\n        {}\n    def shard(self):\n        use(self.model)"
_ORIGINS = {
    "a name": ("model = build()\nuse(model)", "model", {"build()"}),
    "an element": ("other, model = make(), build()\nuse(model)", "model", {"build()"}),
    "behind a rest": ("a, *rest, model = make(), build()\nuse(model)", "model", {"build()"}),
    "more names than elements": ("a, *rest, model, b = [*models]\nuse(model)", "model", set()),
    "behind elements that are many": ("a, model = *models, build()\nuse(model)", "model", set()),
    "an attribute": (_CLASS.format("self.model = build()"), "self.model", {"build()"}),
    "an annotated attribute": (_CLASS.format("self.model: Net = build()"), "self.model", {"build()"}),
    "an attribute in a tuple": (_CLASS.format("a, self.model = 1, build()"), "self.model", {"build()"}),
    "an attribute that is set": (_CLASS.format("setattr(self, 'model', build())"), "self.model", {"build()"}),
    "a parameter": ("def f(model):\n    use(model)\nf(build())", "model", {"build()"}),
    "a parameter of a thread": (
        "def f(model):\n    use(model)\nThread(target=f, args=(build(),))",
        "model",
        {"build()"},
    ),
    "a parameter of a method called on its class": (
        "class T:\n    def f(self, model):\n        use(model)\nT.f(make(), build())",
        "model",
        {"build()"},
    ),
}


@pytest.mark.parametrize("name", _ORIGINS)
def test_objects_are_followed_to_where_they_are_made(name: str, tmp_path: Path) -> None:
    text, asked, made = _ORIGINS[name]
    project = project_of(tmp_path, {"main.py": f"{text}\nfsdp = True\n"})
    module = project.modules["main.py"]
    found = Origins(project.links).of(module, marked(module, asked))
    assert {ast.unparse(node) for node in found} == made
