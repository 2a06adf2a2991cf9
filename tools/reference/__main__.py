"""`python -m tools.reference`: write docs/schemas and docs/reference from the models and the parsers."""

from __future__ import annotations

from functools import cache

from tools.reference import commands, pages, schemas


@cache
def files() -> dict[str, str]:
    """Every generated file: its text by its path in the repository."""
    found = {f"docs/schemas/{name}.schema.json": schemas.text(name) for name in schemas.SCHEMAS}
    found |= {f"docs/reference/{name}.md": pages.text(name) for name in pages.PAGES}
    return found | {commands.PATH: commands.text()}


if __name__ == "__main__":
    for path, text in files().items():
        file = pages.ROOT / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
