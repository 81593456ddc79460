from gaussify.experiments._lab._scratch import remove_scratch, scratch_folder


def test_each_task_has_its_own_scratch_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("GAUSSIFY_CACHE", str(tmp_path))
    first, other = {"seed": 0}, {"seed": 1}
    folders = [scratch_folder("toy", {"rate": 1}, task) for task in (first, other)]
    assert len({*folders, scratch_folder("toy", {}, first)}) == 3
    for folder in folders:
        folder.mkdir(parents=True)
    remove_scratch("toy", {"rate": 1}, first)
    assert [folder.exists() for folder in folders] == [False, True]
    remove_scratch("toy", {"rate": 1}, other)
    assert not folders[0].parent.exists()
    remove_scratch("toy", {"rate": 1}, other)  # of which there is none
