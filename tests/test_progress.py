from tensorswitch._progress import DownloadBar, clock, progress_bar, track


def test_durations_in_words():
    assert [clock(s) for s in (3, 89, 600, 7260)] == ["3 s", "89 s", "10 min", "2 h 01 min"]


def test_items_pass_through_with_or_without_a_bar(capfd):
    assert list(track(range(3), 3, "counting", False)) == [0, 1, 2]
    assert "counting" not in capfd.readouterr().err
    assert list(track(range(3), 3, "counting", True)) == [0, 1, 2]
    assert "counting" in capfd.readouterr().err


def test_a_bar_shows_its_last_note(capfd):
    with progress_bar("working", True, total=2) as bar:
        bar(note="half [done]")
        bar()
    shown = capfd.readouterr().err
    assert "working" in shown
    assert "half [done]" in shown
    with progress_bar("working", False) as bar:
        bar(1, "nothing")
    assert not capfd.readouterr().err


def test_the_bar_of_a_download_is_driven_as_pooch_does(capfd):
    bar = DownloadBar("file.gz")
    bar.total = 10
    bar.update(4)
    bar.reset()
    bar.update(10)
    bar.close()
    assert "file.gz" in capfd.readouterr().err
