"""New long lines are broken the way the formatter would, and mean what they meant."""

import ast
import re
import subprocess
import sys

import pytest

from codemods.editing.layout import configured_line_length
from codemods.editing.line_wrap import wrap_long_lines

LONG = [
    "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.maximum_norm).full_tensor()",
    "state = full_tensors(get_model_state_dict(self.policy_model), offload_to_cpu=True, rank0_only=False)",
    "torch.save({'model': get_model_state_dict(model, options=config), 'teacher': whole(teacher)}, path)",
    "units = [module for module in self.model_of_policy.modules() if isinstance(module, FSDPModule)]",
    "context = nullcontext if (step + 1) % accumulate == 0 else functools.partial(no_sync, self.model)",
    "is_unit = isinstance(module, (TransformerBlock, Embedding)) or module in set_of_units_by_policy",
    "return get_optimizer_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True))",
    "set_model_state_dict(self.model.generator, state_dict, options=StateDictOptions(full_state_dict=True))",
    "norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01, "
    "norm_type=2).full_tensor().item())",
    "total = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type=2.0).full_tensor()  # usual",
]


def _formatted(text: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "88", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("line", LONG)
def test_breaks_as_the_formatter_does(line: str) -> None:
    text = f"def f():\n    {line}\n"
    wrapped = wrap_long_lines("", text, 88, "\n")
    # The formatter also changes quotes; only the line breaks are compared.
    assert _formatted(wrapped) == _formatted(text)
    assert wrapped.replace("'", '"') == _formatted(text)


@pytest.mark.parametrize("line", LONG)
def test_lines_indented_with_tabs_are_broken_with_tabs(line: str) -> None:
    text = f"def f():\n\tif g():\n\t\t{line}\n"
    wrapped = wrap_long_lines("", text, 80, "\n")
    first, *inner, last = wrapped.splitlines()[2:]
    assert all(re.match(r"\t\t\t+[^\s]", row) for row in inner) and re.match(r"\t\t[^\s]", last)
    assert first.startswith("\t\t") and ast.dump(ast.parse(wrapped)) == ast.dump(ast.parse(text))


@pytest.mark.parametrize(
    "line",
    [
        "if module is not model and (is_trainable_leaf(module) or isinstance(module, "
        "TransformerBlock)): pass",
        "value = (first_long_condition_name or second_long_condition_name) and third_long_condition_name_",
        "call(some_first_argument_of_it, (second_argument_long or third_argument_long), (fourth, fifth_one))",
        "f((yield_of_a_very_long_name_of_something for yield_of_a_very_long_name_of_something in "
        "all_things))",
        "x = {**first_dictionary_of_settings, 'second': second_setting_of_everything, **third_dictionary_}",
        "message = 'a string, which nobody can break: ' 'and another one that follows it without a comma  '",
    ],
)
def test_parentheses_keep_their_meaning(line: str) -> None:
    wrapped = wrap_long_lines("", f"{line}\n", 88, "\n")
    assert ast.dump(ast.parse(wrapped)) == ast.dump(ast.parse(line))


def test_lines_that_were_there_before_stay() -> None:
    line = f"x = {'a' * 50}({'b' * 30}, {'c' * 30})\n"
    assert wrap_long_lines(line, f"y = 1\n{line}", 88, "\n") == f"y = 1\n{line}"


def test_newlines_are_kept() -> None:
    line = f"x = function({'b' * 40}, {'c' * 40})\r\n"
    assert wrap_long_lines("", line, 60, "\r\n") == (
        f"x = function(\r\n    {'b' * 40},\r\n    {'c' * 40},\r\n)\r\n"
    )


@pytest.mark.parametrize(
    "line",
    [
        "if step == 0: model.train(); torch.nn.utils.clip_grad_norm_(model.parameters(), maximum_norm_of)",
        "if step == 0: torch.nn.utils.clip_grad_norm_(model.parameters(), the_maximum_norm_of_all_gradients)",
        "loss.backward(); torch.nn.utils.clip_grad_norm_(model.parameters(), the_maximum_norm_of_gradients)",
    ],
)
def test_several_statements_on_a_line_stay_on_it(line: str) -> None:
    text = f"def f():\n    {line}\n"
    assert wrap_long_lines("", text, 88, "\n") == text


ALIGNED = """\
class Trainer:
    def wrap(self, model, cfg):
        self.model = shard_model(model, policy=cfg.policy, precision=cfg.precision,
                                 strategy=STRATEGIES[cfg.strategy], **cfg.more).train()
"""
HANGING = """\
class Trainer:
    def wrap(self, model, cfg):
        self.model = shard_model(
            model,
            policy=cfg.policy,
            precision=cfg.precision,
            strategy=STRATEGIES[cfg.strategy],
            **cfg.more,
        ).train()
"""


def test_an_aligned_call_that_is_too_long_has_an_argument_a_line() -> None:
    before = ALIGNED.replace("shard_model", "FSDP").replace("\n       ", "\n")
    assert wrap_long_lines(before, ALIGNED, 79, "\n") == HANGING
    assert wrap_long_lines(before, HANGING, 79, "\n") == HANGING
    assert wrap_long_lines(before, ALIGNED.replace("\n", "\r\n"), 79, "\r\n") == HANGING.replace("\n", "\r\n")


@pytest.mark.parametrize("argument", ["(yield cfg))", "(cfg.policy))", "cfg.policy)  # why"])
def test_an_aligned_call_with_brackets_or_comments_of_its_own_is_not_torn(argument: str) -> None:
    start = f"        self.model = shard_model(model, {'a' * 45},\n"
    text = "class T:\n    def wrap(self, model, cfg):\n" + start + " " * 33 + argument + "\n"
    assert wrap_long_lines("", text, 79, "\n") == text


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("[tool.black]\nline-length = 100\n", 100),
        ("[flake8]\nmax-line-length = 99\n", 99),
        ("    -   id: black\n        args: [--line-length=120]\n", 120),
        ("      args: ['--line-length', '110', '--target-version=py310']\n", 110),
        ("[tool.black]\npreview = true\n", None),
    ],
)
def test_line_length_is_that_of_the_formatter(text: str, width: int | None) -> None:
    assert configured_line_length([text]) == width
