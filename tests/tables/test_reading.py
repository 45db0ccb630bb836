"""Tables are read as they are written, whatever separates, encodes or compresses them."""

import bz2
import csv
import gzip
import lzma
import zipfile

import numpy as np
import pandas as pd
import pytest

from tensorswitch.datasets import DataError
from tensorswitch.tables import clean, read_table

TEXT = "size,colour,day\n1.5,red,2024-05-31\n,blue,\n3e2,NA,2024-06-01 12:30\n"
KINDS = {"f": "number", "M": "date"}


class Found:
    """A file that is read and cleaned."""

    def __init__(self, path, sep=None, **options):
        raw, sep, notes = read_table(path, sep)
        self.frame, self.written, remarks = clean(raw, sep=sep, **options)
        self.notes = [*notes, *remarks]

    def __getitem__(self, name):
        return self.frame[name].to_numpy()

    def words(self, name):
        return [None if pd.isna(word) else word for word in self.frame[name]]

    @property
    def kinds(self):
        return {name: KINDS.get(self[name].dtype.kind, "words") for name in self.frame}


def written(path, text, **options):
    path.write_text(text)
    return Found(path, **options)


def same(table):
    assert table.kinds == {"size": "number", "colour": "words", "day": "date"}
    np.testing.assert_array_equal(table["size"], [1.5, np.nan, 300])
    assert table.words("colour") == ["red", "blue", None]
    days = np.array(["2024-05-31", "NaT", "2024-06-01T12:30"], dtype="datetime64[s]")
    np.testing.assert_array_equal(table["day"], days)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators_and_encodings(tmp_path, separator, encoding):
    path = tmp_path / "a.csv"
    path.write_bytes(TEXT.replace(",", separator).encode(encoding))
    same(Found(path))


def test_compressed_files(tmp_path):
    raw = TEXT.encode()
    packed = {".gz": gzip.compress(raw), ".bz2": bz2.compress(raw), ".xz": lzma.compress(raw)}
    pa = pytest.importorskip("pyarrow")
    packed[".zst"] = pa.compress(raw, "zstd", asbytes=True)
    for suffix, content in packed.items():
        path = tmp_path / f"a.csv{suffix}"
        path.write_bytes(content)
        same(Found(path))
        path.write_bytes(content[: len(content) // 2])
        with pytest.raises(DataError, match=f"a.csv{suffix}"):
            read_table(path)
    with zipfile.ZipFile(tmp_path / "a.csv.zip", "w") as archive:
        archive.writestr("inside.csv", TEXT)
    same(Found(tmp_path / "a.csv.zip"))


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
    found = Found(path)
    assert "column 'list'" in found.notes[0]
    same(found)


def test_dates_that_parquet_has_as_text(tmp_path):
    texts = {"day": ["2024-05-31", None, "2024-06-01 12:30"], "word": ["2024-05-31", "no", None]}
    pd.DataFrame(texts).to_parquet(tmp_path / "a.parquet")
    table = Found(tmp_path / "a.parquet")
    assert list(table.kinds.values()) == ["date", "words"]
    days = np.array(["2024-05-31", "NaT", "2024-06-01T12:30"], dtype="datetime64[s]")
    np.testing.assert_array_equal(table["day"], days)


def test_types_of_parquet(tmp_path):
    """Integers with gaps keep their digits, and what has no values is left to the encoder."""
    import datetime
    import decimal

    frame = pd.DataFrame(
        {
            "key": pd.array([2**53 + 1, None, 7], dtype="Int64"),
            "price": [decimal.Decimal("1.5"), None, decimal.Decimal(2)],
            "day": [datetime.date(2020, 1, 1), None, datetime.date(2021, 1, 1)],
            "flag": [True, None, False],
            "none": [None] * 3,
        },
        index=[3, 4, 5],
    )
    frame.to_parquet(tmp_path / "a.parquet")
    raw, _, _ = read_table(tmp_path / "a.parquet")
    assert str(raw["key"].tolist()[0]) == str(2**53 + 1)
    table = Found(tmp_path / "a.parquet")
    assert list(table.frame) == list(frame)
    np.testing.assert_array_equal(table["price"], [1.5, np.nan, 2])
    assert table.words("flag") == ["True", None, "False"]
    assert np.isnat(table["day"]).tolist() == [False, True, False]
    assert np.isnan(table["none"]).all()


def test_other_encodings_are_said(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("größe,art\n1,grün\n2,rot\n".encode("cp1252"))
    table = Found(path)
    assert list(table.frame) == ["größe", "art"]
    assert table.notes == ["text of a.csv is not UTF-8; it was read as Windows-1252"]


def test_decimal_commas_and_no_header(tmp_path):
    table = written(tmp_path / "a.csv", "1,5;2\n-3,25;4\n")
    assert list(table.frame) == ["c1", "c2"]
    np.testing.assert_array_equal(table["c1"], [1.5, -3.25])


def test_a_column_that_is_words_keeps_its_cells(tmp_path):
    rows = "".join(f"0{i},{i}\n" for i in range(35))
    table = written(tmp_path / "a.csv", f"zip,n\n{rows}A1,7\n")
    assert table.words("zip")[:3] == ["00", "01", "02"]
    assert table.kinds == {"zip": "words", "n": "number"}
    assert len(table.frame) == 36


def test_how_a_column_is_written_may_be_known(tmp_path):
    ways = {"zip": "words", "n": "number"}
    table = written(tmp_path / "a.csv", "zip,n\n01,x\n02,3\n", written=ways)
    assert table.words("zip") == ["01", "02"]
    np.testing.assert_array_equal(table["n"], [np.nan, 3])


def test_infinity_counts_as_missing(tmp_path):
    table = written(tmp_path / "a.csv", "a,b\n1,inf\n2,3\n")
    assert np.isnan(table["b"][0])
    what = "1 row with a value infinite or beyond 1e150, which counts as missing: 'inf'"
    assert f"column 'b': {what}" in table.notes


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
        (["1/2/69", "12/31/20"], "1969-01-02"),
        (["31 Dec 2020", "1 February 2021"], "2020-12-31"),
        (["31-Dec-2020"], "2020-12-31"),
        (["December 31, 2020"], "2020-12-31"),
        (["2020-05-06", "31.12.2020"], "2020-05-06"),
    ],
)
def test_dates(cells, first):
    assert clean(pd.DataFrame({"a": cells}))[0]["a"].to_numpy()[0] == np.datetime64(first)


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
        ["1_000"],
        ["1,5,2"],
        ["1,2345,678"],
        ["0x1F"],
    ],
)
def test_what_is_no_date_and_no_number(cells):
    assert clean(pd.DataFrame({"a": cells}))[1] == {"a": "words"}


COMMAS = [
    (["4,367", "985"], [4367, 985], "number .,"),
    (["1,234,567", "2,000,000"], [1234567, 2000000], "number .,"),
    (["4,367", "1,200"], [4.367, 1.2], "number ,"),  # with three decimals each
    (["4,36", "985"], [4.36, 985], "number ,"),
    (["1.234,5", "12,25"], [1234.5, 12.25], "number ,."),
    (["1,234.5", "-12.25"], [1234.5, -12.25], "number .,"),
    (["0,125", "0", "0,250"], [0.125, 0, 0.25], "number ,"),  # no group begins with a zero
    (["1.000", "12,5"], [1000, 12.5], "number ,."),
    (["1.5", "-2,5"], [1.5, -2.5], "number ,"),
    (["$1,234.5", "-$12", "€ 7"], [1234.5, -12, 7], "number .,"),
    (["1.234,50 €", "12,5%"], [1234.5, 12.5], "number ,."),
    (["500", "900", "1,234", "12,345"], [500, 900, 1234, 12345], "number .,"),
]


@pytest.mark.parametrize(("cells", "expected", "way"), COMMAS)
def test_commas_in_numbers(tmp_path, cells, expected, way):
    rows = "".join(f"{cell};x\n" for cell in cells)
    table = written(tmp_path / "a.csv", f"n;w\n{rows}")
    np.testing.assert_allclose(table["n"], expected)
    assert table.written["n"] == way
    assert "comma" in table.notes[-1]
    assert table.notes[-1].endswith("in 'n'")
    rows = "".join(f'"{cell}",x\n' for cell in cells)
    if cells != ["4,367", "1,200"]:  # between commas, three digits are thousands
        np.testing.assert_allclose(written(tmp_path / "a.csv", f"n,w\n{rows}")["n"], expected)


def test_the_decimal_sign_may_be_given(tmp_path):
    text = "a;b\n1.234;1,234\n5.678;5,678\n"
    point = written(tmp_path / "a.csv", text, decimal=".")
    np.testing.assert_array_equal(point.frame, [[1.234, 1234], [5.678, 5678]])
    comma = written(tmp_path / "a.csv", text, decimal=",")
    np.testing.assert_array_equal(comma.frame, [[1234, 1.234], [5678, 5.678]])
    assert written(tmp_path / "a.csv", "a~b\n1~2\n", sep="~").frame.shape == (1, 2)


def test_the_order_of_day_and_month_is_that_of_the_whole_column(tmp_path):
    path = tmp_path / "a.csv"
    table = written(path, "day,n\n05/02/2023,1\n03/11/2023,2\n25/11/2023,3\n01/12/2023,4\n")
    days = ["2023-02-05", "2023-11-03", "2023-11-25", "2023-12-01"]
    assert [str(day)[:10] for day in table["day"]] == days
    assert table.written["day"] == "date dayfirst"
    months = written(path, "day,n\n05/31/2023,1\n03/11/2023,2\n").written
    assert months["day"] == "date"
    other = written(path, "day,n\n03/11/2023,1\n13/05/2023,2\n", written=months)
    assert np.isnat(other["day"]).tolist() == [False, True]  # there is no month 13
    text = "day,n\n05/02/2023,1\n03/11/2023,2\n"
    for options in ({"written": table.written}, {"dayfirst": True}):
        assert str(written(path, text, **options)["day"][0])[:10] == "2023-02-05"
    unknown = written(path, text)
    assert str(unknown["day"][0])[:10] == "2023-05-02"
    assert unknown.notes == [
        "'day': the month is taken to come first in dates such as 05/02/2023, "
        "which no date confirms"
    ]
    assert not written(path, text, dayfirst=False).notes


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
    table = written(tmp_path / "a.csv", text)
    assert list(table.frame) == names
    assert len(table.frame) == text.count("\n") - (names[0] != "c1" or "0" in names)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_spaces_and_ends_of_lines(tmp_path, end):
    path = tmp_path / "a.txt"
    path.write_bytes(f'  a   b  label{end} 1.5  2  "x y"{end}22.5  3  z{end}'.encode())
    table = Found(path)
    assert table["a"].tolist() == [1.5, 22.5]
    assert table.words("label") == ["x y", "z"]
    assert table.notes == ["columns of a.txt are separated by spaces"]


def test_points_separate_thousands_where_commas_are_decimal(tmp_path):
    path = tmp_path / "a.csv"
    rows = [("1,5", "4.220", "1.25"), ("2,5", "408", "2"), ("3", "1.000.000", "3.125")]
    table = written(path, "a;b;c\n" + "".join(";".join(row) + "\n" for row in rows))
    np.testing.assert_array_equal(table["b"], [4220, 408, 1_000_000])
    np.testing.assert_array_equal(table["c"], [1.25, 2, 3.125])
    assert table.written == {"a": "number ,", "b": "number ,.", "c": "number"}
    text = "a;b\n1;4.220\n2;408\n"  # nothing shows that points are not decimal
    np.testing.assert_array_equal(written(path, text)["b"], [4.22, 408])
    np.testing.assert_array_equal(written(path, text, written=table.written)["b"], [4220, 408])


@pytest.mark.parametrize("cells", [["0.125", "0.250"], ["1.234", "5e2"], ["1.234", "12345"]])
def test_points_that_cannot_separate_are_decimal(tmp_path, cells):
    rows = "".join(f"{i},5;{cell}\n" for i, cell in enumerate(cells))
    table = written(tmp_path / "a.csv", f"a;b\n{rows}")
    np.testing.assert_array_equal(table["b"], [float(c) for c in cells])


def test_thousands_between_commas_may_be_separated_in_some_cells(tmp_path):
    table = written(tmp_path / "a.csv", 'a,b\n"1,234",1\n12345,2\n')
    np.testing.assert_array_equal(table["a"], [1234, 12345])


def test_text_is_kept_as_it_is(tmp_path):
    (tmp_path / "a.csv").write_text("key,a\nNA,1\n007,2\nnull,3\n")
    assert read_table(tmp_path / "a.csv")[0]["key"].tolist() == ["NA", "007", "null"]


def test_quotes_after_a_space_and_breaks_within_quotes(tmp_path):
    table = written(tmp_path / "a.csv", 'a, "b, c", d\n1, "u, v", p\n2, "w\nx", q\n')
    assert table["a"].tolist() == [1, 2]
    assert table.words("b, c") == ["u, v", "w\nx"]
    assert table.words("d") == ["p", "q"]


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
    rows = "".join(f"{c};{i}\n" for i, c in enumerate(cells))
    table = written(tmp_path / "a.csv", f"a;b\n{rows}")
    assert table.kinds["a"] == kind
    known = ~pd.isna(table["a"])
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
    table = written(tmp_path / "a.csv", "a,b\n" + "".join(f"{cell},1\n" for cell in cells))
    assert table.words("a") == cells


def test_comments_above_the_names_are_skipped(tmp_path):
    path = tmp_path / "a.csv"
    with pytest.raises(DataError, match="line 6: 2 fields, but there are 3 columns"):
        written(path, "# made by a tool\n\n# on Monday, or so\na,b,c\n1,2,3\n4,5\n")
    table = written(path, "# made by a tool\na,b\n1,2\n")
    assert list(table.frame) == ["a", "b"]
    assert "skipped: 1 line of comments above the table" in table.notes
    assert list(written(path, "#a,b\n1,2\n").frame) == ["#a", "b"]  # names may start with the sign


def test_long_cells(tmp_path):
    limit = csv.field_size_limit()
    table = written(tmp_path / "a.csv", "a,b\n" + "w" * 200_000 + ",1\nv,\n")
    assert len(table.words("a")[0]) == 200_000
    assert csv.field_size_limit() == limit


def test_the_largest_double_stands_for_a_missing_value(tmp_path):
    text = "a,y\n1,2\n1.7976931348623157e308,3\n3,-1.7976931348623157e308\n"
    table = written(tmp_path / "a.csv", text)
    np.testing.assert_array_equal(table["a"], [1, np.nan, 3])
    np.testing.assert_array_equal(table["y"], [2, 3, np.nan])
    assert len(table.notes) == 2


@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "SEP=;"])
def test_the_line_of_excel_that_names_the_separator(tmp_path, first):
    table = written(tmp_path / "a.csv", f"{first}\r\nx;label\r\n0,5;a\r\n1,5;b\r\n")
    assert list(table.frame) == ["x", "label"]
    np.testing.assert_array_equal(table["x"], [0.5, 1.5])


def test_other_encodings_are_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("x,地名\n1,東京\n2,千葉\n".encode("shift-jis"))
    with pytest.raises(DataError, match=r"neither UTF-8, UTF-16 .* save it as UTF-8"):
        read_table(path)
    path.write_bytes("x,y\n1,2\n".encode("utf-16-le"))
    with pytest.raises(DataError, match="UTF-16 without a byte order mark"):
        read_table(path)


def test_words_of_parquet_are_those_of_csv(tmp_path):
    words = ["yes ", "no  ", "", "   ", None, "yes "]
    pd.DataFrame({"a": words, "n": range(6)}).to_parquet(tmp_path / "a.parquet")
    expected = ["yes", "no", None, None, None, "yes"]
    assert Found(tmp_path / "a.parquet").words("a") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,a,label\n1,2,x\n", r"line 1: several columns are called 'a' \(columns 1, 2\)"),
        ("a,b,label\n1,2,x\n3,4\n", "line 3: 2 fields, but there are 3 columns"),
        ("a,b\n1,2,3\n4,5,6\n", "line 2: 3 fields, but there are 2 columns"),
        ("a,b\n1,2\n4,5,6\n", "line 3: 3 fields, but there are 2 columns"),
        ('a,b,label\n1,"2,x\n3,4,y\n', "line 3: 2 fields.* 3 columns; is a quote not closed"),
        ("", "is empty"),
        ("\n \n", "is empty"),
        ("a,label\n", "has a line of column names but no rows"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path, text, message):
    with pytest.raises(DataError, match=f"a.csv.*{message}"):
        written(tmp_path / "a.csv", text)


def test_frames_of_any_kind(tmp_path):
    frame = pd.DataFrame({0: ["1,5", "2"], "c": pd.Categorical([1, None])})
    cleaned, ways, _ = clean(frame, sep=";")
    assert ways == {"0": "number ,", "c": "words"}
    assert cleaned["c"].tolist()[0] == "1"
    twice = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(DataError, match="several columns are called 'a'"):
        clean(twice)
