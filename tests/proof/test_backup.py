"""Backups under load hold everything that was answered before them; a copied file does not."""

from pathlib import Path

from nodrop_proof.backup import rounds


async def test_a_backup_under_load_holds_everything_answered_before_it(tmp_path: Path) -> None:
    made = await rounds(tmp_path, count=4)
    assert [each.refused for each in made] == [None] * 4
    assert [each.missing for each in made] == [0] * 4
    assert all(each.answered >= 50 and each.entries >= each.before for each in made)


async def test_a_copied_file_does_not(tmp_path: Path) -> None:
    """The control: what is only in the write-ahead log is not in the file."""
    made = await rounds(tmp_path, count=2, copy_file=True)
    assert not any(each.holds for each in made)
    assert sum(each.missing for each in made) > 0
