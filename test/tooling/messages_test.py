"""Every message of docs/messages.md is one that the sources can print: messages_test.py SOURCE_DIRECTORY"""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
sources = "\n".join(path.read_text(encoding="utf-8") for top in ("src", "include") for path in sorted((root / top).rglob("*"))
                    if path.suffix in (".cc", ".h"))
sources = re.sub(r'"\s*\n\s*"', "", sources)  # what the compiler joins

# Values, which the sources fill in, and the names of compared facts; a text of the system (strerror) is not ours.
VALUE = re.compile(r"\.\.\.|\b[A-Z]+\b|rank [R0](?:@host)?|step-S\.h5|run\.lock:|rankR|files?\b|^program|^training data|: |'|\(|\)")
SYSTEM = "No space left on device"


def messages(text):
    """The code at the beginning of each bullet, and the one after ", later"."""
    for one, other in re.findall(r"^- `([^`]*)`(?:, later `([^`]*)`)?", text, re.MULTILINE):
        yield one
        if other:
            yield other


def fragments(message):
    parts = (part.strip(" ;:,.") for part in VALUE.split(message.replace("\n ", "")))
    return [part for part in parts if len(part) >= 6 and part != SYSTEM]


found = list(messages((root / "docs/messages.md").read_text(encoding="utf-8")))
assert len(found) > 20, f"only {len(found)} messages: does this test read the page rightly?"
checked = [(message, fragment) for message in found for fragment in fragments(message)]
missing = [(message, fragment) for message, fragment in checked if fragment not in sources]
for message, fragment in missing:
    print(f"'{fragment}' is in no source: {message}")
print(f"{len(found)} messages, {len(checked)} fragments")
sys.exit(bool(missing))
