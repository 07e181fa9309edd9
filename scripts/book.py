#!/usr/bin/env python3
"""Assembles the sources of the book: docs/book, and the documents of docs/ that have a place in it.

    scripts/book.py DIRECTORY

Links are written for the repository, so that they work where its files are browsed. Here they are changed: to the page
that a document becomes, or to the repository's own page where it becomes none. Clauses of docs/semantics.md get anchors,
and a link whose text is a clause's number, such as [S15](../../semantics.md), leads to the clause."""
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
BOOK = "docs/book/"
# The documents that live elsewhere, and the pages that they become.
PAGES = {
    "docs/commands.md": "reference/commands.md",
    "docs/policies.md": "reference/policies.md",
    "docs/semantics.md": "reference/semantics.md",
    "docs/clauses.md": "reference/clauses.md",
    "docs/window.md": "reference/windows.md",
    "docs/server.md": "reference/server.md",
    "docs/slowfs.md": "reference/slowfs.md",
    "docs/limits.md": "performance/limits.md",
    "ARCHITECTURE.md": "inside/architecture.md",
    "CONTRIBUTING.md": "inside/contributing.md",
    "CHANGELOG.md": "inside/changelog.md",
}
LINK = re.compile(r"(\[[^\]]*\]\()<?([^)\s>]+)>?(\))")
KEPT = re.compile(r"(^ *```.*?^ *```|`[^`\n]*`)", re.M | re.S)
CLAUSE = re.compile(r"^\*\*(S\d+)\.\*\*", re.M)


def sources():
    """Every file of the book: where it lies, and where it goes."""
    for path in sorted((TOP / BOOK).rglob("*")):
        if path.is_file():
            yield path.relative_to(TOP).as_posix(), path.relative_to(TOP / BOOK).as_posix()
    for adr in sorted((TOP / "docs/adr").glob("*.md")):
        yield f"docs/adr/{adr.name}", f"inside/adr/{adr.name}"
    yield from PAGES.items()


def relinked(text, source, page, pages, repository):
    def link(match):
        before, target, after = match.groups()
        path, _, anchor = target.partition("#")
        if not path or "://" in target or path.startswith("mailto:"):
            return match.group()
        there = os.path.normpath(os.path.join(os.path.dirname(source), path))
        if there in pages:
            clause = re.fullmatch(r"\[(S\d+)\]\(", before)
            anchor = anchor or (clause.group(1).lower() if clause and there == "docs/semantics.md" else "")
            there = os.path.relpath(pages[there], os.path.dirname(page))
        else:
            there = f"{repository}/{'tree' if (TOP / there).is_dir() else 'blob'}/main/{there}"
        return f"{before}{there}{'#' + anchor if anchor else ''}{after}"

    parts = KEPT.split(text)
    return "".join(part if KEPT.fullmatch(part) else LINK.sub(link, part) for part in parts)


def main(out):
    shutil.rmtree(out, ignore_errors=True)
    repository = tomllib.loads((TOP / "Cargo.toml").read_text())["workspace"]["package"]["repository"]
    pages = dict(sources())
    titles = {s: (TOP / s).read_text().split("\n", 1)[0].lstrip("# ") for s in pages if s.startswith("docs/adr/")}
    for source, page in pages.items():
        (out / page).parent.mkdir(parents=True, exist_ok=True)
        if not page.endswith(".md"):
            shutil.copy(TOP / source, out / page)
            continue
        text = (TOP / source).read_text()
        for mark, form in (("<!-- decisions, nested -->", "  - [{}]({})"), ("<!-- decisions -->", "- [{}]({})")):
            links = (form.format(title, os.path.relpath(adr, os.path.dirname(source))) for adr, title in titles.items())
            text = text.replace(mark, "\n".join(links))
        if source == "docs/semantics.md":
            text = CLAUSE.sub(lambda clause: f'<a id="{clause.group(1).lower()}"></a>{clause.group()}', text)
        (out / page).write_text(relinked(text, source, page, pages, repository))


main(Path(sys.argv[1]))
