"""`CustomPolicy` away from the wrap call that takes it."""

from __future__ import annotations

from collections.abc import Iterator

from codemods.custom_policies import CUSTOM_POLICY, as_condition, says_yes_or_no
from codemods.rule import CallValue, Finding, Project, rule
from codemods.wrap_site import arguments_of


@rule("CustomPolicy", {"FM204": "`CustomPolicy` away from the wrap call becomes a condition"})
def custom_policy(project: Project) -> Iterator[Finding]:
    """A `CustomPolicy` of a yes-or-no function that gets to its wrap call at run time becomes
    `functools.partial(lambda_auto_wrap_policy, lambda_fn=...)`, as it does at the call.

    Left to a person: a function that gives single units settings of their own, and one whose answers depend
    on what it was asked before, because modules are asked about in another order.
    """
    if not project.uses(CUSTOM_POLICY):
        return
    visible = {
        argument.value.origin.node
        for site in project.wraps
        for argument in arguments_of(project, site)[0]
        if isinstance(argument.value, CallValue)
    }
    for module, call in project.calls_of(CUSTOM_POLICY):
        named = [k.value for k in call.keywords if k.arg == "lambda_fn"]
        given = [*call.args, *named]
        is_plain = len(given) == 1 and len(call.keywords) == len(named)
        if call not in visible and is_plain and says_yes_or_no(project, module, given[0]):
            yield as_condition(module, call, given[0], "FM204")
