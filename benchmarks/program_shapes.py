"""The shapes that training programs have: functions, closures, classes, containers of all there is, callbacks
that are given the trainer, builders that are looked up by a name."""

from __future__ import annotations

import textwrap

from program_saving import SAVE

NAMES = {
    "class": ("self.model", "self.optimizer"),
    "mixin": ("self.model", "self.optimizer"),
    "heir": ("self.model", "self.optimizer"),
    "callback": ("trainer.model", "trainer.optimizer"),
    "object": ("job.model", "job.optimizer"),
    "fields": ("job.model", "job.optimizer"),
    "dict": ('job["model"]', 'job["optimizer"]'),
}
"""Shape -> how the model and the optimizer are written."""
_HOLDERS = {
    "object": "job = types.SimpleNamespace()",
    "dict": "job = {}",
    "fields": "job = Job()",
}


_JOB = [
    "@dataclasses.dataclass",
    "class Job:",
    "    model: torch.nn.Module = None",
    "    optimizer: torch.optim.Optimizer = None",
]


def shaped(c: dict[str, str], built: str, steps: str, ended: str) -> str:
    """`main(out)`, and what it is made of.

    Args:
        built: statements that make the model and the optimizer.
        steps: those that train.
        ended: those that follow saving.
    """
    save = SAVE[c["save"]] or "pass"
    match c["shape"]:
        case "class" | "heir" | "mixin":
            asked = "self.save(out, rank)" if c["shape"] == "mixin" else save
            return _of_classes(c, built, "\n".join((steps, asked, ended)))
        case "closures":
            inner = [*_function("train()", [steps, "return losses, seen, ids, targets"])]
            inner += _function("save()", [save])
            lines = [built, *inner, "losses, seen, ids, targets = train()", "save()", ended]
            return "\n".join(_function("main(out)", ["rank, config = dist.get_rank(), CONFIG", *lines]))
        case "global":
            taken = ["rank = dist.get_rank()", "build(CONFIG)", steps, "save(out, rank)", ended]
            kept = _function("save(out, rank)", [save])
            made = _function("build(config)", ["global M, O", built])
            return "\n".join(["M = O = None", *made, *kept, *_function("main(out)", taken)])
        case "object" | "dict" | "fields":
            made = _function("build(config)", [_HOLDERS[c["shape"]], built, "return job"])
            kept = _function("save(job, out, rank)", [save])
            taken = ["rank = dist.get_rank()", "job = build(CONFIG)", steps, "save(job, out, rank)"]
            if c["shape"] == "fields":
                made = [*_JOB, *made]
            return "\n".join([*made, *kept, *_function("main(out)", [*taken, ended])])
        case "callback":
            return _with_callback(built, steps, save, ended)
    made = _function("build(config)", [built, "return M, O"])
    if c["shape"] == "table":
        made.append('BUILDERS = {"small": build}')
    kept = [] if c["shape"] == "split" else saving(c)
    build = 'BUILDERS["small"]' if c["shape"] == "table" else "build"
    taken = ["rank = dist.get_rank()", f"M, O = {build}(CONFIG)", steps, "save(M, O, out, rank)", ended]
    return "\n".join([*made, *kept, *_function("main(out)", taken)])


def _function(head: str, body: list[str]) -> list[str]:
    return [f"def {head}:", textwrap.indent("\n".join(filter(None, body)), "    ")]


def saving(c: dict[str, str]) -> list[str]:
    return _function("save(M, O, out, rank)", [SAVE[c["save"]] or "pass"])


def _with_callback(built: str, steps: str, save: str, ended: str) -> str:
    """A trainer that saves by a callback, to which it gives itself."""
    run = ["trainer = self", steps, "for callback in self.callbacks:", "    callback.at_end(self, out, rank)"]
    made = _function(
        "__init__(self, config, callbacks)", ["trainer = self", built, "self.callbacks = callbacks"]
    )
    lines = ["class Saver:"]
    lines += [textwrap.indent("\n".join(_function("at_end(self, trainer, out, rank)", [save])), "    ")]
    lines += ["class Trainer:"]
    lines += [textwrap.indent("\n".join([*made, *_function("run(self, out, rank)", [*run, ended])]), "    ")]
    started = ["return Trainer(CONFIG, [Saver()]).run(out, dist.get_rank())"]
    return "\n".join([*lines, *_function("main(out)", started)])


def _of_classes(c: dict[str, str], built: str, run: str) -> str:
    """A trainer, whose model a class that inherits from it can make."""
    made = _function("__init__(self, config)", [built])
    if c["shape"] == "heir":
        base = [
            *_function("__init__(self, config)", ["self.set_up(config)"]),
            *_function("run(self, out, rank)", [run]),
        ]
        heir = _function("set_up(self, config)", [built])
        classes = [("Base", base), ("Trainer(Base)", heir)]
    elif c["shape"] == "mixin":
        kept = _function("save(self, out, rank)", [SAVE[c["save"]] or "pass"])
        classes = [("Saving", kept)]
        classes.append(("Trainer(Saving)", [*made, *_function("run(self, out, rank)", [run])]))
    else:
        classes = [("Trainer", [*made, *_function("run(self, out, rank)", [run])])]
    lines = [
        line
        for name, body in classes
        for line in (f"class {name}:", textwrap.indent("\n".join(body), "    "))
    ]
    return "\n".join([*lines, *_function("main(out)", ["return Trainer(CONFIG).run(out, dist.get_rank())"])])
