"""Steps of carriers that can follow each other in any order."""

from __future__ import annotations

STEPS = {
    "name": "v{i} = {e}",
    "attribute of an object": (
        "class C{i}:\n    def __init__(self, m):\n        self.m = m\no{i} = C{i}({e})\nv{i} = o{i}.m"
    ),
    "method": "class C{i}:\n    def get(self, m):\n        return m\nv{i} = C{i}().get({e})",
    "static method": (
        "class C{i}:\n    @staticmethod\n    def get(m):\n        return m\nv{i} = C{i}.get({e})"
    ),
    "class method": (
        "class C{i}:\n    @classmethod\n    def get(cls, m):\n        return m\nv{i} = C{i}.get({e})"
    ),
    "property": (
        "class C{i}:\n    def __init__(self, m):\n        self._m = m\n    @property\n    def m(self):\n"
        "        return self._m\nv{i} = C{i}({e}).m"
    ),
    "dataclass": "@dataclasses.dataclass\nclass C{i}:\n    m: object\n    n: int = 0\nv{i} = C{i}(m={e}).m",
    "named tuple": "class C{i}(typing.NamedTuple):\n    n: int\n    m: object\n_, v{i} = C{i}(0, {e})",
    "namespace": "o{i} = types.SimpleNamespace(m={e})\nv{i} = o{i}.m",
    "tuple": "_, v{i} = 0, {e}",
    "starred": "_, *r{i} = 0, {e}\nv{i} = r{i}[0]",
    "list": "l{i} = [{e}]\nv{i} = l{i}[0]",
    "appended": "l{i} = []\nl{i}.append({e})\nv{i} = l{i}[-1]",
    "dict": "d{i} = {{'m': {e}}}\nv{i} = d{i}['m']",
    "dict of a list": "d{i} = {{'m': [{e}]}}\nv{i} = d{i}['m'][0]",
    "stored in a dict": "d{i} = {{}}\nd{i}['m'] = {e}\nv{i} = d{i}.get('m')",
    "loop": "for v{i} in [{e}]:\n    pass",
    "enumerated": "for _, v{i} in enumerate([{e}]):\n    pass",
    "zipped": "for _, v{i} in zip([0], [{e}]):\n    pass",
    "comprehension": "l{i} = [m for m in [{e}]]\nv{i} = l{i}[0]",
    "function": "def f{i}(m):\n    return m\nv{i} = f{i}({e})",
    "keyword": "def f{i}(*, m):\n    return m\nv{i} = f{i}(m={e})",
    "all arguments": "def f{i}(*args, **kwargs):\n    return args[0], kwargs\nv{i}, _ = f{i}({e}, n=0)",
    "all keywords": "def f{i}(**kwargs):\n    return kwargs\nv{i} = f{i}(m={e})['m']",
    "generator": "def f{i}(m):\n    yield m\nfor v{i} in f{i}({e}):\n    pass",
    "context": "@contextlib.contextmanager\ndef f{i}(m):\n    yield m\nwith f{i}({e}) as v{i}:\n    pass",
    "partial": "def f{i}(m, n):\n    return m\ng{i} = functools.partial(f{i}, {e})\nv{i} = g{i}(0)",
    "lambda": "f{i} = lambda m: m\nv{i} = f{i}({e})",
    "conditional": "v{i} = {e} if flag else None",
    "branch": "v{i} = None\nif flag:\n    v{i} = {e}",
    "compiled": "v{i} = torch.compile({e})",
    "prepared": "v{i}, _ = accelerator.prepare({e}, loader)",
    "moved": "v{i} = {e}.to('cuda').train()",
}


def nested(names: list[str]) -> dict[str, str]:
    """A carrier that takes these steps one after the other."""
    lines, expression = [], "MADE"
    for i, name in enumerate(names):
        lines.append(STEPS[name].format(i=i, e=expression))
        expression = f"v{i}"
    return {"main.py": "\n".join([*lines, f">>> {expression}"]) + "\n"}
