"""Every link of the manual leads to a file or heading that exists, and tables fit 140 columns: links_test.py SOURCE_DIRECTORY"""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1]).resolve()
PAGES = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "models").glob("*.md"), *(root / "scripts").rglob("*.md"),
         root / "test/slow_tests.md"]
GENERATED = {"configuration.md"}  # its tables have a whole sentence in each row
LONGEST_ROW = 140


def without_blocks(text):
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^    .*$", "", text, flags=re.MULTILINE)


def anchors(page):
    """The names that GitHub gives to headings."""
    headings = re.findall(r"^#+ (.*)$", without_blocks(page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def problems(page):
    text = without_blocks(page.read_text(encoding="utf-8"))
    links = re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", text) + re.findall(r'<img src="([^"]+)"', text)
    for link in links:
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{link}: no such file"
        elif anchor and anchor not in anchors(target):
            yield f"{link}: no such heading"
    if page.name not in GENERATED:
        for row in re.findall(r"^\|.*$", text, re.MULTILINE):
            if len(row) > LONGEST_ROW:
                yield f"a table row of {len(row)} columns: {row[:60]}..."


found = [f"{page.relative_to(root)}: {problem}" for page in sorted(PAGES) for problem in problems(page)]
assert len(PAGES) > 30, f"only {len(PAGES)} pages: is {root} the source directory?"
for line in found:
    print(line)
print(f"{len(PAGES)} pages")
sys.exit(bool(found))
