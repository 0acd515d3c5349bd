"""Findings of the plan rather than of a rule's check: leftovers, the files themselves, suppressions."""

from __future__ import annotations

from codemods.registered_rules import Rule, register

LEFT_OVER = "what is left over"
LEFT_OVERS = {"FM516": "an FSDP1 name that is still used and that no other finding speaks of"}
FILES = {
    "FM901": "the file could not be read",
    "FM903": "the file was left as it is",
}
SUPPRESSIONS = {
    "FM904": "a suppression without a reason",
    "FM905": "a suppression that suppresses nothing",
}

TRAINER_MODELS = {"FM623": "a trainer's model is asked for its state dict, and FSDP2 shards it now"}

_TRAINER_MODELS_MANUAL = """\
`trainer.model.state_dict()` of a trainer whose launch script or settings file becomes FSDP2's gives shards.

Under FSDP1 it was the whole state dict, which programs write with `trainer._save(path, state_dict=...)`. No
line of such a program says FSDP; it is looked at because a `--fsdp` flag, a trainer's settings or those of
Accelerate were rewritten in the same tree. So is `self.model` in a class that derives from a trainer.
`trainer.save_model()` knows both, and `trainer.accelerator.get_state_dict(trainer.model)`, called on every
rank, gives whole tensors. Branches where FSDP is not in use, and tests, are left out.

Programs that give their models to `accelerator.prepare` are looked through as if they had asked for FSDP
themselves: state dicts, norms and counts of parameters, copies, an optimizer's own state, what is prepared
apart. What is found so says that the settings choose FSDP, has the code that it has elsewhere, and is never
changed, since such a program may be launched without FSDP as well.
"""

TORCH_PINS = {"FM124": "a requirement lets in a torch with which the rewritten code does not run"}

_TORCH_PINS_MANUAL = """\
`torch==2.1.0` in the requirements beside rewritten code keeps out the torch that it needs.

FSDP2 is public from torch 2.6 on (with `--target-torch 2.4` from 2.4 on). Noted once for each requirements
file, `pyproject.toml`, `setup.py`, `setup.cfg`, `Pipfile` and conda environment in the folders of changed
files and above them, where a wrap was translated: a pin to an older torch, an upper bound below it, or a
lower bound that lets older ones in. So is one that is made when the file is used (`torch==${VERSION}`, an
f-string, a git address), where no other line says it. Nothing is changed: what else such a file asks for has
to fit together.
"""

_LEFT_OVER_MANUAL = """\
Every FSDP1 name that is still used after all other rules have spoken is left to a person.

Nothing is left over in silence: where a rule did not recognise how a name is used, the name itself is
reported with what usually takes its place.
"""

_FILES_MANUAL = """\
A file that could not be looked at, or whose rewritten form would not do, is left alone.

FM901: the file cannot be opened, decoded or parsed by this Python. Nothing in it was looked at, so
nothing is known about it: mend it, or leave it out with `--exclude`.

FM903: what the rules made of the file does not parse, reads a name that nothing defines any more, or has
characters that its encoding lacks. The file stays as it was. This is a fault of the tool and worth a
report. Or the file needs more of a function of the repository's helper module than an earlier run wrote
there, and a person has changed that function since: give the function what the file needs (`shard_model`
one more keyword, say) and run `rewrite` again.
"""

_SUPPRESSIONS_MANUAL = """\
`# fsdp-migrate: ignore[FM507] reason` leaves one place alone; the reason is part of it.

The comment stands on a line of the statement, or alone on the line above it. Without codes in brackets
it holds for every code. What it suppresses is reported as ignored, with its reason.

FM904: the comment gives no reason. Whoever reads it next cannot tell whether it still holds, so it
counts as work left.

FM905: no finding of this run stands where the comment does. It can go. Not said where `--select` or
`--ignore` leave codes out.
"""

register(Rule(LEFT_OVER, LEFT_OVERS, None, _LEFT_OVER_MANUAL))
register(Rule("a trainer's model", TRAINER_MODELS, None, _TRAINER_MODELS_MANUAL))
register(Rule("requirements", TORCH_PINS, None, _TORCH_PINS_MANUAL))
register(Rule("files", FILES, None, _FILES_MANUAL))
register(Rule("suppressions", SUPPRESSIONS, None, _SUPPRESSIONS_MANUAL))
