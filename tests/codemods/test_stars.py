"""Star imports: a file is parsed for a name only if it may bind it."""

from __future__ import annotations

from pathlib import Path

import pytest
from small import project_of

_MAIN = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from parts import *

model = FSDP(build(len(str(1))))
"""
_BINDINGS = {
    "function": "def build(n): ...",
    "asynchronous function": "async def build(n): ...",
    "class": "class build: ...",
    "assignment": "build = make()",
    "on a line with its condition": "if make(): build = make()",
    "behind another": "other = 1; build = make()",
    "annotated": "build: object = make()",
    "several": "other, build = make()",
    "in brackets": "(other, [build, last]) = make()",
    "two targets": "other = build = make()",
    "after a call's attribute": "make(len([1])).part = build = 3",
    "on a continued line": "build \\\n    = make()",
    "with a comparison": "build = make() == 3",
    "pattern": "match make():\n    case [other, build]:\n        pass",
    "context in brackets": "with make() as (other, build):\n    pass",
    "behind an item": 'd["a"] = build = make()',
    "behind an attribute": "d.a.b = build = make()",
    "in brackets on lines": "(\n    other,\n    build,\n) = make()",
    "in brackets on lines behind another": "other, [\n    build,\n    last,\n] = make()",
    "import": "from elsewhere import build",
    "renamed import": "import elsewhere as build",
    "several lines of import": "from elsewhere import (\n    other,\n    build,\n)",
    "context": "with make() as build:\n    pass",
    "contexts on lines": "with (\n    make() as other,\n    make() as build,\n):\n    pass",
    "loop": "for build in make():\n    pass",
    "loop over pairs": "for other, (build, last) in make():\n    pass",
    "walrus": "print(build := make())",
    "under a condition": "if make():\n    build = make()",
}


@pytest.mark.parametrize("binding", _BINDINGS.values(), ids=_BINDINGS)
def test_a_file_that_binds_the_name_may_have_it(tmp_path: Path, binding: str) -> None:
    files = {"parts/__init__.py": "from .one import *\n", "parts/one.py": binding + "\n", "main.py": _MAIN}
    project = project_of(tmp_path, files)
    assert project.index.may_have("parts/one.py", "build")
    assert project.index.may_have("parts/__init__.py", "build")
    assert not project.index.may_have("parts/one.py", "builder")


def test_a_file_that_only_uses_a_name_is_not_parsed_for_it(tmp_path: Path) -> None:
    used = '"""Takes a str, or as any len says."""\n\ndef used(text: str = str(1), *, n: int = len("a")):\n'
    files = {
        "parts/__init__.py": "from .one import *\nfrom .two import *\n",
        "parts/one.py": "def build(n):\n    return n\n",
        "parts/two.py": used + "    return dict(text=str(text), n=len(text))\n",
        "main.py": _MAIN,
    }
    project = project_of(tmp_path, files)
    assert "parts/two.py" not in project.modules
    assert not project.index.may_have("parts/two.py", "len")
    assert project.index.may_have("parts/__init__.py", "used")


_OF_PYTHON = {
    "function": ("def len(n): ...", True),
    "class": ("class len: ...", True),
    "assignment": ("len = make()", True),
    "among others": ("other, len = make()", True),
    "annotated": ("len: object = make()", True),
    "import": ("from elsewhere import len", True),
    "local": ("def f():\n    len = make()\n", False),
    "prose": ('"""Takes\nas len says, or for len in all."""\n', False),
    "comparison": ("other = len == make", False),
    "method": ("class C:\n    def len(self): ...", False),
}


@pytest.mark.parametrize(("text", "may"), _OF_PYTHON.values(), ids=_OF_PYTHON)
def test_a_name_of_python_is_only_looked_for_where_a_file_hides_it(
    tmp_path: Path, text: str, may: bool
) -> None:
    files = {"parts/__init__.py": "from .one import *\n", "parts/one.py": text + "\n", "main.py": _MAIN}
    project = project_of(tmp_path, files)
    assert project.index.may_have("parts/one.py", "len") is may
    assert project.index.may_have("parts/__init__.py", "len") is may
