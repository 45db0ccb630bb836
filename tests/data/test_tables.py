"""Tables are read as they are written, whatever separates, encodes or compresses them."""

import bz2
import csv
import gzip
import lzma
import zipfile

import numpy as np
import pytest

from tensorswitch.data import DataError, is_table, read_table
from tensorswitch.data import _csv as module
from tensorswitch.data._text import best_conversion, converted

TEXT = "size,colour,day\n1.5,red,2024-05-31\n,blue,\n3e2,NA,2024-06-01 12:30\n"


def same(table):
    assert table.kinds == {"size": "number", "colour": "words", "day": "date"}
    np.testing.assert_array_equal(table.columns["size"], [1.5, np.nan, 300])
    assert table.columns["colour"].tolist() == ["red", "blue", None]
    days = np.array(["2024-05-31", "NaT", "2024-06-01T12:30"], dtype="datetime64[s]")
    np.testing.assert_array_equal(table.columns["day"], days)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators_and_encodings(tmp_path, separator, encoding):
    path = tmp_path / "a.csv"
    path.write_bytes(TEXT.replace(",", separator).encode(encoding))
    same(read_table(path))


def test_compressed_files(tmp_path):
    raw = TEXT.encode()
    packed = {".gz": gzip.compress(raw), ".bz2": bz2.compress(raw), ".xz": lzma.compress(raw)}
    pa = pytest.importorskip("pyarrow")
    packed[".zst"] = pa.compress(raw, "zstd", asbytes=True)
    for suffix, content in packed.items():
        path = tmp_path / f"a.csv{suffix}"
        path.write_bytes(content)
        assert is_table(path)
        same(read_table(path))
        path.write_bytes(content[: len(content) // 2])
        with pytest.raises(DataError, match=f"a.csv{suffix}"):
            read_table(path)
    with zipfile.ZipFile(tmp_path / "a.csv.zip", "w") as archive:
        archive.writestr("inside.csv", TEXT)
    same(read_table(tmp_path / "a.csv.zip"))


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_parquet_and_arrow(tmp_path, suffix):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    days = np.array(["2024-05-31", "NaT", "2024-06-01T12:30"], dtype="datetime64[ms]")
    table = pa.table(
        {
            "size": pa.array([1.5, None, 300]),
            "colour": pa.array(["red", "blue", None]).dictionary_encode(),
            "day": pa.array(days),
            "list": pa.array([[1], [2], [3]]),
        }
    )
    path = tmp_path / f"a{suffix}"
    (parquet.write_table if suffix == ".parquet" else feather.write_feather)(table, path)
    found = read_table(path)
    assert "column 'list'" in found.notes[0]
    same(found)


def test_dates_that_parquet_has_as_text(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    texts = {"day": ["2024-05-31", None, "2024-06-01 12:30"], "word": ["2024-05-31", "no", None]}
    parquet.write_table(pa.table({**texts, "none": [None, None, None]}), tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet")
    assert [table.kinds[name] for name in texts] == ["date", "words"]
    days = np.array(["2024-05-31", "NaT", "2024-06-01T12:30"], dtype="datetime64[s]")
    np.testing.assert_array_equal(table.columns["day"], days)


def test_other_encodings_are_said(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("größe,art\n1,grün\n2,rot\n".encode("cp1252"))
    table = read_table(path)
    assert list(table.columns) == ["größe", "art"]
    assert table.notes == ("text of a.csv is not UTF-8; it was read as Windows-1252",)


def test_decimal_commas_and_no_header(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("1,5;2\n-3,25;4\n")
    table = read_table(path)
    assert list(table.columns) == ["c1", "c2"]
    np.testing.assert_array_equal(table.columns["c1"], [1.5, -3.25])


def test_a_column_that_turns_out_to_be_words_keeps_its_first_cells(tmp_path, monkeypatch):
    """The kind of a column may change after the first chunk, which is then read again."""
    monkeypatch.setattr(module, "CHUNK", 10)
    path = tmp_path / "a.csv"
    path.write_text("zip,n\n" + "".join(f"0{i},{i}\n" for i in range(35)) + "A1,7\n")
    table = read_table(path)
    assert table.columns["zip"][:3].tolist() == ["00", "01", "02"]
    assert table.kinds == {"zip": "words", "n": "number"}
    assert len(table) == 36


def test_kinds_that_are_known_are_kept(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("zip,n\n01,x\n02,3\n")
    table = read_table(path, {"zip": "words", "n": "number"})
    assert table.columns["zip"].tolist() == ["01", "02"]
    assert table.kinds["n"] == "words"  # a cell is no number, which the encoder deals with


def test_infinity_counts_as_missing(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,inf\n2,3\n")
    table = read_table(path)
    assert np.isnan(table.columns["b"][0])
    assert "column 'b': 1 values that are infinite or beyond 1e150 count as missing" in table.notes


@pytest.mark.parametrize(
    ("cells", "first"),
    [
        (["31.12.2020", "1.2.2021"], "2020-12-31"),
        (["12/31/2020", "1/2/2021"], "2020-12-31"),
        (["1/2/2021", "3/4/2021"], "2021-01-02"),
        (["2020/12/31 10:11:12"], "2020-12-31T10:11:12"),
        (["2020-12-31 10:11:12+00:00"], "2020-12-31T10:11:12"),
        (["2020-12-31T10:11:12.250Z"], "2020-12-31T10:11:12"),
        (["2021-01-01T01:30+0200"], "2020-12-31T23:30"),
        (["2020-12-31 20:00-05"], "2021-01-01T01:00"),
        (["12/31/2020 12:05 AM", "1/2/2021 1:00 pm"], "2020-12-31T00:05"),
        (["12/31/20", "1/2/69"], "2020-12-31"),
        (["31 Dec 2020", "1 February 2021"], "2020-12-31"),
        (["31-Dec-2020"], "2020-12-31"),
        (["December 31, 2020"], "2020-12-31"),
    ],
)
def test_dates(cells, first):
    assert best_conversion(cells, "date")[0][0] == np.datetime64(first)


@pytest.mark.parametrize(
    "cells",
    [
        ["2020-13-01"],
        ["yesterday"],
        ["2020-01-01", "soon"],
        ["1.2.10"],  # a version
        ["31 Foo 2020"],
        ["1/2/2020 13:00 PM"],
        ["1/2.2020"],
    ],
)
def test_what_is_no_date(cells):
    assert best_conversion(cells, "date") is None


def test_what_is_no_number():
    assert best_conversion(["1_000"], "number") is None
    assert best_conversion(["1,5,2"], "number") is None
    assert best_conversion(["1,2345,678"], "number") is None
    assert converted(["1,5"], "number") is None
    assert converted(["", "?", " 2 "], "number").tolist()[2] == 2


@pytest.mark.parametrize(
    ("cells", "expected", "written"),
    [
        (["4,367", "985"], [4367, 985], "grouped"),
        (["1,234,567", "2,000,000"], [1234567, 2000000], "grouped"),
        (["4,367", "1,200"], [4.367, 1.2], "comma"),  # with three decimals each
        (["4,36", "985"], [4.36, 985], "comma"),
        (["1.234,5", "12,25"], [1234.5, 12.25], "grouped comma"),
        (["1,234.5", "-12.25"], [1234.5, -12.25], "grouped"),
        (["0,125", "0", "0,250"], [0.125, 0, 0.25], "comma"),  # no group begins with a zero
        (["1.000", "12,5"], [1000, 12.5], "grouped comma"),
        (["1.5", "-2,5"], [1.5, -2.5], "comma"),
        (["$1,234.5", "-$12", "€ 7"], [1234.5, -12, 7], "grouped"),
        (["1.234,50 €", "12,5%"], [1234.5, 12.5], "grouped comma"),
    ],
)
def test_commas_in_numbers(tmp_path, cells, expected, written):
    path = tmp_path / "a.csv"
    path.write_text("n;w\n" + "".join(f"{cell};x\n" for cell in cells))
    table = read_table(path)
    np.testing.assert_allclose(table.columns["n"], expected)
    assert table.formats == {"n": written}
    assert "comma" in table.notes[-1]
    assert table.notes[-1].endswith("in 'n'")
    path.write_text("n,w\n" + "".join(f'"{cell}",x\n' for cell in cells))
    if cells != ["4,367", "1,200"]:  # between commas, three digits are thousands
        np.testing.assert_allclose(read_table(path).columns["n"], expected)


def test_the_order_of_day_and_month_is_that_of_the_whole_column(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 2)
    path = tmp_path / "a.csv"
    path.write_text("day,n\n05/02/2023,1\n03/11/2023,2\n25/11/2023,3\n01/12/2023,4\n")
    table = read_table(path)
    days = ["2023-02-05", "2023-11-03", "2023-11-25", "2023-12-01"]
    assert [str(day)[:10] for day in table.columns["day"]] == days
    assert table.formats == {"day": "swapped date"}
    path.write_text("day,n\n05/31/2023,1\n03/11/2023,2\n")
    months = read_table(path).formats
    assert months == {"day": "usual date"}
    path.write_text("day,n\n03/11/2023,1\n13/05/2023,2\n")  # no month, so the cell is left as it is
    assert read_table(path, months).columns["day"].tolist() == ["03/11/2023", "13/05/2023"]
    path.write_text("day,n\n05/02/2023,1\n03/11/2023,2\n")
    assert str(read_table(path, table.formats).columns["day"][0])[:10] == "2023-02-05"
    unknown = read_table(path)
    assert str(unknown.columns["day"][0])[:10] == "2023-05-02"
    assert unknown.notes == (
        "'day': the month is taken to come first in dates such as 05/02/2023, "
        "which no date confirms",
    )


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("0.1,0.6,pos\n0.2,0.5,neg\n", ["c1", "c2", "c3"]),
        ("country,2019,2020\nFrance,1,2\n", ["country", "2019", "2020"]),
        ("0,1,2,label\n5,6,7,x\n", ["0", "1", "2", "label"]),
        (",0,1,2\n0,5,6,7\n", ["c1", "0", "1", "2"]),
        ("5,3,pos\n2,,neg\n", ["c1", "c2", "c3"]),
        ("a,7\nb,c\n", ["a", "7"]),  # below a number, words: it is a name
        ("red,small,1\nblue,big,0\n", ["c1", "c2", "c3"]),
        ("Smith,2019\nJones,2020\n", ["c1", "c2"]),
        ("country,2019\nFrance,1.5\n", ["country", "2019"]),
        ("class,1100,1102,1104\nA,0.1,0.2,0.3\n", ["class", "1100", "1102", "1104"]),
        ("7,8\n9,10\n", ["c1", "c2"]),
    ],
)
def test_lines_of_names_are_told_from_rows(tmp_path, text, names):
    path = tmp_path / "a.csv"
    path.write_text(text)
    table = read_table(path)
    assert list(table.columns) == names
    assert len(table) == text.count("\n") - (names[0] != "c1" or "0" in names)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_spaces_and_ends_of_lines(tmp_path, end):
    path = tmp_path / "a.txt"
    path.write_bytes(f'  a   b  label{end} 1.5  2  "x y"{end}22.5  3  z{end}'.encode())
    table = read_table(path)
    assert table.columns["a"].tolist() == [1.5, 22.5]
    assert table.columns["label"].tolist() == ["x y", "z"]
    assert table.notes == ("columns of a.txt are separated by spaces",)


def test_whether_commas_separate_is_decided_for_the_whole_column(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 2)
    path = tmp_path / "a.csv"
    cells = ["500", "900", "1,234", "12,345"]  # the last chunk could have decimal commas
    path.write_text("n;w\n" + "".join(f"{cell};x\n" for cell in cells))
    table = read_table(path)
    np.testing.assert_array_equal(table.columns["n"], [500, 900, 1234, 12345])
    path.write_text("n;w\n1,234;x\n12,345;y\n")
    new = read_table(path, table.formats)
    np.testing.assert_array_equal(new.columns["n"], [1234, 12345])
    np.testing.assert_array_equal(read_table(path).columns["n"], [1.234, 12.345])


def test_missing_values_have_no_slashes(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("day,n\n2024-01-01,1\nn/a,2\n")
    assert read_table(path).notes == ()


def test_text_of_parquet_is_read_as_the_training_rows_were_written(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(
        pa.table({"day": ["02/05/2024"], "code": ["2024-05-31"], "id": [2**53 + 1]}), path
    )
    table = read_table(path, {"day": "swapped date", "code": "words"})
    assert str(table.columns["day"][0])[:10] == "2024-05-02"
    assert table.columns["code"].tolist() == ["2024-05-31"]


def test_points_separate_thousands_where_commas_are_decimal(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 2)
    path = tmp_path / "a.csv"
    rows = [("1,5", "4.220", "1.25"), ("2,5", "408", "2"), ("3", "1.000.000", "3.125")]
    path.write_text("a;b;c\n" + "".join(";".join(row) + "\n" for row in rows))
    table = read_table(path)
    np.testing.assert_array_equal(table.columns["b"], [4220, 408, 1_000_000])
    np.testing.assert_array_equal(table.columns["c"], [1.25, 2, 3.125])
    assert table.formats == {"a": "comma", "b": "grouped comma"}
    path.write_text("a;b\n1;4.220\n2;408\n")  # nothing shows that points are not decimal
    np.testing.assert_array_equal(read_table(path).columns["b"], [4.22, 408])
    np.testing.assert_array_equal(read_table(path, table.formats).columns["b"], [4220, 408])


def test_a_kind_that_is_given_does_not_say_how_numbers_are_written(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a;b\n1,125;1\n2,250;2\n")
    table = read_table(path, {"a": "number"})
    np.testing.assert_array_equal(table.columns["a"], [1.125, 2.25])
    assert "commas are decimal in 'a'" in table.notes


@pytest.mark.parametrize("cells", [["0.125", "0.250"], ["1.234", "5e2"], ["1.234", "12345"]])
def test_points_that_cannot_separate_are_decimal(tmp_path, cells):
    path = tmp_path / "a.csv"
    path.write_text("a;b\n" + "".join(f"{i},5;{cell}\n" for i, cell in enumerate(cells)))
    np.testing.assert_array_equal(read_table(path).columns["b"], [float(c) for c in cells])


def test_thousands_between_commas_may_be_separated_in_some_cells(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('a,b\n"1,234",1\n1234,2\n12000,3\n')
    np.testing.assert_array_equal(read_table(path).columns["a"], [1234, 1234, 12000])


def test_the_index_of_pandas_is_no_column(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"a": range(20), "label": ["p"] * 10 + ["q"] * 10})
    frame.sample(frac=1, random_state=0).to_parquet(tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet")
    assert list(table.columns) == ["a", "label"]
    assert table.notes == ("'__index_level_0__', the index that pandas has added, is left out",)


def test_text_is_left_as_it_is(tmp_path):
    parquet, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    keys = [12345678901234567, None, 7]
    parquet.write_table(pa.table({"key": keys, "a": [1, 2, 3]}), tmp_path / "a.parquet")
    found = read_table(tmp_path / "a.parquet", {"key": "text"}).columns["key"]
    assert list(found) == ["12345678901234567", "", "7"]
    (tmp_path / "a.csv").write_text("key,a\nNA,1\n007,2\nnull,3\n")
    found = read_table(tmp_path / "a.csv", {"key": "text"}).columns["key"]
    assert list(found) == ["NA", "007", "null"]


def test_quotes_after_a_space(tmp_path):
    (tmp_path / "a.csv").write_text('a, "b, c", d\n1, "u, v", p\n2, "w, x", q\n')
    columns = read_table(tmp_path / "a.csv").columns
    assert {name: list(column) for name, column in columns.items()} == {
        "a": [1.0, 2.0],
        "b, c": ["u, v", "w, x"],
        "d": ["p", "q"],
    }


@pytest.mark.parametrize(
    ("cell", "kind", "odd"),
    [
        ("{}.5", "number", ["unknown"]),
        ("1,{:03d}", "number", ["90+", "<100"]),
        ("2024-05-{:02d} 10:00", "date", ["0000-00-00"]),
        ("{}.5", "number", ["-"] * 15),  # words for missing values may be many
    ],
)
def test_a_few_words_among_numbers_count_as_missing(tmp_path, cell, kind, odd):
    cells = [cell.format(i % 31 + 1) for i in range(40)] + odd
    path = tmp_path / "a.csv"
    path.write_text("a;b\n" + "".join(f"{c};{i}\n" for i, c in enumerate(cells)))
    table = read_table(path)
    assert table.kinds["a"] == kind
    known = ~(np.isnan if kind == "number" else np.isnat)(table.columns["a"])
    assert known.tolist() == [True] * 40 + [False] * len(odd)
    rows = f"{len(odd)} rows" if len(odd) > 1 else "1 row"
    note = f"column 'a': {rows} with a value that is not a {kind} and counts as missing: {odd[0]!r}"
    assert any(n.startswith(note) for n in table.notes)


@pytest.mark.parametrize(
    "cells",
    [
        [*"0123" * 10, "U"],  # few words are better told apart
        [*(f"0{i}" for i in range(40)), "A1"],  # codes
        [*(f"{i}" for i in range(40)), *(f"A{i}" for i in range(4))],
    ],
)
def test_codes_stay_words(tmp_path, cells):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "".join(f"{cell},1\n" for cell in cells))
    assert read_table(path).columns["a"].tolist() == cells


def test_comments_above_the_names_are_skipped(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("# made by a tool\n\n# on Monday, or so\na,b,c\n1,2,3\n4,5\n")
    with pytest.raises(DataError, match="line 6: 2 fields, but there are 3 columns"):
        read_table(path)
    path.write_text("# made by a tool\na,b\n1,2\n")
    table = read_table(path)
    assert list(table.columns) == ["a", "b"]
    assert "skipped: 1 line of comments above the table" in table.notes
    path.write_text("#a,b\n1,2\n")  # the names may start with the sign
    assert list(read_table(path).columns) == ["#a", "b"]


def test_long_cells(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "w" * 200_000 + ",1\nv,2\n")
    limit = csv.field_size_limit()
    assert len(read_table(path).columns["a"][0]) == 200_000
    assert csv.field_size_limit() == limit


def test_the_largest_double_stands_for_a_missing_value(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,y\n1,2\n1.7976931348623157e308,3\n3,-1.7976931348623157e308\n")
    table = read_table(path)
    np.testing.assert_array_equal(table.columns["a"], [1, np.nan, 3])
    np.testing.assert_array_equal(table.columns["y"], [2, 3, np.nan])
    assert len(table.notes) == 2


@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "SEP=;"])
def test_the_line_of_excel_that_names_the_separator(tmp_path, first):
    path = tmp_path / "a.csv"
    path.write_text(f"{first}\r\nx;label\r\n0,5;a\r\n1,5;b\r\n")
    table = read_table(path)
    assert list(table.columns) == ["x", "label"]
    np.testing.assert_array_equal(table.columns["x"], [0.5, 1.5])


def test_other_encodings_are_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("x,地名\n1,東京\n2,千葉\n".encode("shift-jis"))
    with pytest.raises(DataError, match=r"neither UTF-8, UTF-16 .* save it as UTF-8"):
        read_table(path)
    path.write_bytes("x,y\n1,2\n".encode("utf-16-le"))
    with pytest.raises(DataError, match="UTF-16 without a byte order mark"):
        read_table(path)


def test_words_of_parquet_are_those_of_csv(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    words = ["yes ", "no  ", "", "   ", None, "yes "]
    parquet.write_table(pa.table({"a": words, "n": range(6)}), tmp_path / "a.parquet")
    expected = ["yes", "no", None, None, None, "yes"]
    assert read_table(tmp_path / "a.parquet").columns["a"].tolist() == expected
    text = read_table(tmp_path / "a.parquet", {"a": "text"}).columns["a"].tolist()
    assert text == ["yes", "no", "", "", "", "yes"]
