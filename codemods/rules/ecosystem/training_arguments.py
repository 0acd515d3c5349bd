"""`TrainingArguments(fsdp=..., fsdp_config=...)` of Transformers (and TRL's configurations) in Python."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator

from codemods.analysis.library_calls import (
    beside,
    settings_beside,
    settings_of_call,
    trainer_calls,
    values_called_fsdp,
)
from codemods.configuration import trainer
from codemods.configuration.named import with_settings
from codemods.configuration.settings import Decisions, bare, number
from codemods.configuration.written_values import literal_of, strings_of, told_by, value_of
from codemods.editing.removal import delete_dict_items
from codemods.rule import (
    DictValue,
    Edit,
    Finding,
    Module,
    Project,
    Safety,
    Span,
    delete_arguments,
    finding,
    replace,
    rule,
)

_AWAY = (
    'make `fsdp` True here, and let `fsdp_config` say `"version": 2` and what the words said (`explain fsdp`)'
)
_FORMER = ("fsdp_transformer_layer_cls_to_wrap", "fsdp_min_num_params")


@rule(
    "TrainingArguments",
    {
        "FM616": "a trainer's FSDP arguments become FSDP2's",
        "FM617": "a trainer's FSDP arguments that need a person",
    },
    order=20,
)
def training_arguments(project: Project) -> Iterator[Finding]:
    """`TrainingArguments(fsdp="full_shard auto_wrap", fsdp_config={...})` becomes `fsdp=True` and an FSDP2
    `fsdp_config`.

    The same translation as in a trainer's files (`explain fsdp`). `fsdp="..." if flag else ""` keeps its
    condition. A file that `fsdp_config` names changes together with all that name it, or not at all. A
    dictionary that is written elsewhere, and a string made at run time, are left to you. Arguments of other
    classes that happen to be called `fsdp` are not touched. `label_smoothing_factor` is left to you too: the
    loss of a causal model is another one under FSDP2, without a word (`Trainer.compute_loss`, 5.x).
    """
    for module, call in trainer_calls(project):
        yield from with_settings(_call(project, module, call), settings_of_call(module, call))
    for module in project.looked_at:
        is_axolotls = "from axolotl" in module.text or "import axolotl" in module.text
        for value in values_called_fsdp(project, module) if "fsdp" in module.text else ():
            strings, around = strings_of(value), beside(module, value)
            if strings and all(_is_fsdp1(s) for s in strings) and not _is_for_xla(around):
                yield finding(
                    module,
                    value,
                    "FM617",
                    "a trainer's FSDP setting away from the trainer's call",
                    remedy=f"this looks like {trainer.AXOLOTL}"
                    if is_axolotls or trainer.is_axolotl(around)
                    else _AWAY,
                    shares=settings_beside(module, value),
                )


def _is_for_xla(around: dict[str, ast.expr]) -> bool:
    config = around.get("fsdp_config")
    told = told_by(config) if isinstance(config, ast.Dict) else None
    return told is not None and not trainer.is_fsdp1({bare(key): value for key, value in told.items()})


def _is_fsdp1(node: ast.expr) -> bool:
    """Whether a value says a sharding strategy in the trainer's words."""
    words = trainer.words_of(value_of(node))
    return words is not None and bool(words - {"offload", "auto_wrap"})


def _keyword(call: ast.Call, name: str) -> ast.keyword | None:
    return next((keyword for keyword in call.keywords if keyword.arg == name), None)


def _call(project: Project, module: Module, call: ast.Call) -> Iterator[Finding]:
    fsdp = _keyword(call, "fsdp")
    former = [keyword for name in _FORMER if (keyword := _keyword(call, name)) is not None]
    if fsdp is None:
        for keyword in former:
            yield finding(
                module,
                keyword,
                "FM617",
                f"`{keyword.arg}` does not exist in Transformers 5",
                remedy=f"put it into `fsdp_config` as `{bare(keyword.arg or '')}`",
            )
        return
    strings = strings_of(fsdp.value)
    if strings == []:
        return  # switched off, or FSDP2's already
    if strings is None or any(trainer.words_of(value_of(node)) is None for node in strings):
        if strings is None and not isinstance(fsdp.value, ast.Constant):
            message = (
                "`fsdp` is made at run time: words such as `full_shard auto_wrap` are FSDP2 with "
                "Transformers 5, which wraps the "
                "model's layers with or without `auto_wrap`"
            )
            yield finding(module, fsdp, "FM617", message, is_note=True)
        return
    words = {trainer.words_of(value_of(node)) for node in strings}
    values = [literal_of(keyword.value) for keyword in former]
    if len(words) != 1 or None in values:
        yield _left(
            module,
            fsdp,
            "the FSDP arguments differ from case to case",
            "pass `fsdp=True` and one `fsdp_config` for each case",
        )
        return
    named = dict(zip((k.arg for k in former), values, strict=True))
    layers = named.get(_FORMER[0])
    asked = trainer.Asked(
        next((w for w in words if w is not None), frozenset()),
        ",".join(layers) if isinstance(layers, list) else layers if isinstance(layers, str) else None,
        number(named.get(_FORMER[1])),
    )
    yield from _with_config(project, module, call, fsdp, strings, former, asked)


def _with_config(
    project: Project,
    module: Module,
    call: ast.Call,
    fsdp: ast.keyword,
    strings: list[ast.expr],
    former: list[ast.keyword],
    asked: trainer.Asked,
) -> Iterator[Finding]:
    config = _keyword(call, "fsdp_config")
    display = _display(project, module, config)
    told = told_by(display) if display is not None else {}
    if told is None or (config is not None and display is None and not _is_path(config.value)):
        yield _left(
            module,
            fsdp,
            "`fsdp_config` is made elsewhere or in part at run time",
            'pass `fsdp=True`, and give `fsdp_config` `"version": 2` and what the words of `fsdp` say '
            "(`explain fsdp`)",
        )
        return
    if told and not trainer.is_fsdp1({bare(key): value for key, value in told.items()}):
        return
    done = trainer.to_fsdp2(told, asked)
    for remark in done.remarks:
        if remark.is_note:
            yield finding(module, fsdp, "FM613", remark.message, is_note=True)
        else:
            yield _left(module, fsdp, remark.message, remark.remedy)
    if done.blocked:
        return
    edits = _config_edits(module, fsdp, config, display, told, done)
    if edits is None and config is not None:
        needed, path = trainer.beyond_defaults(done), module.code(config.value)
        remedy = f"pass `fsdp=True`, write {needed} into {path}, and run again"
        yield _left(module, fsdp, f"`fsdp` says what has to stand in {path}", remedy)
        return
    edits = [*(edits or ()), *(replace(module, node, ("True",)) for node in strings)]
    edits += delete_arguments(module, call, former)
    yield finding(module, fsdp, "FM616", "`fsdp` becomes FSDP2's", safety=Safety.SAFE, edits=edits)
    smoothing = _keyword(call, trainer.SMOOTHING)
    if smoothing is not None and trainer.smooths(literal_of(smoothing.value)):
        yield _left(module, smoothing, *trainer.SMOOTHS)


def _config_edits(
    module: Module,
    fsdp: ast.keyword,
    config: ast.keyword | None,
    display: ast.Dict | None,
    told: dict[str, object],
    done: Decisions,
) -> list[Edit] | None:
    """The edits of `fsdp_config`; None where a file that it names would have to say more."""
    if display is not None:
        return _display_edits(module, display, told, done)
    if config is not None and _is_path(config.value):
        return None if trainer.beyond_defaults(done) else []
    text = ", ".join(f"{json.dumps(key)}: {_python(value)}" for key, value in done.added)
    argument = "fsdp_config={" + text + "}"
    return [_after(module, fsdp, argument) if config is None else replace(module, config, (argument,))]


def _left(module: Module, node: ast.AST, message: str, remedy: str) -> Finding:
    return finding(module, node, "FM617", message, remedy=remedy)


def _is_path(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _display(project: Project, module: Module, config: ast.keyword | None) -> ast.Dict | None:
    """The dict display of `fsdp_config`: in the call, or the one value of a variable that only this call
    uses."""
    if config is None:
        return None
    if isinstance(config.value, ast.Dict):
        return config.value
    if not isinstance(config.value, ast.Name):
        return None
    value = project.evaluate(module, config.value)
    if not isinstance(value, DictValue) or value.origin.module is not module:
        return None
    uses = [n for n in module.nodes(ast.Name) if isinstance(n, ast.Name) and n.id == config.value.id]
    made = next((n for n in uses if isinstance(n.ctx, ast.Store)), None)
    statement = module.parent(made) if made is not None else None
    if len(uses) != 2 or not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Dict):
        return None
    return statement.value


def _display_edits(module: Module, display: ast.Dict, told: dict[str, object], done: Decisions) -> list[Edit]:
    keys = list(told)
    edits: list[Edit] = []
    kept = [position for position, key in enumerate(keys) if key not in done.removed]
    added = [f"{json.dumps(key)}: {_python(value)}" for key, value in done.added]
    if not kept:
        return [replace(module, display, ("{" + ", ".join(added) + "}",))]
    removed = [position for position, key in enumerate(keys) if key in done.removed]
    edits += delete_dict_items(module, display, removed)
    for position, key in enumerate(keys):
        if key in done.replaced:
            edits.append(replace(module, display.values[position], (_python(done.replaced[key][1]),)))
    first = display.keys[kept[0]]
    assert first is not None
    start = module.span(first).start
    lead = module.text[module.line_start(start) : start]
    separator = f",\n{lead}" if not lead.strip() else ", "
    edits.append(Edit(module.path, Span(start, start), ("".join(item + separator for item in added),)))
    return edits


def _after(module: Module, keyword: ast.keyword, argument: str) -> Edit:
    """A new argument behind another one, on a line of its own where that has one."""
    span = module.span(keyword)
    lead = module.text[module.line_start(span.start) : span.start]
    separator = f",\n{lead}" if not lead.strip() else ", "
    return Edit(module.path, Span(span.end, span.end), (separator + argument,))


def _python(value: object) -> str:
    text = json.dumps(value)
    return {"true": "True", "false": "False", "null": "None"}.get(text, text)
