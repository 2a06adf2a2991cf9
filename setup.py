"""What a wheel holds: the library `trainyard`, and below `trainyard_cli` what its command imports.

docs/adr/16-commands-and-page.md says why; pyproject.toml has the rest.
"""

from setuptools import find_namespace_packages, setup

ROOMS = ("infra", "ops", "trainer", "training")
LEFT_OUT = ("ops.image", "training.image", "training.runs")


def packages(room: str) -> list[str]:
    """Return the packages of a folder of the repository, with those that hold data only."""
    found: list[str] = find_namespace_packages(include=[room, f"{room}.*"], exclude=LEFT_OUT)
    return found


setup(
    packages=[
        *packages("trainyard"),
        *(f"trainyard_cli.{one}" for room in ROOMS for one in packages(room)),
    ],
    package_dir={f"trainyard_cli.{room}": room for room in ROOMS},
    package_data={
        "": [
            "*.bash",
            "*.css",
            "*.html",
            "*.js",
            "*.json",
            "*.svg",
            "*.yaml",
            "LICENSE",
            "py.typed",
        ]
    },
)
