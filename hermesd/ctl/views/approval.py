"""What a person is shown before approving, and after. Pure.

Whatever the agent or a file name contributes stands behind a bar or on one line with its middle cut:
it can neither pass for hermesctl's own words nor push what matters off the screen. What would happen,
where, and whether it can be undone come last, next to the token.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from hermesd.ctl import messages as m
from hermesd.ctl.messages import Text
from hermesd.ctl.screen import Item, Line, Tone
from hermesd.ctl.speech import Speech, clock_time, millis, moment_of
from hermesd.ctl.views.fields import pairs, rows_of, table_of, text_of, texts_of, whole_of
from hermesd.ctl.views.timeline import gain_text, label_width
from hermesd.ctl.width import cut_middle, visible

SHOWN_FILES: Final = 10
_MAY_HAVE_HAPPENED: Final = frozenset({"succeeded", "timed_out", "unknown"})
_SHOWN_ARGS: Final = 8
_MOST_ROWS: Final = 4
"""Rows of the screen that one text of somebody else's may fill."""


def render_operation(shown: dict[str, Any], say: Speech, now: datetime, width: int) -> list[Item]:
    """Return the operation as it must be read before its token is typed."""
    labels = (m.L_COMMAND, m.L_ASKED_BY, m.L_INTENT, m.L_ARGS, m.L_FILES, m.L_IMPACT, m.L_ROOT, m.L_UNDO)
    hang = label_width([*labels, m.L_VALID, m.L_TOKEN, m.L_WORD], say)
    room = _MOST_ROWS * max(width - hang - 4, 10)
    impact = table_of(shown, "impact")
    return [
        Line(say(m.OPERATION, id=text_of(shown, "id")), Tone.HEAD, cut=True),
        Line(text_of(shown, "command"), Tone.HEAD, say(m.L_COMMAND), hang, cut=True),
        Line(
            say(m.ASKED_BY_RUN, task=text_of(shown, "task_id")), label=say(m.L_ASKED_BY), hang=hang, cut=True
        ),
        Line(
            cut_middle(visible(text_of(shown, "intent")), room), label=say(m.L_INTENT), hang=hang, quote=True
        ),
        *_block(m.L_ARGS, pairs(table_of(shown, "args")), _SHOWN_ARGS, say, hang),
        *_files(impact, say, hang),
        *_impact(shown, impact, say, hang),
        Line(),
        _validity(shown, say, now, hang),
        Line(text_of(shown, "token"), Tone.HEAD, say(m.L_TOKEN), hang),
        Line(),
    ]


def _block(label: Text, texts: list[str], most: int, say: Speech, hang: int) -> list[Item]:
    """Return one line for each text, its middle cut to the screen's width."""
    lines: list[Item] = []
    for index, text in enumerate(texts[:most]):
        lines.append(Line(text, label=say(label) if index == 0 else "", hang=hang, cut=True, quote=True))
    if len(texts) > most:
        lines.append(Line(say(m.MORE_FILES, n=len(texts) - most), Tone.WARN, hang=hang))
    return lines


def _files(impact: dict[str, Any], say: Speech, hang: int) -> list[Item]:
    sample = texts_of(impact, "sample")[:SHOWN_FILES]
    lines = _block(m.L_FILES, sample, SHOWN_FILES, say, hang)
    more = whole_of(impact, "files") - len(sample)
    if sample and more > 0:
        lines.append(Line(say(m.MORE_FILES, n=more), hang=hang))
    return lines


def _impact(shown: dict[str, Any], impact: dict[str, Any], say: Speech, hang: int) -> list[Item]:
    text = text_of(shown, "text") or text_of(impact, "text")
    lines: list[Item] = [Line(text, Tone.BAD, say(m.L_IMPACT), hang)]
    if root := text_of(impact, "root"):
        lines.append(Line(root, Tone.HEAD, say(m.L_ROOT), hang, cut=True))
    tone = Tone.PLAIN if impact.get("reversible") is True else Tone.BAD
    return [*lines, Line(_undo(shown, impact, say), tone, say(m.L_UNDO), hang)]


def _undo(shown: dict[str, Any], impact: dict[str, Any], say: Speech) -> str:
    """Return whether it can be undone and for how long, or why not."""
    why = m.UNDO_WHY.get(text_of(impact, "undo"))
    if impact.get("reversible") is not True:
        return say(m.UNDO_NO_WHY, why=say(why)) if why else say(m.UNDO_NO)
    hours = whole_of(impact, "undo_h")
    return say(m.UNDO_FOR, n=hours, id=text_of(shown, "id")) if hours else say(m.UNDO_YES)


def _validity(shown: dict[str, Any], say: Speech, now: datetime, hang: int) -> Line:
    ends = moment_of(shown.get("token_expires_at"))
    seconds = max(0, round((ends - now).total_seconds())) if ends else whole_of(shown, "token_seconds")
    text = say(m.VALID, n=seconds, at=clock_time(shown.get("token_expires_at")))
    return Line(text, label=say(m.L_VALID), hang=hang)


def render_word(word: str, say: Speech) -> list[Item]:
    """Return the second question's words."""
    hang = label_width([m.L_WORD, m.L_TOKEN], say)
    return [Line(), Line(word, Tone.HEAD, say(m.L_WORD), hang), Line(say(m.SECOND), Tone.WARN)]


def render_ending(ended: dict[str, Any], say: Speech) -> list[Item]:
    """Return how an approved operation ended, with what it really gained."""
    outcome, result = text_of(ended, "outcome"), table_of(ended, "result")
    good = outcome == "succeeded"
    gain = table_of(result, "gain")
    told = gain_text(gain, say) if gain else text_of(ended, "text") or text_of(result, "reason")
    text = say(m.ENDED_WHY if told else m.ENDED_AS, outcome=say.word(m.RESULTS, outcome), text=told)
    stages = _doing_it(rows_of(result, "stages"), say)
    lines: list[Item] = [Line(stages, Tone.DIM)] if stages else []
    lines.append(Line(text, Tone.GOOD if good else Tone.BAD))
    if whole_of(table_of(result, "impact"), "undo_h") and outcome in _MAY_HAVE_HAPPENED:
        lines.append(Line(say(m.UNDO_LATER, id=text_of(ended, "id"))))
    return lines


def _doing_it(stages: list[dict[str, Any]], say: Speech) -> str:
    """Return how long the doing took. Earlier occurrences of these stages are the previews'."""
    last = {text_of(one, "name"): one for one in stages}
    return " · ".join(
        f"{say.word(m.STAGES, name)} {millis(last[name].get('ms'))}"
        for name in ("prepare", "execute")
        if name in last
    )
