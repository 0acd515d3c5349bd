"""FSDP flags wherever commands stand: quoted texts, here-documents, Makefiles, Dockerfiles, lists in Python.

Each rewritten command is run for real (with a program that prints its arguments in place of the trainer), and
what the trainer then gets is parsed by the real `HfArgumentParser`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tool import Result, rewrite_in_place
from transformers import HfArgumentParser, TrainingArguments

FLAGS = '--fsdp "full_shard auto_wrap" --fsdp_transformer_layer_cls_to_wrap Block'
SHOW = f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n"


def rewritten(path: Path, text: str) -> Result:
    path.write_text(text)
    return rewrite_in_place(path.parent)


def programs(folder: Path) -> dict[str, str]:
    """An environment in which `torchrun` prints its arguments."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    for name in ("torchrun", "show"):
        (bin_folder / name).write_text(SHOW)
        (bin_folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}


def ran(command: list[str], folder: Path) -> list[str]:
    """What `torchrun` was given."""
    scratch = folder.parent / "programs"
    scratch.mkdir()
    done = subprocess.run(
        command, cwd=folder, env=programs(scratch), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def settings(arguments: list[str]) -> dict[str, Any]:
    """The FSDP settings that the real trainer reads from its command line."""
    given = [a for a in arguments if a != "train.py"]
    (parsed,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(
        ["--output_dir", "out", *given]
    )
    assert parsed.fsdp is True
    return dict(parsed.fsdp_plugin_args)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


SHELL = {
    "plain": f"torchrun train.py {FLAGS}\n",
    "double quotes, read again": f'CMD="torchrun train.py {FLAGS.replace(chr(34), chr(39))}"\neval "$CMD"\n',
    "double quotes, bash -c": (
        f'export CMD="torchrun train.py {FLAGS.replace(chr(34), chr(39))}"\nbash -c "$CMD"\n'
    ),
    "single quotes, read again": f"CMD='torchrun train.py {FLAGS}'\neval $CMD\n",
    "single quotes, bash -c": f"bash -c 'torchrun train.py {FLAGS}'\n",
    "split at blanks": 'CMD="torchrun train.py --fsdp full_shard"\n$CMD\n',
    "split at blanks, over lines": 'CMD="torchrun train.py \\\n  --fsdp full_shard \\\n  --seed 1"\n${CMD}\n',
    "options in a variable": "OPTIONS='--fsdp full_shard'\ntorchrun train.py $OPTIONS\n",
    "script in a here-document": f"bash <<'EOF'\ntorchrun train.py {FLAGS}\nEOF\n",
    "script written by a script": f"cat > job.sh <<EOF\ntorchrun train.py {FLAGS}\nEOF\nbash job.sh\n",
}


@pytest.mark.parametrize("name", SHELL)
def test_commands_in_shell_still_run_and_mean_fsdp2(name: str, project: Path) -> None:
    result = rewritten(project / "run.sh", SHELL[name])
    assert (result.codes, result.open_codes) == (["FM614"], [])
    found = settings(ran(["bash", "run.sh"], project))
    assert found["fsdp_version"] == 2
    assert found["reshard_after_forward"] is True
    if "auto_wrap" in SHELL[name]:
        assert found["auto_wrap_policy"] == "TRANSFORMER_BASED_WRAP"
        assert found["transformer_cls_names_to_wrap"] == "Block"
    assert rewrite_in_place(project).codes == []


UNKNOWN = {
    "never run": 'CMD="torchrun train.py --fsdp full_shard"\n',
    "run both ways": 'CMD="torchrun train.py --fsdp full_shard"\n$CMD\neval "$CMD"\n',
    "escapes": 'CMD="torchrun train.py --fsdp \\"full_shard auto_wrap\\""\neval "$CMD"\n',
    "settings that a script writes": (
        "cat > fsdp.yaml <<EOF\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\nEOF\n"
    ),
    "a blank that a split text cannot hold": (
        'CMD="torchrun train.py --fsdp full_shard --fsdp_config {\\"min_num_params\\":1}"\n$CMD\n'
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_texts_whose_use_is_not_known_are_left_with_a_comment(name: str, project: Path) -> None:
    result = rewritten(project / "run.sh", UNKNOWN[name])
    assert result.open_codes == ["FM615"]
    after = (project / "run.sh").read_text()
    lines = [line for line in after.splitlines(keepends=True) if not line.startswith(("# TODO", "#   "))]
    assert "".join(lines) == UNKNOWN[name] and "# TODO(fsdp-migrate FM615)" in after
    assert rewrite_in_place(project).open_codes == ["FM615"]


def test_text_that_is_only_shown_is_not_touched(project: Path) -> None:
    text = (
        "cat <<EOF\nusage: run.sh --fsdp full_shard\nEOF\npython - <<EOF\nprint('--fsdp full_shard')\nEOF\n"
    )
    assert rewritten(project / "run.sh", text).codes == []


def test_makefile(project: Path) -> None:
    text = f"FLAGS = {FLAGS}\n\ntrain:\n\t@torchrun train.py $(FLAGS) \\\n\t  --seed 1\n"
    assert rewritten(project / "Makefile", text).codes == ["FM614"]
    assert shutil.which("make")
    found = settings(ran(["make", "-s", "train"], project))
    assert (found["fsdp_version"], found["transformer_cls_names_to_wrap"]) == (2, "Block")


def test_dockerfile_in_both_forms(project: Path) -> None:
    items = [
        "torchrun",
        "train.py",
        "--fsdp",
        "full_shard auto_wrap",
        "--fsdp_transformer_layer_cls_to_wrap",
        "Block",
    ]
    listed = json.dumps(items).replace(', "--fsdp"', ', \\\n     "--fsdp"')
    text = f"FROM scratch\nRUN torchrun train.py {FLAGS} \\\n    --seed 1\nCMD {listed}\n"
    result = rewritten(project / "Dockerfile", text)
    assert (result.codes, result.open_codes) == (["FM614", "FM614"], [])
    after = (project / "Dockerfile").read_text()
    _, run, command = after.replace("\\\n", "").splitlines()
    arguments = json.loads(command.removeprefix("CMD "))
    assert settings(arguments[1:])["transformer_cls_names_to_wrap"] == "Block"
    (project / "run.sh").write_text(run.removeprefix("RUN ") + "\n")
    assert settings(ran(["bash", "run.sh"], project))["transformer_cls_names_to_wrap"] == "Block"


def test_large_file_that_names_settings_is_reported(project: Path) -> None:
    text = json.dumps({"fsdp": "full_shard", "rows": ["x" * 1000] * 600})
    result = rewritten(project / "trainer.json", text)
    assert result.open_codes == ["FM901"]
    assert "512 KiB" in result.lines[0]


def test_large_file_of_data_is_not(project: Path) -> None:
    assert rewritten(project / "data.json", json.dumps(["x" * 1000] * 600)).codes == []


LIST = (
    '["torchrun", "train.py", "--fsdp", "full_shard auto_wrap", '
    '"--fsdp_transformer_layer_cls_to_wrap", "Block"]'
)
COMMAND = f"torchrun train.py {FLAGS}"
PYTHON = {
    "list given to subprocess": f"import subprocess\n\nsubprocess.run({LIST}, check=True)\n",
    "list with a value of the program": "import subprocess\n\nscript = 'train.py'\nsubprocess.run("
    + LIST.replace('"train.py"', "script")
    + ", check=True)\n",
    "list over lines": "import subprocess\n\nCOMMAND = [\n"
    + "".join(f"    {item!r},\n" for item in json.loads(LIST))
    + "]\nsubprocess.check_call(COMMAND)\n",
    "text for os.system": f"import os\n\nos.system('{COMMAND}')\n",
    "text in other quotes": 'import os\n\nos.system("' + COMMAND.replace('"', "'") + '")\n',
    "text with shell=True": f"import subprocess\n\nsubprocess.run('{COMMAND}', shell=True, check=True)\n",
    "text that is split": (
        f"import shlex\nimport subprocess\n\nsubprocess.run(shlex.split('{COMMAND}'), check=True)\n"
    ),
}


@pytest.mark.parametrize("name", PYTHON)
def test_commands_in_python_still_run_and_mean_fsdp2(name: str, project: Path) -> None:
    result = rewritten(project / "launch.py", PYTHON[name])
    assert (result.codes, result.open_codes) == (["FM618"], [])
    found = settings(ran([sys.executable, "launch.py"], project))
    assert (found["fsdp_version"], found["reshard_after_forward"]) == (2, True)
    assert found["transformer_cls_names_to_wrap"] == "Block"
    assert rewrite_in_place(project).codes == []


SET = "import sys\n\nsys.argv = ['x', '--output_dir', 'out'"
ARGUMENTS = {
    "sys.argv is set": SET + ", '--fsdp', 'full_shard']\nrest = None\n",
    "sys.argv is added to": SET + "]\nsys.argv += ['--fsdp=full_shard']\nrest = None\n",
    "arguments are given": (
        "rest = ['--output_dir', 'out', '--fsdp', 'full_shard', 'offload', '--seed', '1']\n"
    ),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_in_python_mean_fsdp2(name: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rewritten(project / "run.py", ARGUMENTS[name]).codes == ["FM618"]
    monkeypatch.setattr(sys, "argv", ["run.py"])
    space: dict[str, Any] = {}
    exec((project / "run.py").read_text(), space)
    (parsed,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(space["rest"])
    assert (parsed.fsdp, parsed.fsdp_plugin_args["fsdp_version"]) == (True, 2)


LEFT = {
    "f-string": "import os\n\nn = 2\nos.system(f'torchrun --nproc {n} train.py --fsdp full_shard')\n",
    "text kept": "CMD = 'torchrun train.py --fsdp full_shard'\n",
    "hybrid": "x = ['train.py', '--fsdp', 'hybrid_shard']\n",
}


@pytest.mark.parametrize("name", LEFT)
def test_commands_in_python_that_need_a_person(name: str, project: Path) -> None:
    assert rewritten(project / "run.py", LEFT[name]).open_codes == ["FM619"]
    assert "# TODO(fsdp-migrate FM619)" in (project / "run.py").read_text()


@pytest.mark.parametrize(
    "text",
    [
        "x = ['train.py', '--fsdp']\n",
        "parser.add_argument('--fsdp', default='', help='such as --fsdp full_shard')\n",
        "x = ['train.py', '--fsdp', '--fsdp_config', '{\"version\": 2}']\n",
        "def f():\n    'run with --fsdp full_shard'\n",
    ],
)
def test_python_without_fsdp1_flags_is_not_touched(text: str, project: Path) -> None:
    assert rewritten(project / "run.py", text).codes == []


@pytest.mark.parametrize("value", ["./conf/cpu_offload/fsdp2.json", '"$CONF/offload.yaml"'])
def test_flags_of_other_programs_that_name_a_file_are_not_touched(value: str, project: Path) -> None:
    assert rewritten(project / "run.sh", f"torchrun train.py --fsdp {value} --seed 1\n").codes == []
