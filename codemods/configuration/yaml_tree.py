"""YAML with places, read as Accelerate and Transformers read it: PyYAML's safe loader, YAML 1.1.

PyYAML's marks count characters of the text given to it, so an edit can be made at exactly what was read.
"""

from __future__ import annotations

import yaml

from codemods.configuration.tree import Entry, Items, Mapping, Node, Scalar
from codemods.model import Span


class YamlError(ValueError):
    """The text is no YAML (a template, or a mistake); the message names the line."""


def read_yaml(text: str) -> tuple[Node, ...]:
    """The documents of a YAML text.

    Raises:
        YamlError: it cannot be parsed.
    """
    try:
        loader = yaml.SafeLoader(text)
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise YamlError(" ".join(str(error).split())) from error
    builder = _Builder(loader, text)
    documents = []
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                documents.append(builder.build(node, 0, 0))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, OverflowError) as error:
        raise YamlError(" ".join(str(error).split())) from error
    finally:
        loader.dispose()
    return tuple(documents)


class _Builder:
    """From PyYAML's nodes to ours."""

    def __init__(self, loader: yaml.SafeLoader, text: str) -> None:
        self._loader = loader
        self._text = text

    def build(self, node: yaml.Node, after: int, depth: int) -> Node:
        """A node; one that starts before `after` is an alias, written elsewhere."""
        if depth > 100:
            raise ValueError("nested too deep")
        start, end = node.start_mark.index, node.end_mark.index
        if isinstance(node, yaml.ScalarNode):
            value = self._value(node)
            if node.style in ("|", ">"):
                end = len(self._text[:end].rstrip())
            return Scalar(value, Span(start, end))
        if isinstance(node, yaml.SequenceNode):
            items = tuple(self.build(item, start, depth + 1) for item in node.value)
            return Items(items, Span(start, end if node.flow_style else _last_end(items, start)))
        assert isinstance(node, yaml.MappingNode)
        return self._mapping(node, after, depth)

    def _value(self, node: yaml.Node) -> object:
        """What a key or scalar stands for; its text where a program of its own gives the tag a meaning, as in
        `!!python/name:pkg.function` and `!ENV NAME`."""
        if node.tag not in self._loader.yaml_constructors:
            return node.value
        return self._loader.construct_object(node, deep=True)

    def _mapping(self, node: yaml.MappingNode, after: int, depth: int) -> Mapping:
        start, end = node.start_mark.index, node.end_mark.index
        flow = bool(node.flow_style)
        shared = start < after
        entries = []
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                shared = True
                continue
            name = str(self._value(key))
            key_span = Span(key.start_mark.index, key.end_mark.index)
            built = self.build(value, key_span.end, depth + 1)
            entries.append(Entry(name, key_span, built))
        span = Span(start, end if flow else _last_end(tuple(e.node for e in entries), start))
        return Mapping(tuple(entries), span, flow, shared)


def _last_end(nodes: tuple[Node, ...], start: int) -> int:
    return max((node.span.end for node in nodes), default=start)
