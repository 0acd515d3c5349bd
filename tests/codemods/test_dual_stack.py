"""`--drop-fsdp1`: the FSDP1 branch goes where an FSDP2 branch stands beside it, never in silence."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from codemods.model import Options, Outcome, Rewrite
from codemods.plan import plan_rewrite

IMPORTS = """\
from torch.distributed.fsdp import FSDPModule, ShardingStrategy, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def shard_parts(model):
    for part in model.children():
        fully_shard(part)
    return fully_shard(model)


"""
ONE_OF_THREE = """\
def build(model, how):
    if how == "fsdp":
        strategy = ShardingStrategy.FULL_SHARD
        model = FSDP(model, sharding_strategy=strategy)
    elif how == "fsdp2":
        model = shard_parts(model)
    else:
        raise NotImplementedError(how)
    return model
"""


def rewrite(folder: Path, body: str, *, drop: bool = True) -> Rewrite:
    (folder / "a.py").write_text(IMPORTS + body)
    return plan_rewrite(folder, ["a.py"], Options(drop_fsdp1=drop))


def body_after(folder: Path, body: str) -> str:
    done = rewrite(folder, body)
    (change,) = done.changes
    ast.parse(change.after)
    text = change.after.decode()
    assert "FullyShardedDataParallel" not in text
    return text[text.index("def build") :]


CASES = {
    "first of three": (
        ONE_OF_THREE,
        """\
def build(model, how):
    if how in ("fsdp", "fsdp2"):
        model = shard_parts(model)
    else:
        raise NotImplementedError(how)
    return model
""",
    ),
    "second of three": (
        """\
def build(model, how):
    if how == "fsdp2":
        model = shard_parts(model)
    elif how == "fsdp":
        model = FSDP(model)
    else:
        raise NotImplementedError(how)
    return model
""",
        """\
def build(model, how):
    if how in ("fsdp", "fsdp2"):
        model = shard_parts(model)
    else:
        raise NotImplementedError(how)
    return model
""",
    ),
    "middle of four": (
        """\
def build(model, how):
    if how == "ddp":
        model = model.cuda()
    elif how == "fsdp":
        model = FSDP(model)
    elif how == "fsdp2":
        model = fully_shard(model)
    else:
        raise NotImplementedError(how)
    return model
""",
        """\
def build(model, how):
    if how == "ddp":
        model = model.cuda()
    elif how in ("fsdp", "fsdp2"):
        model = fully_shard(model)
    else:
        raise NotImplementedError(how)
    return model
""",
    ),
    "if and else": (
        """\
def build(model, new):
    if not new:
        model = FSDP(model)
    else:
        # stays as it is
        model = fully_shard(model)
        model.train()
    return model
""",
        """\
def build(model, new):
    # stays as it is
    model = fully_shard(model)
    model.train()
    return model
""",
    ),
    "else is FSDP1": (
        """\
def build(model, new):
    if new:
        model = fully_shard(model)
        model.train()
    else:
        model = FSDP(model)
    return model
""",
        """\
def build(model, new):
    model = fully_shard(model)
    model.train()
    return model
""",
    ),
    "no last branch": (
        """\
def build(model, how):
    if how == "fsdp":
        model = FSDP(model)
    elif how == "fsdp2":
        model = fully_shard(model)
    return model
""",
        """\
def build(model, how):
    if how in ("fsdp", "fsdp2"):
        model = fully_shard(model)
    return model
""",
    ),
    "isinstance": (
        """\
def build(model):
    if isinstance(model, FSDP):
        return 1
    elif isinstance(model, FSDPModule):
        return 2
    else:
        return 0
""",
        """\
def build(model):
    if isinstance(model, FSDPModule):
        return 2
    else:
        return 0
""",
    ),
    "isinstance last": (
        """\
def build(model):
    if isinstance(model, FSDPModule):
        model.reshard()
    elif isinstance(model, FSDP):
        model._handle.reshard(True)
    return model
""",
        """\
def build(model):
    if isinstance(model, FSDPModule):
        model.reshard()
    return model
""",
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("depth", [0, 1], ids=["", "nested"])
def test_fsdp1_branch_goes(name: str, depth: int, tmp_path: Path) -> None:
    before, expected = CASES[name]
    if depth:
        before, expected = (
            "class Trainer:\n" + textwrap.indent(text.replace("def build(", "def build(self, "), "    ")
            for text in (before, expected)
        )
        expected = expected.removeprefix("class Trainer:\n    ")
    assert body_after(tmp_path, before).rstrip() == expected.rstrip()


def test_imports_that_only_it_used_go(tmp_path: Path) -> None:
    (change,) = rewrite(tmp_path, ONE_OF_THREE).changes
    assert b"ShardingStrategy" not in change.after
    assert b"fsdp2_sharding" not in change.after


def test_dropped_wrap_is_no_wrap_left_over(tmp_path: Path) -> None:
    assert rewrite(tmp_path, ONE_OF_THREE).wrap_sites == ()


def test_last_branch_never_gets_those_who_chose_fsdp1(tmp_path: Path) -> None:
    body = ONE_OF_THREE.replace("raise NotImplementedError(how)", "model = model.cuda()")
    assert 'if how in ("fsdp", "fsdp2"):' in body_after(tmp_path, body)


def test_default_leaves_both_branches_and_says_so(tmp_path: Path) -> None:
    done = rewrite(tmp_path, ONE_OF_THREE, drop=False)
    notes = [r for r in done.reported if r.finding.code == "FM120"]
    assert [(r.outcome, r.finding.place.line) for r in notes] == [(Outcome.NOTE, 12)]
    assert "--drop-fsdp1" in notes[0].finding.message
    text = next(change.after.decode() for change in done.changes if change.path == "a.py")
    assert 'if how == "fsdp":' in text and 'elif how == "fsdp2":' in text


def test_nothing_is_said_where_only_one_stack_stands(tmp_path: Path) -> None:
    body = ONE_OF_THREE.replace("shard_parts(model)", "model.cuda()")
    assert "FM120" not in [r.finding.code for r in rewrite(tmp_path, body, drop=False).reported]


def test_dropping_again_changes_nothing(tmp_path: Path) -> None:
    (change,) = rewrite(tmp_path, ONE_OF_THREE).changes
    (tmp_path / "a.py").write_bytes(change.after)
    assert plan_rewrite(tmp_path, ["a.py"], Options(drop_fsdp1=True)).changes == ()


def dropped(folder: Path, body: str) -> str:
    """What is left of `body`, whatever stands above it."""
    (change,) = rewrite(folder, body).changes
    text = change.after.decode()
    ast.parse(text)
    return text


def test_enumeration_keeps_both_members(tmp_path: Path) -> None:
    text = dropped(
        tmp_path,
        """\
import enum


class How(enum.Enum):
    FSDP1 = "fsdp"
    FSDP2 = "fsdp2"


def build(model, how):
    if how == How.FSDP1:
        return FSDP(model)
    if how == How.FSDP2:
        return shard_parts(model)
    raise ValueError(how)
""",
    )
    assert "if how in (How.FSDP1, How.FSDP2):\n        return shard_parts(model)\n    raise" in text
    assert 'FSDP1 = "fsdp"' in text and "FSDP(model)" not in text


SETTING = """\
def build(model, cfg):
    if cfg.strategy == "fsdp":
        return FSDP(model)
    elif cfg.strategy == "fsdp2":
        return shard_parts(model)
    return model


"""
QUESTIONS = {
    'cfg.strategy == "fsdp2"': 'cfg.strategy in ("fsdp", "fsdp2")',
    'cfg.strategy != "fsdp2"': 'cfg.strategy not in ("fsdp", "fsdp2")',
    'cfg["strategy"] in ("fsdp2", "ddp")': 'cfg["strategy"] in ("fsdp", "fsdp2", "ddp")',
    'cfg.get("strategy") in ["fsdp", "ddp"]': 'cfg.get("strategy") == "ddp"',
    'cfg.strategy in {"fsdp", "fsdp2"}': 'cfg.strategy in {"fsdp", "fsdp2"}',
    'cfg.strategy == "fsdp" or cfg.fast': "cfg.fast",
    'cfg.fast and (cfg.strategy != "fsdp" or cfg.slow)': "cfg.fast",
    'not cfg.strategy == "fsdp2"': 'not (cfg.strategy in ("fsdp", "fsdp2"))',
    'cfg.backend == "fsdp"': 'cfg.backend == "fsdp"',
    'cfg.strategy == "ddp"': 'cfg.strategy == "ddp"',
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_setting_for_fsdp1_means_fsdp2_everywhere(question: str, tmp_path: Path) -> None:
    text = dropped(tmp_path, SETTING + f"def asked(cfg):\n    return {question}\n")
    assert text.rstrip().endswith(f"return {QUESTIONS[question]}")


def value_of(question: str, strategy: str, fast: bool, slow: bool) -> bool:
    class Settings(dict[str, object]):
        def __getattr__(self, name: str) -> object:
            return self[name]

    given = {"strategy": strategy, "fast": fast, "slow": slow, "backend": "fsdp"}
    return bool(eval(question, {"cfg": Settings(given)}))


@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_are_those_of_fsdp2(question: str) -> None:
    for strategy, meant in (("fsdp", "fsdp2"), ("fsdp2", "fsdp2"), ("ddp", "ddp")):
        for fast, slow in ((False, False), (False, True), (True, False), (True, True)):
            before = value_of(question, meant, fast, slow)
            assert value_of(QUESTIONS[question], strategy, fast, slow) is before


def test_findings_stand_at_the_lines_of_the_file_as_it_is(tmp_path: Path) -> None:
    body = ONE_OF_THREE + "\n\ndef save(model):\n    return FSDP(model.inner)\n"
    done = rewrite(tmp_path, body)
    lines = (IMPORTS + body).splitlines()
    wraps = [r.finding for r in done.reported if r.finding.code == "FM101"]
    assert [lines[f.place.line - 1].strip() for f in wraps] == ["return FSDP(model.inner)"]
    assert [(s.line, s.form) for s in done.wrap_sites] == [(wraps[0].place.line, "inline")]


def test_suppressed_branch_stays(tmp_path: Path) -> None:
    body = ONE_OF_THREE.replace('== "fsdp":', '== "fsdp":  # fsdp-migrate: ignore[FM120] still tested')
    done = rewrite(tmp_path, body)
    said = [(r.finding.code, r.outcome, r.detail) for r in done.reported if r.finding.code == "FM120"]
    assert said == [("FM120", Outcome.IGNORED, "still tested")]
    assert 'if how == "fsdp":' in next(c.after.decode() for c in done.changes if c.path == "a.py")


def test_windows_line_ends_stay(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes((IMPORTS + ONE_OF_THREE).replace("\n", "\r\n").encode())
    (change,) = plan_rewrite(tmp_path, ["a.py"], Options(drop_fsdp1=True)).changes
    assert change.after.count(b"\n") == change.after.count(b"\r\n") > 10


def test_emptied_block_stays_valid(tmp_path: Path) -> None:
    checks = """\
def check(cfg):
    if cfg.strategy in ("fsdp", "fsdp2"):
        assert not (cfg.offload and cfg.strategy == "fsdp")
        assert not (cfg.compile and cfg.strategy == "fsdp")
    return cfg
"""
    text = dropped(tmp_path, SETTING + checks)
    assert text.endswith("def check(cfg):\n    return cfg\n")


def test_name_that_a_configuration_file_mentions_stays(tmp_path: Path) -> None:
    body = ONE_OF_THREE.replace("FSDP(model, sharding_strategy=strategy)", "wrapped(model)")
    body = "def wrapped(model):\n    return FSDP(model)\n\n\n" + body
    assert "def wrapped" not in dropped(tmp_path, body)
    (tmp_path / "a.py").write_text(IMPORTS + body)
    (tmp_path / "run.yaml").write_text("_target_: a.wrapped\n")
    done = plan_rewrite(tmp_path, ["a.py", "run.yaml"], Options(drop_fsdp1=True))
    assert b"def wrapped" in next(c.after for c in done.changes if c.path == "a.py")


def test_way_that_only_sometimes_wraps_is_no_fsdp1_branch(tmp_path: Path) -> None:
    body = """\
def maybe(model, cfg):
    if cfg.many:
        model = FSDP(model)
    return model


def build(model, cfg):
    if cfg.new:
        model = shard_parts(model)
    else:
        model = maybe(model, cfg)
    return model
"""
    done = rewrite(tmp_path, body)
    assert [r.finding.code for r in done.open_findings] == ["FM121"]
    assert "else:\n        model = maybe(model, cfg)" in done.changes[0].after.decode()


def test_question_without_a_twin_becomes_one_for_fsdp2(tmp_path: Path) -> None:
    body = SETTING + "def count(model):\n    return sum(isinstance(m, FSDP) for m in model.modules())\n"
    assert "sum(isinstance(m, FSDPModule) for m in model.modules())" in dropped(tmp_path, body)


def test_function_that_insists_on_fsdp1_is_left_to_a_person(tmp_path: Path) -> None:
    body = (
        SETTING
        + """\
def version(model):
    if isinstance(model, FSDP):
        return 1
    elif isinstance(model, FSDPModule):
        return 2
    return 0


def load(model, path):
    if version(model) == 1:
        model = model.module
    else:
        raise NotImplementedError(version(model))
    model.path = path
"""
    )
    done = rewrite(tmp_path, body)
    assert [r.finding.message for r in done.open_findings if r.finding.code == "FM121"] == [
        "what is FSDP1's here is not dropped: it insists on FSDP1"
    ]
    assert "model.path = path" in done.changes[0].after.decode()


UNREAD = """\
def version(model):
    if isinstance(model, FSDP):
        return 1
    elif isinstance(model, FSDPModule):
        return 2
    return 0


def context(model, kind, config=None):
    if version(model) == 1:
        return FSDP.state_dict_type(model, kind, config)
    return nullcontext(model)


def save(model):
    kind = "sharded"
    with context(model, kind, config={CONFIG}):
        return model.state_dict()
"""


def test_parameters_that_only_fsdp1_read_go(tmp_path: Path) -> None:
    text = dropped(tmp_path, SETTING + UNREAD.replace("CONFIG", "1"))
    assert "def context(model):" in text and "with context(model):" in text and "kind" not in text


METHOD = """\
class Saver:
    def context(self, model, kind, config=None):
        if version(model) == 1:
            return FSDP.state_dict_type(model, kind, config)
        return nullcontext(model)

    def save(self, model):
        with self.context(model, "sharded", config=1):
            return model.state_dict()
"""


def test_parameters_of_methods_go_too(tmp_path: Path) -> None:
    head = UNREAD[: UNREAD.index("\n\ndef context")]
    text = dropped(tmp_path, SETTING + head + "\n\n" + METHOD)
    assert "def context(self, model):" in text and "with self.context(model):" in text
    # Of two methods of one name, a call can mean either.
    other = "\n\nclass Other:\n    def context(self, model, kind, config=None):\n        return kind\n"
    text = dropped(tmp_path, SETTING + head + "\n\n" + METHOD + other)
    assert 'with self.context(model, "sharded", config=1):' in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{CONFIG}", "make()"),
        ("config={CONFIG}", "**options"),
        ("return model.state_dict()", "return model.state_dict(), context"),
        ("def context(model, kind, config=None)", "def context(model, *kind, config=None)"),
    ],
    ids=["a value that does something", "keywords from elsewhere", "the function itself", "any number"],
)
def test_parameters_stay_where_a_call_cannot_do_without(old: str, new: str, tmp_path: Path) -> None:
    text = dropped(tmp_path, SETTING + UNREAD.replace(old, new))
    assert "kind, config" in text and "with context(model, kind" in text


def test_parameters_of_a_function_called_in_another_file_go_in_both_or_in_none(tmp_path: Path) -> None:
    caller = "from a import context\n\n\ndef load(model):\n    # fsdp\n    context(model, 'full', None)\n"
    for only, expected in ((None, "context(model)"), (frozenset({"a.py"}), None)):
        (tmp_path / "a.py").write_text(IMPORTS + SETTING + UNREAD)
        (tmp_path / "b.py").write_text(caller)
        done = plan_rewrite(tmp_path, ["a.py", "b.py"], Options(drop_fsdp1=True), only=only)
        after = {change.path: change.after.decode() for change in done.changes}
        assert ("def context(model):" in after["a.py"]) is (expected is not None)
        assert (expected in after["b.py"]) if expected else "b.py" not in after


def test_value_that_only_fsdp1_used_goes_with_the_call_that_made_it(tmp_path: Path) -> None:
    body = """\
def policy_of(model):
    policies = []
    if not hasattr(model, "layers"):
        logger.warning("no layers")
        raise ValueError("no layers")
    policies.append(len(model.layers))
    return policies


def build(model, cfg):
    policy = policy_of(model)
    if cfg.strategy == "fsdp":
        return FSDP(model, auto_wrap_policy=policy)
    elif cfg.strategy == "fsdp2":
        return shard_parts(model)
    return model
"""
    assert "policy" not in dropped(tmp_path, body)


def test_functions_of_one_name_that_call_themselves_go_together(tmp_path: Path) -> None:
    body = """\
def version(module):
    if isinstance(module, FSDP):
        return 1
    elif isinstance(module, FSDPModule):
        return 2
    return 0


class {name}:
    def sync(self, module):
        if version(module) == 1:
            self._sync_1(module)
        elif version(module) == 2:
            module.reshard()

    def _sync_1(self, module):
        for child in module.children():
            self._sync_1(child)
"""
    for path, name in (("a.py", "One"), ("b.py", "Two")):
        (tmp_path / path).write_text(IMPORTS + SETTING + body.format(name=name))
    done = plan_rewrite(tmp_path, ["a.py", "b.py"], Options(drop_fsdp1=True))
    assert [b"_sync_1" in c.after for c in done.changes] == [False, False]


def test_block_that_only_held_checks_for_fsdp1_goes(tmp_path: Path) -> None:
    checks = """\
def check(cfg):
    if cfg.strategy in ("fsdp", "fsdp2"):
        assert not (cfg.offload and cfg.strategy == "fsdp"), "pass fsdp2 instead"
    if cfg.later:
        pass
    return cfg
"""
    text = dropped(tmp_path, SETTING + checks)
    assert text.endswith("def check(cfg):\n    if cfg.later:\n        pass\n    return cfg\n")


KEYWORD_ONLY = """\
def context(model, *, kind, config=None):
    if version(model) == 1:
        return FSDP.state_dict_type(model, kind, config)
    return nullcontext(model)


def other(model, *, kind, depth=1):
    if version(model) == 1:
        model = FSDP.state_dict_type(model, kind)
    return nullcontext(model, depth)


def save(model):
    with context(model, kind="sharded", config=1), other(model, kind="full"):
        return model.state_dict()
"""


def test_parameters_by_keyword_alone_go_too(tmp_path: Path) -> None:
    head = UNREAD[: UNREAD.index("\n\ndef context")]
    text = dropped(tmp_path, SETTING + head + "\n\n" + KEYWORD_ONLY)
    assert "def context(model):" in text and "def other(model, *, depth=1):" in text
    assert "with context(model), other(model):" in text


GIVEN = """\
def gathered(model, cpu=False, *, depth=1):
    return whole(model, to_cpu=cpu, depth=depth)


def save(model, cfg):
    if cfg.strategy == "fsdp":
        with FSDP.state_dict_type(model, 1):
            return gathered(model, True, depth=2)
    elif cfg.strategy == "fsdp2":
        return gathered(model)
"""


def test_parameters_that_only_fsdp1s_branch_gave_become_their_defaults(tmp_path: Path) -> None:
    text = dropped(tmp_path, SETTING + GIVEN)
    assert "def gathered(model):\n    return whole(model, to_cpu=False, depth=1)" in text


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "    return whole",
            "    if cpu:\n        model = 1\n    return whole",
            "something is decided by it",
        ),
        (
            "    return whole",
            "    cpu = len(cpu)\n    return whole",
            "the function gives the name other values",
        ),
        ("    return whole", '    print(f"{cpu=}")\n    return whole', "a text is made with it"),
        ("    return whole", "    print(cpu.real)\n    return whole", "something is asked of it"),
        ("    return whole", "    print(cpu(model))\n    return whole", "something is asked of it"),
        ("cpu=False", "cpu=default()", "its default is worked out"),
        ("    return whole", '    """Into `cpu` memory."""\n    return whole', "the docstring speaks of it"),
    ],
)
def test_parameters_that_only_fsdp1s_branch_gave_stay_with_a_reason(
    old: str, new: str, reason: str, tmp_path: Path
) -> None:
    done = rewrite(tmp_path, SETTING + GIVEN.replace(old, new, 1))
    (note,) = [r for r in done.reported if "only FSDP1's branch gave" in r.finding.message]
    assert note.outcome is Outcome.NOTE and note.finding.message.endswith(reason)
    text = next(c.after.decode() for c in done.changes if c.path == "a.py")
    lines = (IMPORTS + SETTING + GIVEN.replace(old, new, 1)).splitlines()
    assert lines[note.finding.place.line - 1].startswith("def gathered(")
    assert "def gathered(model, cpu=" in text and "depth=depth" not in text


def test_parameters_that_something_still_gives_or_a_package_offers_stay(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(IMPORTS + SETTING + GIVEN)
    (tmp_path / "__init__.py").write_text("from .a import gathered\n\n# fsdp\n")
    done = plan_rewrite(tmp_path, ["a.py", "__init__.py"], Options(drop_fsdp1=True))
    said = [r.finding.message for r in done.reported if "only FSDP1's branch gave" in r.finding.message]
    assert [one.rpartition("because ")[2] for one in said] == [
        "the package offers this function to others"
    ] * 2
    (tmp_path / "__init__.py").write_text(
        "from .a import gathered\n\ngathered(1, cpu=True, depth=3)  # fsdp\n"
    )
    done = plan_rewrite(tmp_path, ["a.py", "__init__.py"], Options(drop_fsdp1=True))
    assert not any("only FSDP1's branch gave" in r.finding.message for r in done.reported)
