"""A settings file changes together with everything that names it, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from tool import rewrite_in_place
from transformers import TrainingArguments

from codemods.model import Options, Outcome, Rewrite
from codemods.plan import plan_rewrite
from codemods.sources import find_files

_FSDP1 = '{"version": 1, "transformer_layer_cls_to_wrap": ["Block"], "forward_prefetch": false}\n'
_FSDP2 = '{"version": 2, "transformer_layer_cls_to_wrap": ["Block"]}\n'
_HYBRID = "python train.py --fsdp 'hybrid_shard auto_wrap' --fsdp_config"
_FULL = "python train.py --fsdp 'full_shard auto_wrap' --fsdp_config"
_ACCELERATE = "fsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\ndistributed_type: FSDP\n"


def _planned(folder: Path, files: dict[str, str], *only: str) -> tuple[Rewrite, dict[str, str]]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    plan = plan_rewrite(
        folder, find_files(folder, [folder]), Options(), only=frozenset(only) if only else None
    )
    after = {change.path: change.after.decode() for change in plan.changes}
    return plan, {name: after.get(name, text) for name, text in files.items()}


def _calls(*arguments: str) -> str:
    calls = [f"TrainingArguments('out', {one})\n" for one in arguments]
    return "from transformers import TrainingArguments\n\n" + "".join(calls)


@pytest.mark.parametrize(
    ("path", "text", "settings"),
    [
        ("run.sh", f"{_HYBRID} fsdp.json\n", "fsdp.json"),
        ("run.sh", f"{_HYBRID} ./fsdp.json\n", "fsdp.json"),
        ("run.sh", f"{_HYBRID}=fsdp.json\n", "fsdp.json"),
        ("run.sh", f"python train.py --fsdp $HOW --fsdp_config fsdp.json # {'full_shard'}\n", "fsdp.json"),
        ("scripts/run.sh", f"{_HYBRID} ../conf/fsdp.json\n", "conf/fsdp.json"),
        ("scripts/run.sh", f"{_HYBRID} fsdp.json\n", "scripts/fsdp.json"),
        ("run.sh", f"{_FULL} $HERE/fsdp.json\n", "conf/fsdp.json"),
        ("run.sh", f"CFG=conf/fsdp.json\nread CFG\n{_FULL} $CFG\n", "conf/fsdp.json"),
        ("run.sh", f"CFG=conf/fsdp.json\n{_HYBRID} $CFG\n", "conf/fsdp.json"),
        ("run.sh", f"{_FULL.replace('full_shard', 'shard_grad_op')} fsdp.json\n", "fsdp.json"),
        ("Dockerfile", f"CMD {_HYBRID} fsdp.json\n", "fsdp.json"),
        ("train.py", _calls("fsdp='hybrid_shard', fsdp_config='fsdp.json'"), "fsdp.json"),
        ("train.py", _calls("fsdp='shard_grad_op', fsdp_config='fsdp.json'"), "fsdp.json"),
        ("train.py", "told = {'fsdp': 'full_shard', 'fsdp_config': 'fsdp.json'}\n", "fsdp.json"),
        (
            "train.py",
            "words = ['train.py', '--fsdp', 'hybrid_shard auto_wrap', '--fsdp_config', 'fsdp.json']\n",
            "fsdp.json",
        ),
        (
            "train.yaml",
            "do_train: true\noutput_dir: x\nfsdp: hybrid_shard auto_wrap\nfsdp_config: fsdp.json\n",
            "fsdp.json",
        ),
    ],
)
def test_a_file_stays_with_what_names_it(tmp_path: Path, path: str, text: str, settings: str) -> None:
    """And other lines that name it stay as well; those of other files do not."""
    others = {"other.sh": f"{_FULL} {settings}\n", "free.sh": f"{_FULL} free.json\n"}
    plan, after = _planned(tmp_path, {path: text, settings: _FSDP1, "free.json": _FSDP1, **others})
    assert after[settings] == _FSDP1 and after["other.sh"] == others["other.sh"]
    assert after["free.json"] == _FSDP2 and "--fsdp --fsdp_config free.json" in after["free.sh"]
    [held] = [r for r in plan.reported if r.finding.place.path == settings]
    assert held.outcome is Outcome.TODO and f"in {path}:" in held.detail + f"in {path}:" * (
        "in other.sh:" in held.detail
    )


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("run.sh", f"{_FULL} $CFG\n"),
        ("train.py", "def f(c):\n    return TrainingArguments('o', fsdp='full_shard', fsdp_config=c)\n"),
    ],
)
def test_a_file_that_nobody_names_stays_with_who_names_an_unseen_one(
    tmp_path: Path, path: str, text: str
) -> None:
    """One of which it is seen who names it goes on."""
    text = f"from transformers import TrainingArguments\n\n{text}" if path.endswith(".py") else text
    files = {path: text, "unnamed.json": _FSDP1, "named.json": _FSDP1, "n.sh": f"{_FULL} named.json\n"}
    plan, after = _planned(tmp_path, files)
    assert (after["unnamed.json"], after["named.json"]) == (_FSDP1, _FSDP2)
    [held] = [r for r in plan.reported if r.finding.place.path == "unnamed.json"]
    assert held.outcome is Outcome.TODO and f" in {path}:" in held.detail


_SETS_CFG = {
    "CFG=conf/fsdp.json": True,
    'export CFG="conf/fsdp.json"': True,
    "HERE=conf\n# CFG names the settings\nA=1; CFG=$HERE/fsdp.json": True,
    "source env.sh\nCFG=conf/fsdp.json": True,
    "f() {\n  echo\n}\nCFG=conf/fsdp.json": True,
    "CFG=conf/fsdp.json\nsource env.sh": False,
    "CFG=conf/fsdp.json\nexport $(cat .env)": False,
    "CFG=${1:-conf/fsdp.json}": False,
    "if [ -z $1 ]; then\n  CFG=conf/fsdp.json\nfi": False,
    "test -f x && CFG=conf/fsdp.json": False,
    "test -f x &&\n  CFG=conf/fsdp.json": False,
    "(\nCFG=conf/fsdp.json\n)": False,
    "f() {\nCFG=conf/fsdp.json\n}": False,
    "CFG=conf/fsdp.json\nCFG=other.json": False,
    "CFG=conf/fsdp.json echo": False,
    "for CFG in conf/fsdp.json; do": False,
    "CFG=$(dirname $0)/fsdp.json": False,
    "CFG='conf/*.json'": False,
}


@pytest.mark.parametrize("setting", _SETS_CFG)
@pytest.mark.parametrize("use", ["$CFG", '"${CFG}"'])
def test_a_variable_is_read_where_its_value_is_certain(tmp_path: Path, setting: str, use: str) -> None:
    files = {"run.sh": f"{setting}\n{_FULL} {use}\n", "conf/fsdp.json": _FSDP1}
    plan, after = _planned(tmp_path, files)
    if _SETS_CFG[setting]:
        assert after["run.sh"] == f"{setting}\npython train.py --fsdp --fsdp_config {use}\n"
        assert after["conf/fsdp.json"] == _FSDP2
    else:
        assert after["run.sh"].endswith(f"\n{_FULL} {use}\n") and after["conf/fsdp.json"] == _FSDP1
        assert "FM615" in {r.finding.code for r in plan.reported if r.outcome is Outcome.TODO}


@pytest.mark.parametrize(
    ("script", "is_read"),
    [
        ("bash <<'EOF'\nCFG=c.json\n{X} --fsdp_config $CFG\nEOF\n", True),
        ("CFG=c.json\nbash <<'EOF'\n{X} --fsdp_config $CFG\nEOF\n", False),
        ('CFG=c.json\nCMD="{X} --fsdp_config $CFG"\neval "$CMD"\n', True),
        ("CFG=c.json\nbash -c '{X} --fsdp_config $CFG'\n", False),
        ("CFG=c.json\nARGS=(\n  --fsdp full_shard auto_wrap\n  --fsdp_config $CFG\n)\n", True),
    ],
)
def test_a_variable_is_read_in_the_script_that_sets_it(tmp_path: Path, script: str, is_read: bool) -> None:
    """Not in one that another shell runs."""
    script = script.replace("{X}", "python train.py --fsdp full_shard auto_wrap")
    after = _planned(tmp_path, {"run.sh": script, "c.json": _FSDP1})[1]
    assert ("full_shard" not in after["run.sh"]) is is_read
    assert after["c.json"] == (_FSDP2 if is_read else _FSDP1)


def test_a_line_stays_with_the_file_that_needs_a_person(tmp_path: Path) -> None:
    settings = '{"transformer_layer_cls_to_wrap": ["A"], "state_dict_type": "LOCAL_STATE_DICT"}\n'
    files = {"run.sh": f"{_FULL} fsdp.json\n", "fsdp.json": settings}
    assert _planned(tmp_path, files)[1] == files


@pytest.mark.parametrize("only", ["run.sh", "fsdp.json"])
def test_a_file_that_may_not_be_changed_holds_the_other(tmp_path: Path, only: str) -> None:
    files = {"run.sh": f"{_FULL} fsdp.json\n", "fsdp.json": _FSDP1}
    assert _planned(tmp_path, files, only)[1] == files


def test_an_ignored_line_holds_its_file(tmp_path: Path) -> None:
    files = {"run.sh": f"# fsdp-migrate: ignore[FM614] later\n{_FULL} f.json\n", "f.json": _FSDP1}
    assert _planned(tmp_path, files)[1] == files


def test_launch_flags_and_accelerates_file(tmp_path: Path) -> None:
    launch = "accelerate launch --config_file acc.yaml --fsdp_sharding_strategy {} train.py\n"
    files = {"run.sh": launch.format("$HOW"), "acc.yaml": _ACCELERATE}
    assert _planned(tmp_path, files)[1]["acc.yaml"] == _ACCELERATE
    after = _planned(tmp_path, {**files, "run.sh": launch.format("FULL_SHARD")})[1]
    assert "fsdp_version: 2" in after["acc.yaml"] and "--fsdp_version 2" in after["run.sh"]


def test_what_is_left_still_runs_and_what_was_done_by_hand_goes_on(tmp_path: Path) -> None:
    """The real trainer takes the words it refuses with version 2; when the line is FSDP2's, the file
    becomes so too."""
    files = {"train.py": _calls("fsdp='shard_grad_op', fsdp_config='fsdp.json'"), "fsdp.json": _FSDP1}
    _planned(tmp_path, files)
    rewrite_in_place(tmp_path)
    assert (tmp_path / "fsdp.json").read_text() == _FSDP1
    TrainingArguments("out", fsdp="hybrid_shard auto_wrap", fsdp_config=str(tmp_path / "fsdp.json"))
    (tmp_path / "train.py").write_text(_calls("fsdp=True, fsdp_config='fsdp.json'"))
    rewrite_in_place(tmp_path)
    assert (tmp_path / "fsdp.json").read_text() == _FSDP2


@pytest.mark.parametrize("value", ["$CFG", '"$CFG"', "=$CFG", "$(find . -name x)", "'{broken'", ""])
def test_words_are_not_lost_where_the_settings_are_unseen(tmp_path: Path, value: str) -> None:
    line = f"{_FULL} {value}\n".replace(" =", "=")
    plan, after = _planned(tmp_path, {"run.sh": line})
    assert after["run.sh"].endswith(line)
    [item] = plan.reported
    assert item.finding.code == "FM615" and item.outcome is Outcome.TODO
    assert '"version": 2, "reshard_after_forward": true' in item.finding.remedy
