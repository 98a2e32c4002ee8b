from hermesd.control.confirm import Tokens


class Monotonic:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def minted(*, words=0):
    clock = Monotonic()
    tokens = Tokens(120, clock)
    return clock, tokens, tokens.mint("op-1", 7, "bound", words=words)


def test_the_shown_token_typed_by_who_saw_it_is_accepted_once():
    _clock, tokens, shown = minted()
    assert tokens.redeem("op-1", 7, shown.token, "", "bound") == ""
    assert "no token" in tokens.redeem("op-1", 7, shown.token, "", "bound")


def test_a_token_is_worth_something_for_two_minutes_and_not_a_moment_longer():
    clock, tokens, shown = minted()
    clock.seconds += 119.9
    assert tokens.redeem("op-1", 7, shown.token, "", "bound") == ""
    shown = tokens.mint("op-1", 7, "bound", words=0)
    clock.seconds += 120.0
    assert "expired" in tokens.redeem("op-1", 7, shown.token, "", "bound")


def test_a_token_in_other_letters_or_with_blanks_is_not_the_token():
    for typed in (
        str.lower,
        lambda text: f" {text}",
        lambda text: text.replace("-", ""),
        lambda _text: "\udcff",
    ):
        _clock, tokens, shown = minted()
        assert tokens.redeem("op-1", 7, typed(shown.token), "", "bound") != ""


def test_what_was_shown_must_be_what_would_run():
    _clock, tokens, shown = minted()
    assert "not what would run" in tokens.redeem("op-1", 7, shown.token, "", "other")


def test_the_word_is_typed_exactly_and_only_where_one_is_asked():
    for typed in ("", " ", "ANCHOR", "y"):
        _clock, tokens, shown = minted(words=1)
        assert "word" in tokens.redeem("op-1", 7, shown.token, typed, "bound")
    _clock, tokens, shown = minted(words=1)
    assert tokens.redeem("op-1", 7, shown.token, shown.second_word, "bound") == ""
    assert minted(words=0)[2].second_word == ""


def test_tokens_differ_and_hold_no_letter_that_reads_like_another():
    tokens = Tokens(120)
    seen = {tokens.mint("op", 0, "b", words=0).token for _ in range(500)}
    assert len(seen) == 500
    assert not set("".join(seen)) & set("01OIL")


def test_a_voided_token_is_worth_nothing():
    _clock, tokens, shown = minted()
    tokens.void("op-1")
    assert "no token" in tokens.redeem("op-1", 7, shown.token, "", "bound")
