import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.budget import NANO, Amount, amount_text, nano_to_usd_text, parse_amount, rounded_up
from ecoshell.errors import UsageError


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0.50", Amount(500_000_000, "usd")),
        ("$0.50", Amount(500_000_000, "usd")),
        (" $2 ", Amount(2 * NANO, "usd")),
        ("2.", Amount(2 * NANO, "usd")),
        (".5", Amount(NANO // 2, "usd")),
        ("0.000000001", Amount(1, "usd")),
        ("1000000", Amount(1_000_000 * NANO, "usd")),
        ("20000tok", Amount(20_000, "tokens")),
        ("20000 tokens", Amount(20_000, "tokens")),
        ("1TOK", Amount(1, "tokens")),
        ("20k tok", Amount(20_000, "tokens")),
        ("1.5ktok", Amount(1_500, "tokens")),
        ("1,5k tok", Amount(1_500, "tokens")),
        ("2M tokens", Amount(2_000_000, "tokens")),
        ("20,000 tokens", Amount(20_000, "tokens")),
        ("50c", Amount(NANO // 2, "usd")),
        ("50 cents", Amount(NANO // 2, "usd")),
        ("0.5¢", Amount(NANO // 200, "usd")),
        ("1,50", Amount(3 * NANO // 2, "usd")),
        ("0,125", Amount(NANO // 8, "usd")),
        ("$1,234.56", Amount(123_456 * NANO // 100, "usd")),
        ("1,234,567 tok", Amount(1_234_567, "tokens")),
        ("2 dollars", Amount(2 * NANO, "usd")),
        ("$2k", Amount(2_000 * NANO, "usd")),
    ],
)
def test_amounts_are_parsed_as_dollars_or_tokens(text: str, amount: Amount) -> None:
    assert parse_amount(text) == amount


NOTHING = ["0", "0.00", "0tok", "-1", "$-1", "-5tok", "-"]
ABSURD = ["1000000.01", "9" * 60, "9" * 10_000, "99999999999999999999tok"]
TOO_FINE = ["0.0000000001", "1." + "0" * 35 + "1", "1." + "0" * 58 + "1", "1.5tok"]
GARBAGE = [
    "",
    "nan",
    "inf",
    "1e3",
    "1e400",
    "0x10",
    "1,000",
    "two",
    "$",
    "tok",
    "$5tok",
    "1 2",
    "٣",
    "½",
]
TYPED_WRONG = ["20k", "5kc", "1.2.3", "1,2,3", ",", "$5c", "1,500"]


@pytest.mark.parametrize("text", [*NOTHING, *ABSURD, *TOO_FINE, *GARBAGE, *TYPED_WRONG])
def test_an_invalid_amount_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_amount(text)
    assert "0.50" in refused.value.fix
    assert "20000tok" in refused.value.fix
    assert len(str(refused.value)) < 300


@given(st.text(max_size=80))
def test_any_text_is_a_positive_amount_or_an_error(text: str) -> None:
    try:
        amount = parse_amount(text)
    except UsageError:
        return
    assert amount.value > 0


@given(st.integers(1, 1_000_000 * NANO))
def test_dollars_are_formatted_and_parsed_exactly(nano: int) -> None:
    text = nano_to_usd_text(nano)
    assert "e" not in text.lower()
    assert parse_amount(text) == Amount(nano, "usd")


def test_amounts_are_formatted_readably() -> None:
    assert nano_to_usd_text(0) == "0"
    assert nano_to_usd_text(3_100_000) == "0.0031"
    assert nano_to_usd_text(-1) == "-0.000000001"
    assert amount_text(500_000_000, "usd") == "$0.50"
    assert amount_text(2 * NANO, "usd") == "$2"
    assert amount_text(20_000, "tokens") == "20,000 tokens"
    assert str(Amount(91_200_000, "usd")) == "$0.0912"
    assert amount_text(1, "tokens") == "1 token"
    assert [
        amount_text(nano, "usd") for nano in (3_141_592, 123_456_789, 9_876_543_210, 999_999_999)
    ] == [
        *("$0.003142", "$0.1235", "$9.877", "$1"),
    ]
    assert amount_text(12_345_678_900_000, "usd") == "$12,345.68"  # cents are never rounded away


@pytest.mark.parametrize(
    ("text", "ways"), [("1,500", "Write 1500 or 1.500"), ("20k", "$20k or 20k tok")]
)
def test_ambiguous_amounts_are_refused_with_both_readings(text: str, ways: str) -> None:
    with pytest.raises(UsageError, match=r"ambiguous|dollars or tokens") as refused:
        parse_amount(text)
    assert ways in refused.value.fix


@given(st.integers(min_value=1, max_value=10**15))
def test_a_proposed_amount_is_rounded_up_to_two_digits(value: int) -> None:
    proposed = rounded_up(value)
    assert value <= proposed <= value + value // 10 + 1
    assert len(str(proposed).rstrip("0")) <= 2
