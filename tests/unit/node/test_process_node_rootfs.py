"""The plan of a container's root file system."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.node.rootfs import Bind, InvalidMount, Root, plan_root


@pytest.fixture
def usr(tmp_path: Path) -> Path:
    folder = tmp_path / "usr"
    for name in ("bin", "share/doc", "lib"):
        (folder / name).mkdir(parents=True)
    (folder / "lib64").symlink_to("lib")
    return folder


def _plan(usr: Path, *mounts: Bind, **more: object) -> list[str]:
    image = [Bind(usr, "/usr")]
    fields: dict[str, object] = {"image": image, "files": [], "scratch": None, **more}
    return plan_root(Root(mounts=mounts, symlinks=[("usr/lib", "/lib")], **fields))  # type: ignore[arg-type]


def _triples(options: list[str], word: str) -> list[tuple[str, str]]:
    return [(options[i + 1], options[i + 2]) for i, o in enumerate(options) if o == word]


def test_a_folder_is_bound_whole_when_every_mount_point_in_it_exists(usr: Path) -> None:
    options = _plan(usr, Bind(Path("/data"), "/usr/share/doc"))
    assert _triples(options, "--ro-bind") == [(str(usr), "/usr"), ("/data", "/usr/share/doc")]


def test_a_folder_is_taken_apart_down_to_a_missing_mount_point(usr: Path) -> None:
    options = _plan(usr, Bind(Path("/data"), "/usr/share/new/deep"))
    binds = _triples(options, "--ro-bind")
    assert (str(usr), "/usr") not in binds
    assert (str(usr / "bin"), "/usr/bin") in binds
    assert (str(usr / "share" / "doc"), "/usr/share/doc") in binds
    assert ("lib", "/usr/lib64") in _triples(options, "--symlink")
    assert binds[-1] == ("/data", "/usr/share/new/deep")


def test_outer_mounts_come_before_those_inside_them(usr: Path) -> None:
    inner, outer = Bind(Path("/b"), "/data/sub", True), Bind(Path("/a"), "/data", True)
    assert _triples(_plan(usr, inner, outer), "--bind") == [("/a", "/data"), ("/b", "/data/sub")]


def test_a_mount_below_a_top_level_link_goes_to_where_the_link_points(usr: Path) -> None:
    binds = _triples(_plan(usr, Bind(Path("/d"), "/lib/x")), "--ro-bind")
    assert binds[-1] == ("/d", "/usr/lib/x")


@pytest.mark.parametrize("target", ["/", "/proc", "/proc/1", "//"])
def test_a_mount_over_the_root_or_proc_is_refused(usr: Path, target: str) -> None:
    with pytest.raises(InvalidMount, match="cannot be mount points"):
        _plan(usr, Bind(Path("/x"), target))


def test_two_mounts_at_one_path_are_refused(usr: Path) -> None:
    with pytest.raises(InvalidMount, match="used twice"):
        _plan(usr, Bind(Path("/x"), "/data"), Bind(Path("/y"), "/data/"))


def test_a_read_only_root_is_closed_after_everything_is_mounted(usr: Path) -> None:
    options = _plan(usr, Bind(Path("/x"), "/data", True), read_only=True)
    assert options.index("--remount-ro") > options.index("/data")
    assert options[-2:] == ["--chdir", "/"]


def test_a_working_folder_that_nothing_provides_is_made(usr: Path) -> None:
    options = _plan(usr, work_dir="/work")
    assert options[options.index("/work") - 1] == "--dir"
    within = _plan(usr, work_dir="/usr/bin")
    assert within[-1] == "/usr/bin" and within.count("/usr/bin") == 1


def test_a_folder_within_one_that_is_already_shown_is_not_bound_again(usr: Path) -> None:
    image = [Bind(usr / "lib", "/usr/lib"), Bind(usr, "/usr")]
    assert _triples(_plan(usr, image=image), "--ro-bind") == [(str(usr), "/usr")]


@pytest.mark.parametrize("mounts", [[], [Bind(Path("/scratch"), "/tmp", True)]])
def test_an_image_whose_folder_lies_under_tmp_is_still_seen(
    usr: Path, tmp_path: Path, mounts: list[Bind]
) -> None:
    image = [Bind(usr, "/usr"), Bind(tmp_path, "/tmp/checkout/.venv")]
    options = _plan(usr, *mounts, image=image, scratch=tmp_path)
    last_tmp = len(options) - 1 - options[::-1].index("/tmp")
    assert last_tmp < options.index("/tmp/checkout/.venv")
