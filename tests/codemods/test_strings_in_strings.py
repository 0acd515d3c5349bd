"""What stands in f-strings is found where it is, in strings within strings too, by every Python."""

from __future__ import annotations

import ast
from itertools import product
from pathlib import Path

import pytest
from small import rewrite_of

from codemods.analysis.module import Module
from codemods.model import Outcome
from codemods.sources import decode

_STRINGS = {
    "one line": 'f"a {root.module} {type(root.module).__name__!r:>{w.idth}}"',
    "in parts": 'f"é ({type(root.module).__name__}) "\n    "b"\n    f"{a.b} {root.module}"',
    "a string in it": "f\"{f'{root.module} {a.b}'} {c.d}\"",
    "lines": 'f"""é {a.b}\n {root.module}\n{\n root.module} {c.d}"""',
    "lines in lines": "f\"\"\"{a.b}\n  é {f'''{root.module}\n {c.d:>{w.idth}}'''} {root.module}\"\"\"",
    "a format in lines": "rf\"\"\"{ a.b:{f'''é{root.module}\n{c.d}'''}} {root.module}\"\"\"",
    "lines in a call": "f\"\"\"é{a.b} {print(f'''{root.module}\n''', k=f'{c.d}')} {a.b}\"\"\"",
    "parts in lines": "f\"\"\"{ \"é\" f'''{root.module}\n{a.b}''' f'{c.d}'\n} {root.module}\"\"\"",
    "three deep": "f\"\"\"é {f'''\n{a.b} {f'{root.module}'}{f'{c.d}'}\n'''}{root.module}\"\"\"",
    "plain lines in it": "f\"\"\"é{'''s\né'''.join(root.module)} {a.b}\"\"\"",
    "text like code": "f\"\"\"root.module {f'''root.module {root.module}\n root.module'''} {a.b}\"\"\"",
}
_AROUND = [
    "x = (%s)\n",
    "raise E(\n    %s\n)\n",
    'é("é", a.b, (%s).z, k=root.module)\n',
    "if 1:\n    def f():\n        return g(\n            %s, root.module)\n",
    '"""d\n"""; g(%s)\n',
]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(("kind", "around"), list(product(_STRINGS, _AROUND)))
def test_every_name_is_found_where_it_stands(kind: str, around: str, newline: str) -> None:
    text = (around % _STRINGS[kind]).replace("\n", newline)
    module = Module(decode("m.py", text.encode()))
    found = [*module.nodes(ast.Attribute), *module.nodes(ast.Call), *module.nodes(ast.Name)]
    for node in found:
        code = module.code(node)
        assert ast.dump(ast.parse(f"({code}\n)", mode="eval").body) == ast.dump(node).replace(
            "Store()", "Load()"
        )
    assert len({(type(node), module.span(node)) for node in found}) == len(found)
    written = [module.span(node).start for node in module.named("root")]
    assert written == sorted(written)


@pytest.mark.parametrize("kind", _STRINGS)
def test_a_string_is_rewritten_within(kind: str, tmp_path: Path) -> None:
    before = (
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
        "def wrap(net, a, c, w):\n    root = FSDP(net)\n    print(\n        %s\n    )\n"
    )
    rewrite, _ = rewrite_of(tmp_path, {"train.py": before % _STRINGS[kind]})
    assert {item.outcome for item in rewrite.reported if item.finding.code == "FM307"} == {Outcome.DONE}
    [change] = rewrite.changes
    wanted = _STRINGS[kind].replace("{root.module", "{root").replace("\n root.module}", "\n root}")
    assert wanted.replace("(root.module)", "(root)") in change.after.decode()
