#!/usr/bin/env python3
"""Checks links: that files and anchors are there, and that a source file defines what a link to it names (drain.rs#bring). The network is
not asked.

    scripts/links.py FILE.md... | DIRECTORY     Markdown files, or every page of a built book

Prints a line for each broken link. Exit status 1 if there is one."""
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`", re.M | re.S)
FENCE = re.compile(r"^ *```.*?^ *```", re.M | re.S)

# What defines NAME, by the kind of the source file.
VISIBLE = r"(?:pub(?:\([^)\n]*\))? )?"
ITEM = rf"^ *{VISIBLE}(?:(?:const|async|unsafe|extern \"\w+\") )*(?:fn|struct|enum|union|trait|const|static|type|mod|macro_rules!) (?:mut )?NAME\b"
DEFINED = {
    ".rs": ITEM,
    ".py": r"^ *(?:async )?(?:def|class) NAME\b|^NAME =",
    ".sh": r"^ *(?:function )?NAME *\(\)",
}
# A Rust type or a table that a macro reads, as rustfmt lays it out, and what defines NAME in it: a field, a variant, a row.
TABLE = re.compile(rf"^( *)(?:{VISIBLE}(?:struct|enum|union) [^;{{]*|[$\w]+! )\{{\n(.*?)^\1\}}", re.M | re.S)
ROW = rf"^INDENT    (?:{VISIBLE}|[^\n]*, (?=NAME = ))\"?NAME\"?(?=[:;,({{ ]|$)"


def slug(heading):
    """The anchor of a heading, as code forges and mdBook make it."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", words))


class Page(HTMLParser):
    """The links and anchors of a built page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for key, value in attributes:
            if key in ("id", "name") and value:
                self.anchors.add(value)
            elif key in ("href", "src") and value:
                self.links.append(value)


class Text:
    """The links and anchors of a Markdown file."""

    def __init__(self, text):
        self.links, self.anchors = LINK.findall(CODE.sub("", text)), set(re.findall(r'<a id="([^"]+)"', text))
        for heading in re.findall(r"^#+ +(.*?) *#*$", FENCE.sub("", text), re.M):
            numbered = (slug(heading) + (f"-{copy}" if copy else "") for copy in range(1000))
            self.anchors.add(next(anchor for anchor in numbered if anchor not in self.anchors))


def read(path, known={}):
    if path not in known:
        known[path] = (Page if path.suffix == ".html" else Text)(path.read_text(encoding="utf-8"))
    return known[path]


def defines(path, name):
    """Whether a source file defines a name."""
    if path.suffix not in DEFINED:
        return False
    text, name = path.read_text(), re.escape(name)
    if re.search(DEFINED[path.suffix].replace("NAME", name), text, re.M):
        return True
    tables = TABLE.findall(text) if path.suffix == ".rs" else []
    return any(re.search(ROW.replace("INDENT", indent).replace("NAME", name), rows, re.M) for indent, rows in tables)


def broken(page, link):
    """Why a link is broken, or None."""
    parts = urlsplit(link)
    if parts.scheme or link.startswith("//"):
        return None
    target, anchor = (page.parent / unquote(parts.path)).resolve() if parts.path else page, unquote(parts.fragment)
    if not target.exists():
        return "no such file"
    if not anchor or target.is_dir():
        return None
    if target.suffix in (".md", ".html"):
        return None if anchor in read(target).anchors else "no such anchor"
    return None if defines(target, anchor) else "the file does not define it"


def main(names):
    pages = [page for name in map(Path, names) for page in (sorted(name.rglob("*.html")) if name.is_dir() else [name])]
    found = [(page, link) for page in map(Path.resolve, pages) for link in read(page).links]
    wrong = [f"{page}: {link}: {why}" for page, link in found if (why := broken(page, link))]
    print("\n".join([*wrong, f"{len(found)} links in {len(pages)} files, {len(wrong)} broken"]))
    return 1 if wrong or not found else 0


sys.exit(main(sys.argv[1:]))
