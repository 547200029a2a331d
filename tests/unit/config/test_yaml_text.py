"""YAML is read with the line of every key and without its surprises; nothing in a file makes it crash or stall."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comfyui_agent.config.yaml_text import DEEPEST, MOST_VALUES, NotYaml, parse

LONGEST_SECONDS = 3.0


def value_of(text: str) -> Any:
    return parse(text.encode()).value


def trouble_with(text: str | bytes) -> NotYaml:
    with pytest.raises(NotYaml) as caught:
        parse(text.encode() if isinstance(text, str) else text)
    return caught.value


def test_a_document_reads_as_what_it_says() -> None:
    for text, value in [
        ("", None),
        ("# nothing but a comment\n", None),
        ("---\n...\n", None),
        ("a", "a"),
        ("a: 1", {"a": 1}),
        ("- 1\n- x\n", [1, "x"]),
        ("a: {b: [1, {c: d}]}", {"a": {"b": [1, {"c": "d"}]}}),
        ("a: |\n  one\n  two\n", {"a": "one\ntwo\n"}),
        ("a: >-\n  one\n  two\n", {"a": "one two"}),
        ("a: 'it''s'", {"a": "it's"}),
        ('a: "\\u00e4\\U0001F600"', {"a": "ä😀"}),
        ("a: ä 😀", {"a": "ä 😀"}),
        ("a: x # y", {"a": "x"}),
        ("a: x#y", {"a": "x#y"}),
        ("%YAML 1.2\n---\na: 1", {"a": 1}),
        ("a: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
        ("a:\n", {"a": None}),
        ("a: {}\nb: []\n", {"a": {}, "b": []}),
    ]:
        assert value_of(text) == value, (text, value)


def test_a_plain_value_is_what_a_person_means_by_it() -> None:
    cases = [
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("Off", "Off"),
        ("y", "y"),
        ("12:30", "12:30"),
        ("1:2:3", "1:2:3"),
        ("2025-08-09", "2025-08-09"),
        ("2025-08-09 12:30:01", "2025-08-09 12:30:01"),
        ("010", 10),
        ("0o17", "0o17"),
        ("0b11", "0b11"),
        ("0x1F", 31),
        ("-0x1f", -31),
        ("1_000", 1000),
        ("1e5", 100000.0),
        ("1E-3", 0.001),
        ("1.5", 1.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("+7", 7),
        ("-7", -7),
        ("1e", "1e"),
        ("1.2.3", "1.2.3"),
        ("+", "+"),
        (".", "."),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("=", "="),
        ("~", None),
        ("null", None),
        ("NULL", None),
        ("nUll", "nUll"),
        ("true", True),
        ("False", False),
        ("tRue", "tRue"),
        ("'1'", "1"),
        ('"true"', "true"),
        ("''", ""),
        ("'~'", "~"),
        ("98:6.text", "98:6.text"),
        ("${prompt}", "${prompt}"),
        ("18446744073709551615", 18446744073709551615),
    ]
    for text, value in cases:
        found = value_of(f"a: {text}")["a"]
        assert (type(found), found) == (type(value), value), text


def test_a_number_that_no_one_can_mean_stays_a_text() -> None:
    for digits in [401, 5000, 400_000]:
        assert value_of(f"a: {'1' * digits}") == {"a": "1" * digits}, digits


def test_a_number_too_large_to_be_one_is_named_with_its_line() -> None:
    error = trouble_with("a: 1\nb: 1e999\n")
    assert (error.line, error.message) == (2, "1e999 is too large for a number")


def test_keys_are_texts() -> None:
    for text, keys in [
        ("6: x", ["6"]),
        ('"6": x', ["6"]),
        ("true: x", ["true"]),
        ("yes: x", ["yes"]),
        ("1.5: x", ["1.5"]),
        ("98:6.text: x", ["98:6.text"]),
        ("? a\n: x", ["a"]),
    ]:
        assert list(value_of(text)) == keys, (text, keys)


def test_every_key_and_item_has_the_line_on_which_it_stands() -> None:
    text = b"# first\na: 1\nb:\n  c: x\n  d:\n    - one\n    - two\n\ne: |\n  long\n  text\nf: {g: 1,\n  h: 2}\n"
    parsed = parse(text)
    lines = {
        ("a",): 2,
        ("b",): 3,
        ("b", "c"): 4,
        ("b", "d"): 5,
        ("b", "d", 0): 6,
        ("b", "d", 1): 7,
        ("e",): 9,
        ("f",): 12,
        ("f", "g"): 12,
        ("f", "h"): 13,
    }
    assert {path: parsed.line_of(path) for path in lines} == lines


def test_a_key_that_is_missing_has_the_line_of_what_it_is_missing_from() -> None:
    parsed = parse(b"a:\n  b:\n    c: 1\n")
    assert parsed.line_of(("a", "b", "nothing")) == 2
    assert parsed.line_of(("a", "b", "c", "deeper")) == 3
    assert parsed.line_of(("nothing",)) is None
    assert parsed.line_of(()) is None
    assert parse(b"").line_of(("a",)) is None


def test_an_item_that_is_a_mapping_has_the_line_on_which_it_begins() -> None:
    parsed = parse(b"a:\n  - x: 1\n    y: 2\n  - [1,\n     2]\nb: 3\n")
    assert [parsed.line_of(("a", 0)), parsed.line_of(("a", 1))] == [2, 4]


def test_lines_of_a_mapping_that_was_merged_are_not_those_of_another() -> None:
    parsed = parse(b"<<: {a: 1}\nc: {d: 2}\ne: {f: 1}\n")
    assert [parsed.line_of((key, "a")) for key in ("c", "e")] == [2, 3]


def test_a_key_that_is_there_twice_is_refused_with_the_line_of_the_second() -> None:
    for text, line in [
        ("a: 1\nb: 2\na: 3\n", 3),
        ('6: x\n"6": y\n', 2),
        ("a: {b: 1, c: 2,\n b: 3}", 2),
        ("true: 1\n'true': 2", 2),
    ]:
        error = trouble_with(text)
        assert error.line == line, (text, line)
        assert "is there twice: keep one" in error.message, (text, line)


def test_a_merge_gives_way_to_what_stands_beside_it_before_or_after() -> None:
    text = "base: &b {x: 1, y: 1, z: 1}\nuse:\n  x: 2\n  <<: *b\n  y: 2\n"
    assert value_of(text)["use"] == {"x": 2, "y": 2, "z": 1}
    assert value_of(text)["base"] == {"x": 1, "y": 1, "z": 1}


def test_of_several_merges_the_first_wins() -> None:
    text = "a: &a {x: 1}\nb: &b {x: 2, y: 2}\none: {<<: [*a, *b]}\ntwo:\n  <<: *a\n  <<: *b\n"
    assert value_of(text)["one"] == value_of(text)["two"] == {"x": 1, "y": 2}


def test_a_merge_of_what_is_no_mapping_is_refused() -> None:
    for text in ["a:\n  <<: 5\n", "a:\n  <<: [{b: 1}, 5]\n", "a:\n  <<:\n"]:
        error = trouble_with(text)
        assert (error.line, error.message) == (2, "<< takes a mapping"), text


def test_a_quoted_merge_key_is_a_key() -> None:
    assert value_of('{"<<": 1}') == {"<<": 1}


def test_an_alias_stands_for_what_was_named() -> None:
    assert value_of("a: &x [1, 2]\nb: *x\nc: &y text\nd: *y\n") == {"a": [1, 2], "b": [1, 2], "c": "text", "d": "text"}
    assert value_of("a: &k b\n*k : 2\n") == {"a": "b", "b": 2}


def test_an_alias_stands_for_the_latest_of_its_name() -> None:
    assert value_of("[&a 1, *a, &a 2, *a]") == [1, 1, 2, 2]


def test_an_alias_of_nothing_or_of_itself_is_refused() -> None:
    for text in ["a: 1\nb: *x\n", "a: 1\nb: &x [1, *x]\n", "a: 1\nb: &x {c: *x}\n"]:
        error = trouble_with(text)
        assert error.line == 2, text
        assert error.message == "*x stands for nothing: there is no &x before it", text


def test_a_list_or_mapping_is_no_key() -> None:
    for text in ["[1]: x", "{a: 1}: x", "a: &x [1]\n*x : 2\n", "? [a]\n: b\n"]:
        assert trouble_with(text).message == "a list or mapping cannot be a key", text


def test_a_bomb_of_aliases_is_refused_before_it_grows() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    error = trouble_with("\n".join(lines))
    assert "more than 100,000 values" in error.message
    assert error.line == 5


def test_a_bomb_of_merges_is_refused_before_it_grows() -> None:
    lines = ["a0: &a0 {x: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}"]
    lines += [f"a{n}: &a{n} {{p: *a{n - 1}, q: *a{n - 1}, <<: *a{n - 1}}}" for n in range(1, 40)]
    assert "more than 100,000 values" in trouble_with("\n".join(lines)).message


def test_a_bomb_of_one_long_text_is_refused() -> None:
    """Half a megabyte, ninety thousand times: small in memory, 45 GB as soon as someone writes it down."""
    trouble_with(f"a: &a {'x' * 500_000}\nb: [{'*a,' * 90_000}]\n")


def test_values_are_counted_to_the_last() -> None:
    assert len(value_of(f"[{'1,' * (MOST_VALUES - 1)}]")) == MOST_VALUES - 1
    assert trouble_with(f"[{'1,' * MOST_VALUES}]").message == "it holds more than 100,000 values"


def test_a_hundred_thousand_levels_are_refused_at_once() -> None:
    for text in [
        "[" * 100_000,
        "{a: " * 100_000,
        "[" * 100_000 + "]" * 100_000,
        "- " * 100_000,
        "? " * 100_000,
        "- ? " * 50_000,
    ]:
        begin = time.process_time()
        error = trouble_with(text)
        assert error.message == f"it is nested more than {DEEPEST} deep", text
        assert error.line == 1, text
        assert time.process_time() - begin < LONGEST_SECONDS, text


def test_levels_of_a_block_are_counted_by_line() -> None:
    lines = [" " * depth + "a:" for depth in range(1000)]
    assert trouble_with("\n".join(lines)).line == DEEPEST + 1


def test_as_many_levels_as_are_allowed_are_read() -> None:
    assert value_of("[" * DEEPEST + "]" * DEEPEST) is not None
    trouble_with("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1))


def test_thousands_of_merges_take_no_longer_than_thousands_of_keys() -> None:
    keys = "".join(f" k{number}: 1\n" for number in range(25_000))

    def seconds(lines: str) -> float:
        begin = time.process_time()
        with pytest.raises(NotYaml, match="more than 100,000 values"):
            value_of(f"a: &a\n{keys}b:\n <<: *a\n{lines}")
        return time.process_time() - begin

    plain = seconds("".join(f" m{number}: {{}}\n" for number in range(24_000)))
    assert seconds(" <<: {}\n" * 24_000) < 3 * plain


def test_what_is_no_yaml_is_said_with_its_line() -> None:
    for data, line, says in [
        (b"a: 1\nb: \xff\n", 2, "it is not text in UTF-8: save it as UTF-8"),
        (bytes(range(256)), 2, "it is not text in UTF-8"),
        ("a: ä\n".encode("latin-1"), 1, "it is not text in UTF-8"),
        ("a: 1\n".encode("utf-16"), 1, "it is not text in UTF-8"),
        (b"\x89PNG\r\n\x1a\n", 1, "it is not text in UTF-8"),
        (b"a: 1\nb: \x00\n", 2, "it is not YAML: control characters are not allowed"),
        (b"a: 1\nb: x\x1by\n", 2, "it is not YAML: control characters are not allowed"),
        (b"a:\n\tb: 1\n", 2, "it is not YAML: while scanning for the next token found character that cannot start"),
        (b"a: 1\n b: 2\n", 2, "it is not YAML: "),
        (b"a: 'open\n", None, "it is not YAML: while scanning a quoted scalar"),
        (b"a: [1, 2\nb: 3\n", 2, "it is not YAML: "),
        (b"a: b: c\n", 1, "it is not YAML: mapping values are not allowed in this context"),
        (b"a: @x\n", 1, "it is not YAML: "),
        (b"a: 1\n---\nb: 2\n", 2, "it holds more than one document: keep one, without a second ---"),
        (b"---\n---\n", 2, "it holds more than one document"),
        (b"%YAML 3.0\n---\na: 1\n", 1, "it is not YAML: found incompatible YAML document"),
        (b"%FOO\n---\na: 1\n", 1, "it is not YAML: "),
    ]:
        error = trouble_with(data)
        assert error.message.startswith(says), (data, line, says)
        assert line is None or error.line == line, (data, line, says)
        assert "\n" not in error.message, (data, line, says)


def test_a_control_character_is_found_on_its_line_behind_letters_of_two_bytes() -> None:
    assert trouble_with("ä" * 50 + "\nb: \x01" + "\n" * 50).line == 2


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    assert parse(b"\xef\xbb\xbfa: 1\n").value == {"a": 1}


def test_tags_of_json_values_are_understood() -> None:
    for text, value in [
        ("a: !!str 5", "5"),
        ("a: !!int '5'", 5),
        ("a: !!float 5", 5),
        ("a: !!bool 'true'", True),
        ("a: !!null ''", None),
        ("a: !!map {b: 1}", {"b": 1}),
        ("a: !!seq [1]", [1]),
    ]:
        assert value_of(text)["a"] == value, (text, value)


def test_every_other_tag_is_refused_with_its_line() -> None:
    for tag in [
        "!!python/object/apply:os.system ['true']",
        "!!python/name:os.system ''",
        "!!binary aGk=",
        "!!set {x}",
        "!!omap [x: 1]",
        "!!timestamp 2025-08-09",
        "!!int x",
        "!!bool 1",
        "!own {a: 1}",
        "!own x",
        "!<tag:example.com,2000:x> y",
    ]:
        error = trouble_with(f"a: 1\nb: {tag}\n")
        assert error.line == 2, tag
        assert "is not understood" in error.message, tag
        assert "leave it out" in error.message, tag


def test_a_complaint_about_a_tag_is_one_line() -> None:
    assert "\n" not in trouble_with("a: !own%0Atag x").message


LETTERS = st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"])
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(LETTERS, max_size=20),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(LETTERS, max_size=8).filter(lambda key: key != "<<"), inner, max_size=5)
    ),
    max_leaves=20,
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(JSON, st.sampled_from([None, 2]))
def test_what_json_writes_reads_back_equal(value: Any, indent: int | None) -> None:
    found = value_of(json.dumps(value, indent=indent))
    assert found == value
    assert json.dumps(found) == json.dumps(value)


def test_a_letter_that_json_writes_as_two_escapes_reads_back() -> None:
    assert value_of(json.dumps({"prompt": "a fox 🦊"})) == {"prompt": "a fox 🦊"}


SCRAPS = [*"-?:[]{},'#|>%&*!~\n\t \r\u0085\u2028", '"', "a", "b: ", "- ", "? ", ": ", "&a ", "*a ", "!t ", "!!int "]
SCRAPS += ["|\n", "%YAML 1.2\n", "---\n", "...\n", "<<: ", "1e5", "0x", "\\u", "  "]


def is_read_or_refused(data: bytes) -> None:
    """Nothing but NotYaml is raised, with a line that is there, and soon."""
    begin = time.process_time()
    line, last = None, len(data.decode(errors="replace").splitlines()) + 1
    try:
        parse(data)
    except NotYaml as error:
        line = error.line
    assert line is None or 1 <= line <= last
    assert time.process_time() - begin < LONGEST_SECONDS


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_read_or_said_not_to_be_yaml(data: bytes) -> None:
    is_read_or_refused(data)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(SCRAPS), max_size=60).map("".join), st.integers(1, 40))
def test_scraps_of_yaml_are_read_or_said_not_to_be_yaml(text: str, times: int) -> None:
    is_read_or_refused((text * times).encode())


def test_a_megabyte_of_anything_is_read_or_refused_soon() -> None:
    for before in ["", "[", "a: ", "- |\n ", '"']:
        for scrap in ("a", "- ", ": ", "? ", "[", "{a: ", ",", "&a ", "*a ", "!t ", "'", '"', "\n", "#", "\\u0041"):
            is_read_or_refused((before + scrap * (1_000_000 // len(scrap))).encode())


def test_the_mistakes_that_everybody_makes_come_with_a_remedy() -> None:
    for text, line, remedy in [
        ("inputs:\n  prompt: a fox: red\n", 2, 'write prompt: "a fox: red"'),
        ('inputs:\n  prompt: a "fox": red\n', 2, r'write prompt: "a \"fox\": red"'),
        ("- prompt: a: b\n", 1, 'write prompt: "a: b"'),
        (f"prompt: a: {'x' * 200}\n", 1, ": a text with a colon needs quotes"),
        ("url: http://user:word@host: x\n", 1, ": a text with a colon needs quotes"),
        ("prompt: a fox\n  in the snow: red\n", 2, ": a text with a colon needs quotes"),
        ("prompt: a fox\n  snow: red\n", 2, ": a text with a colon needs quotes"),
        ("inputs: {prompt: a: b}\n", 1, "a text with a colon or a comma needs quotes"),
        ("inputs:\n\tprompt: x\n", 2, "indent with blanks, not with tabs"),
    ]:
        found = trouble_with(text)
        assert (found.line, found.message.endswith(remedy)) == (line, True), found.message
        assert "word@" not in found.message, (text, line, remedy)
