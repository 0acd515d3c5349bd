"""The arms of an `if` chain, their text with its comments, and the chain of some of its arms."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codemods.analysis.module import Module
from codemods.dual_stack.spans import is_elif, only, removed, terminates
from codemods.model import Edit, Hole, Span


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """`if`, `elif` ... and the statements of the last `else`."""

    module: Module
    arms: list[ast.If]
    rest: list[ast.stmt]

    @property
    def head(self) -> ast.If:
        return self.arms[0]


def chain_of(module: Module, node: ast.If) -> Chain:
    """The chain that an `if` belongs to."""
    head = node
    while is_elif(module, head):
        parent = module.parent(head)
        assert isinstance(parent, ast.If)
        head = parent
    arms = [head]
    while len(arms[-1].orelse) == 1 and is_elif(module, arms[-1].orelse[0]):
        following = arms[-1].orelse[0]
        assert isinstance(following, ast.If)
        arms.append(following)
    return Chain(module, arms, arms[-1].orelse)


def chains(module: Module, nodes: Sequence[ast.AST]) -> Iterator[Chain]:
    """The chains that some `if`s belong to, each once."""
    seen: set[ast.AST] = set()
    for node in nodes:
        if isinstance(node, ast.If):
            chain = chain_of(module, node)
            if chain.head not in seen:
                seen.add(chain.head)
                yield chain


def rebuilt(
    chain: Chain, kept: Sequence[ast.If], rest: Sequence[ast.stmt], rest_header: ast.If | None
) -> Edit | None:
    """The chain of some of its arms; `rest` becomes the last `else`, or all of it where no arm is kept."""
    module, head = chain.module, chain.head
    if not kept:
        if not rest:
            return removed(module, head, head)
        last = _unreachable_from(module, head) if terminates(rest) else head
        return only(module, head, rest, last)
    if any(module.line_of(module.span(arm.body[0]).start) == _header_line(module, arm) for arm in chain.arms):
        return None
    indent = module.text[module.line_start(module.span(head).start) : module.span(head).start]
    parts: list[str | Hole] = []
    for position, arm in enumerate(kept):
        parts += [f"\n{indent}elif" if position else "if", Hole(_region(chain, arm))]
    if rest and rest_header is not None:
        is_else = rest is chain.rest
        region = _else_region(chain) if is_else else _body_region(chain, rest_header)
        parts += [f"\n{indent}else:" if not is_else else f"\n{indent}else", Hole(region)]
    return Edit(module.path, module.span(head), tuple(parts))


def _unreachable_from(module: Module, head: ast.If) -> ast.stmt:
    return module.block(head)[-1]


def _header_line(module: Module, arm: ast.If) -> int:
    return module.line_of(module.span(arm.test).end)


def _keyword_end(module: Module, arm: ast.If) -> int:
    start = module.span(arm).start
    return start + (len("elif") if is_elif(module, arm) else len("if"))


def _region(chain: Chain, arm: ast.If) -> Span:
    """From after an arm's keyword to the end of its body, the comments below it included."""
    return Span(_keyword_end(chain.module, arm), _region_end(chain, arm))


def _region_end(chain: Chain, arm: ast.If) -> int:
    module = chain.module
    following = arm.orelse
    if not following:
        return module.span(arm.body[-1]).end
    if arm is not chain.arms[-1]:
        limit = module.line_start(module.span(following[0]).start)
    else:
        limit = module.line_start(_else_keyword(chain))
    return limit - (len(module.text[:limit]) - len(module.text[:limit].rstrip()))


def _else_keyword(chain: Chain) -> int:
    module, arm = chain.module, chain.arms[-1]
    position = module.line_end(module.span(arm.body[-1]).end)
    while not module.text[position : module.line_end(position)].lstrip().startswith("else"):
        position = module.line_end(position)
    return position + len(module.text[position:]) - len(module.text[position:].lstrip())


def _else_region(chain: Chain) -> Span:
    start = _else_keyword(chain) + len("else")
    return Span(start, chain.module.span(chain.rest[-1]).end)


def _body_region(chain: Chain, arm: ast.If) -> Span:
    """From after an arm's colon to the end of its body."""
    module = chain.module
    after = module.span(arm.test).end
    colon = module.text.index(":", after)
    return Span(colon + 1, _region_end(chain, arm))
