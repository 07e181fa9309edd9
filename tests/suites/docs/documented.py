#!/usr/bin/env python3
"""What README.md and docs/book say of commands, policies and metrics is there.

    documented.py commands | policies | metrics     from the top of the repository

Prints what is not. Exit status 1 if something is not, or if nothing was found to check."""
import re
import sys
from pathlib import Path

PAGES = [Path("README.md"), *sorted(Path("docs/book").rglob("*.md"))]
COMMAND = re.compile(r"\bforebay ([a-z]+)(?: ([a-z]+))?\b([^|`\n]*)")


def code(page):
    """The fenced blocks and the pieces of code in lines."""
    text = page.read_text()
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.M | re.S)
    return blocks + re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))


def commands():
    """Each subcommand is one, and has the options that it is given."""
    document = Path("docs/commands.md").read_text()
    sections = {title: text for title, text in re.findall(r"^## (forebay[^\n]*)\n(.*?)(?=^## |\Z)", document, re.M | re.S)}
    for page in PAGES:
        for first, second, rest in (found for piece in code(page) for found in COMMAND.findall(piece)):
            command, nested = f"forebay {first}", f"forebay {first} {second}"
            if command not in sections:
                yield page, command, False
                continue
            text = sections[nested if nested in sections else command]
            for option in re.findall(r"(?<!\S)--?[A-Za-z][\w-]*", re.split(r"(?:^|\s)--(?:\s|$)|#", rest)[0]):
                yield page, f"{command} {option}", re.search(rf"(?<![\w-]){option}(?![\w-])", text)


def policies():
    """Each KEY=VALUE is a rule that can be set."""
    table = re.findall(r"^\| `(\w+)` \| (.*?) \| `", Path("docs/policies.md").read_text(), re.M)
    keys = {key: re.findall(r"`([^`]+)`", values) for key, values in table}
    for page in PAGES:
        for key, value in (found for piece in code(page) for found in re.findall(r"(?<![\w.-])([a-z_]+)=([\w:./%-]+)", piece)):
            free = any(re.search(r"\b(T|N|PERCENT)\b", form) for form in keys.get(key, []))
            if key in keys or re.search(rf"(--policy |policy set \S+ ){key}=", page.read_text()):
                yield page, f"{key}={value}", key in keys and (free or value in keys[key])


def metrics():
    """Each field of what `status` and `run` report has its row."""
    page = Path("docs/book/reference/metrics.md")
    text = page.read_text() + Path("docs/metrics.md").read_text()
    named = set(re.findall(r"`(?:\w+\.)?(\w+)`", text))
    for file, struct in (
        ("crates/store/data-store/src/status.rs", "Status"),
        ("crates/store/data-store/src/status.rs", "StuckStatus"),
        ("crates/agent/windows/src/counters.rs", "WindowStatus"),
        ("crates/tools/cli/src/report.rs", "Report"),
        ("crates/tools/cli/src/report.rs", "Directory"),
    ):
        body = re.search(rf"^pub struct {struct} \{{\n(.*?)^\}}", Path(file).read_text(), re.M | re.S).group(1)
        for field in re.findall(r"^    pub (\w+):", body, re.M):
            yield page, f"{struct}.{field}", field in named


found = list({"commands": commands, "policies": policies, "metrics": metrics}[sys.argv[1]]())
wrong = [f"{page}: {what}" for page, what, there in found if not there]
print("\n".join([*wrong, f"{len(found)} {sys.argv[1]} are documented, {len(wrong)} of them are not there"]))
sys.exit(1 if wrong or not found else 0)
