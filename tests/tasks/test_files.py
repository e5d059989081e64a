"""Reading text: every wrong file is refused with one sentence that says where and what."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path

import pytest

from fenchel import FenchelError
from fenchel.tasks.files import LONGEST_LINE, read_lines


def write(folder: Path, content: bytes, name: str = "data.txt") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def refused(path: str | Path) -> str:
    with pytest.raises(FenchelError) as error:
        list(read_lines(path))
    return str(error.value)


def test_lines_know_their_place(tmp_path):
    path = write(tmp_path, "één\r\n\ntwee".encode())
    lines = list(read_lines(path))
    assert [line.text for line in lines] == ["één", "", "twee"]
    assert lines[2].place == f"{path}:3"


def test_byte_order_mark_is_no_character(tmp_path):
    assert next(read_lines(write(tmp_path, b"\xef\xbb\xbfa\n"))).text == "a"


def test_gzip_is_unpacked(tmp_path):
    path = write(tmp_path, gzip.compress("ä\nb\n".encode()), "data.gz")
    assert [line.text for line in read_lines(path)] == ["ä", "b"]


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("ü\n".encode())))
    (line,) = read_lines("-")
    assert line == ("ü", 1, "<stdin>")


def test_is_read_as_it_is_asked_for(tmp_path):
    lines = read_lines(write(tmp_path, b"a\n\xff\n"))
    assert next(lines).text == "a"  # the bad second line is not reached


def test_missing(tmp_path):
    path = tmp_path / "no"
    assert refused(path) == f"{path}: expected a text file, but there is no such file."


def test_directory(tmp_path):
    assert refused(tmp_path) == f"{tmp_path}: expected a text file, but it is a directory."


def test_not_utf8(tmp_path):
    path = write(tmp_path, b"fine\ncaf\xe9 au lait\n")
    assert refused(path) == (
        f"{path}:2: expected UTF-8 text, but byte 4 is 0xe9; if the file is Latin-1, convert it "
        "with `iconv -f LATIN1 -t UTF-8`."
    )


def test_utf16(tmp_path):
    path = write(tmp_path, "text\n".encode("utf-16"))
    assert refused(path) == (
        f"{path}: expected UTF-8 text, but it starts like UTF-16; convert it with "
        "`iconv -f UTF-16 -t UTF-8`."
    )


def test_binary(tmp_path):
    path = write(tmp_path, b"a\0b\n")
    assert refused(path) == f"{path}:1: expected text, but the line has a zero byte."


@pytest.mark.parametrize("content", [b"plain", gzip.compress(b"text" * 99)[:-9]], ids=["no", "cut"])
def test_gzip_in_name_only(tmp_path, content):
    path = write(tmp_path, content, "data.gz")
    assert refused(path) == f"{path}: expected a whole gzip file, as its name says."


def test_gzip_that_is_damaged_inside(tmp_path):
    data = bytearray(gzip.compress(b"text\n" * 99))
    data[12] ^= 0x55
    path = write(tmp_path, bytes(data), "data.gz")
    assert refused(path) == f"{path}: expected a whole gzip file, as its name says."


@pytest.mark.parametrize("packed", [False, True])
def test_a_line_that_is_too_long(tmp_path, packed):
    content = b"fine\n" + b"x" * (LONGEST_LINE - 1) + b"\n" + b"y" * (LONGEST_LINE + 1)
    path = write(tmp_path, gzip.compress(content) if packed else content, "t.gz" if packed else "t")
    assert refused(path) == (
        f"{path}:3: expected a line of text of at most 1,048,576 bytes, but this one is longer."
    )


def test_a_name_with_a_zero_byte():
    assert refused("a\0b") == "a\0b: expected a file name without a zero byte."
