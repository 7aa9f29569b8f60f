"""The demo does not overwrite files that it did not write; a full run is a live test."""

from tests.commands import evenhand


def test_the_demo_does_not_replace_another_directory(tmp_path):
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "mine.txt").write_text("mine")
    result = evenhand("demo", "--people", 5_000, "--out", tmp_path)
    assert result.exit_code == 2
    assert "not a bundle; it was not changed" in result.stderr


def test_the_demo_does_not_replace_another_log(tmp_path):
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "mine.txt").write_text("mine")
    result = evenhand("demo", "--people", 5_000, "--out", tmp_path)
    assert result.exit_code == 2
    assert "not a log of the demo" in result.stderr
    assert (tmp_path / "log" / "mine.txt").exists()
