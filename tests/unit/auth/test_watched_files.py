"""When files are read again, and how often it is reported that they cannot be used."""

from __future__ import annotations

import os
from pathlib import Path

from oncelog.auth.watched_files import WatchedFiles


class Service:
    """Uses the text of a file, unless it is "bad". `link` points at the file of that name."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.used = directory, ""
        self.reported: list[str] = []
        for name in ("good", "bad"):
            (directory / name).write_text(name)
        self.link("good")
        self.files = WatchedFiles([str(directory / "file")], self.read, ValueError)
        self.files.read()

    def read(self) -> None:
        text = (self.directory / "file").read_text()
        if text == "bad":
            raise ValueError(text)
        self.used = text

    def link(self, name: str) -> None:
        os.symlink(self.directory / name, self.directory / "new")
        os.replace(self.directory / "new", self.directory / "file")

    def look(self) -> bool:
        return self.files.read_if_changed(lambda error: self.reported.append(str(error)))


def test_each_change_to_an_unusable_file_is_reported_once(tmp_path: Path) -> None:
    service = Service(tmp_path)
    assert not service.look()
    for times in (1, 2, 3):
        service.link("bad")
        assert not service.look()
        assert not service.look()
        assert (service.used, service.reported) == ("good", ["bad"] * times)
        service.link("good")
        assert not service.look()  # its content is used already
    (tmp_path / "good").write_text("better")
    assert service.look()
    assert service.used == "better"
