"""The HTML page as a reader meets it: in a browser where one is installed, as parsed markup in any case."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import browser
import pytest
from reporting import program, write

HEAD = "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
FAR = "    print(1)\n" * 20
LONG = "x" * 3000
HOSTILE = (
    HEAD
    + f"""TEXT = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"


def train(model, النموذج):
    model = FSDP(model, use_orig_params=True)  # שלום 🚀👨‍👩‍👧
    # \u202e turned \x1b[31m red\x1b[0m \x07
    print(model._handle, "</script><b>bold</b>", "\x1b]0;owned\x07")  # </pre></li></section><b>
    print(model._handles, "{LONG}")
    النموذج = model.module
    print(model.flat_param)  # fsdp-migrate: ignore[FM507] </script><b> "why" & 'how'
    return النموذج
"""
)
FILES = {
    "hostile.py": HOSTILE,
    'a"><script>x.py': HEAD + "models = [FSDP(m) for m in models]\n",
    "clean.py": HEAD + "model = FSDP(model)\n",
    "far.py": f"{HEAD}def f(model):\n    model = FSDP(model)\n{FAR}    return model\n",
}
MANY = 2_000


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a project whose files are not on our side."""
    folder = write(tmp_path_factory.mktemp("page") / 'te"st <b>', FILES)
    (folder / os.fsdecode(b"caf\xe9.py")).write_text(HEAD + "models = [FSDP(m) for m in models]\n")
    (folder / "nul.py").write_bytes(b"# fsdp\nx = '\0'\n")
    out = folder.parent / "page.html"
    options = ["--check", "--format", "html", "--output", str(out)]
    told = program("rewrite", *options, folder.name, cwd=folder.parent)
    assert told.code == 1, told.err
    return out


@pytest.fixture(scope="module")
def big_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of 2,000 findings and more."""
    body = "".join(f"    print(model._handle, {number})\n" for number in range(MANY // 20))
    text = f"{HEAD}def f(model):\n    model = FSDP(model)\n{body}    return model\n"
    folder = write(tmp_path_factory.mktemp("big"), {f"p/m{number:02}.py": text for number in range(20)})
    told = program("rewrite", "--check", "--format", "html", "--output", "page.html", "p", cwd=folder)
    assert told.code == 1, told.err
    return folder / "page.html"


class _Marked(HTMLParser):
    """What stands in the page that a file could have put there."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: dict[str, int] = {}
        self.ids: set[str] = set()
        self.classes: set[str] = set()
        self.links: list[str] = []
        self.form_is_hidden = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        told = dict(attrs)
        if told.get("id"):
            self.ids.add(told["id"] or "")
        self.classes.update((told.get("class") or "").split())
        if tag == "a":
            self.links.append(told["href"] or "")
        if tag == "form":
            self.form_is_hidden = "hidden" in told
        assert not any(name.startswith("on") for name in told), attrs


def test_markup_holds_nothing_that_a_file_put_there(page: Path) -> None:
    data = page.read_bytes()
    text = data.decode("utf-8")  # names of files that are no UTF-8 do not spoil the page
    marked = _Marked(text)
    assert (marked.tags["script"], marked.tags.get("img", 0), marked.tags["form"]) == (1, 0, 1)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)
    assert "&lt;U+202E&gt; turned &lt;U+001B&gt;[31m red" in text
    assert "caf&lt;0xE9&gt;.py" in text
    assert "[... 2," in text and LONG not in text


def declarations(sheet: str, around: str = "") -> Iterator[tuple[str, str, str]]:
    """(at-rule around it, selector, property) of everything that a style sheet sets, in order."""
    for head, body in re.findall(r"([^{};]+)\{((?:[^{}]|\{[^{}]*\})*)\}", sheet):
        if head.strip().startswith("@"):
            yield from declarations(body, head.strip())
            continue
        for selector in head.split(","):
            for name in re.findall(r"(?:^|;)\s*([\w-]+)\s*:", body):
                yield around, " ".join(selector.split()), name


def test_style_sheet_says_everything_once_and_of_what_pages_have(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    sheet = re.sub(
        r"/\*.*?\*/", "", text[text.index("<style>") + 7 : text.index("</style>")], flags=re.DOTALL
    )
    said = list(declarations(sheet))
    assert {("", ".part .count", "text-align"), ("@media print", ".finding", "break-inside")} <= set(said)
    assert [one for one, times in Counter(said).items() if times > 1] == []
    # A file that is new: the helper module.
    write(
        tmp_path / "p", {"a.py": f"{HEAD}def f(model, how):\n    return FSDP(model, auto_wrap_policy=how)\n"}
    )
    told = program("rewrite", "--check", "--format", "html", "p", cwd=tmp_path)
    marked = _Marked(text)
    marked.classes |= _Marked(told.out).classes
    for _, selector, _ in said:
        assert set(re.findall(r"\.([a-z][\w-]*)", selector)) <= marked.classes, selector
        assert set(re.findall(r"#([a-z]\w*)", selector)) <= marked.ids, selector


def test_every_link_leads_somewhere_and_the_filter_waits_for_the_script(page: Path) -> None:
    marked = _Marked(page.read_text())
    choices = re.compile(r"#(code=FM\d{3}|outcome=(todo|note|ignored|done))$")
    assert marked.links
    assert [link for link in marked.links if link[1:] not in marked.ids and not choices.match(link)] == []
    assert marked.form_is_hidden


_FACTS = """({
    title: document.title,
    scripts: document.scripts.length,
    images: document.images.length,
    bold: [...document.querySelectorAll('b b, pre b, .diff b, h2 b')].length,
    wide: document.documentElement.scrollWidth,
    sections: document.querySelectorAll('main > section').length,
    shown: document.getElementById('shown').value,
    filter: getComputedStyle(document.getElementById('filter')).display,
})"""


def test_page_in_a_browser(page: Path, big_page: Path) -> None:
    found = browser.installed()
    if found is None:  # the markup is looked at above; nothing here could see more of it
        assert "form.hidden = false" in page.read_text()
        return
    with browser.browser(found) as open_browser:
        _nothing_runs_and_nothing_overflows(open_browser, page)
        _filter_by_code(open_browser, page)
        _narrow_and_without_script(open_browser, page)
        _quick_with_many_findings(open_browser, big_page)


def _nothing_runs_and_nothing_overflows(here: browser.Browser, page: Path) -> None:
    for width in (360, 800, 1280):
        here.width(width)
        here.open(page)
        facts: dict[str, Any] = here.run(_FACTS)
        assert facts["title"] == 'FSDP1 to FSDP2: te"st <b>'
        assert (facts["scripts"], facts["images"], facts["bold"]) == (1, 0, 0)
        assert facts["wide"] <= width
        assert facts["sections"] == len(FILES) + 2
        assert facts["filter"] == "flex"


def _filter_by_code(here: browser.Browser, page: Path) -> None:
    visible = "[...document.querySelectorAll('.finding')].filter((f) => f.offsetParent !== null)"
    codes = f"[...new Set({visible}.map((f) => f.dataset.code))].sort().join()"
    here.open(page, "#code=FM507")
    assert here.run(codes) == "FM507"
    assert here.run("document.getElementById('shown').value").startswith("3 of ")
    hunks = "[...document.querySelectorAll('.diff tbody')].filter((h) => h.offsetParent !== null)"
    assert here.run(f"{hunks}.every((h) => h.dataset.codes.includes('FM507'))")
    # A click does what the address does, and the address follows.
    here.run("document.querySelector('[data-all=\"1\"]').click()")
    assert here.run("location.hash") == ""
    assert "FM103" in here.run(codes)
    here.run("document.querySelector('input[value=FM103]').click()")
    assert "FM103" not in here.run(codes)
    assert "FM507" in here.run("location.hash")
    here.run("document.querySelector('a.tile.ignored').click()")
    here.run("new Promise((done) => setTimeout(done, 50))")
    assert here.run(f"{visible}.map((f) => f.dataset.outcome).join()") == "ignored"
    here.run("form.elements.text.value = 'no such thing'; form.dispatchEvent(new Event('input'))")
    assert here.run(f"{visible}.length") == 0
    assert here.run("document.getElementById('nothing').hidden") is False


def _narrow_and_without_script(here: browser.Browser, page: Path) -> None:
    here.width(360)
    here.open(page)
    # On a phone a changed line stands above what it became, and a line that stayed stands once.
    shown = "(e) => getComputedStyle(e).display !== 'none'"
    assert here.run(f"[...document.querySelectorAll('tr.same td.old')].some({shown})") is False
    assert here.run(f"[...document.querySelectorAll('tr.changed td.old:not(.none)')].every({shown})") is True
    here.ask("Emulation.setScriptExecutionDisabled", value=True)
    here.open(page)
    assert here.run("getComputedStyle(document.getElementById('filter')).display") == "none"
    assert here.run("document.querySelectorAll('.finding').length") > 5
    here.ask("Emulation.setScriptExecutionDisabled", value=False)


def _quick_with_many_findings(here: browser.Browser, big_page: Path) -> None:
    here.width(1280)
    here.open(big_page)
    assert here.run("document.querySelectorAll('.finding').length") > MANY
    took_ms = here.run(
        "(() => { const start = performance.now(); form.elements.text.value = '_handle, 7';"
        "form.dispatchEvent(new Event('input')); document.body.offsetHeight;"
        "return performance.now() - start; })()"
    )
    assert here.run("document.getElementById('shown').value").startswith("220 of ")
    assert took_ms < 2_000  # 40 ms on an idle machine
