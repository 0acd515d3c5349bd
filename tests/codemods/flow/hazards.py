"""What goes wrong on an FSDP2 model, as code that uses one: `{m}` is the model.

Each hazard has the codes of which one has to stand at its marked line (`# <-`, the first line where there is
no mark).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hazard:
    """Code that uses a model.

    Attributes:
        codes: one of these is found.
        is_expression: the code is one expression, so that it can stand within a comprehension.
    """

    text: str
    codes: frozenset[str]

    @property
    def is_expression(self) -> bool:
        return "\n" not in self.text and " = " not in self.text and not self.text.startswith("with ")


def _hazard(text: str, *codes: str) -> Hazard:
    return Hazard(text, frozenset(codes))


HAZARDS = {
    "state_dict": _hazard("torch.save({m}.state_dict(), 'f')", "FM402"),
    "load_state_dict": _hazard("{m}.load_state_dict(torch.load('f'))", "FM403"),
    "generate": _hazard("out = {m}.generate(x)", "FM311"),
    "forward": _hazard("out = {m}.forward(x)", "FM308"),
    "module": _hazard("inner = {m}.module", "FM307"),
    "deepcopy": _hazard("ema = copy.deepcopy({m})", "FM510"),
    "numel": _hazard("count = sum(p.numel() for p in {m}.parameters())", "FM515"),
    "numel in a loop": _hazard(
        "count = 0\nfor p in {m}.parameters():\n    count += p.numel()  # <-", "FM515"
    ),
    "summed norm": _hazard("norm = sum(p.grad.norm() ** 2 for p in {m}.parameters())", "FM514"),
    "norm over a list": _hazard(
        "params = [p for p in {m}.parameters() if p.grad is not None]\n"
        "norm = torch.stack([p.grad.norm() for p in params]).norm()  # <-",
        "FM514",
    ),
    "formatted norm": _hazard("norm = {m}.clip_grad_norm_(1.0)\nprint(f'{{norm:.3f}}')", "FM301"),
    "torch's clipping": _hazard("torch.nn.utils.clip_grad_norm_({m}.parameters(), 1.0)", "FM302"),
    "torch's clipping of a list": _hazard(
        "params = list({m}.parameters())\ntorch.nn.utils.clip_grad_norm_(params, 1.0)  # <-", "FM302"
    ),
    "exact class": _hazard("blocks = [b for b in {m}.modules() if type(b) is Block]", "FM508"),
    "names after a forward": _hazard(
        "loss = {m}(x)\nfor name, p in {m}.named_parameters():  # <-\n    average[name].lerp_(p, 0.1)",
        "FM520",
    ),
    "zero_grad": _hazard(
        "with {m}.no_sync():\n    {m}(x).backward()\n    optimizer.zero_grad()  # <-", "FM304"
    ),
    "no_sync": _hazard("with {m}.no_sync():\n    {m}(x).backward()", "FM303"),
    "summon_full_params": _hazard("with {m}.summon_full_params({m}):\n    use({m})", "FM305"),
    "wrapper attribute": _hazard("group = {m}.process_group", "FM310"),
    "apply": _hazard("{m}.apply(init)", "FM310"),
    "raw optimizer state": _hazard(
        "optim = torch.optim.AdamW({m}.parameters())\ntorch.save(optim.state_dict(), 'o')  # <-", "FM409"
    ),
}
