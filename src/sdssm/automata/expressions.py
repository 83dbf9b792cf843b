"""Regular expressions that simplify themselves when they are built from parts, and their text.

The text can be read by `regex_machine` with the same alphabet, in which `.` is any letter and `[]` matches nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sdssm.errors import AutomatonError

#: The most characters of an expression.
MOST_CHARACTERS = 5_000
SIGNS = "\\|*+?()[]{}.^$"


@dataclass(frozen=True, eq=False)
class Expression:
    """A regular expression; `text` identifies it.

    `kind` is "letters" (one letter of a set), "sequence", "choice" or "star". The empty sequence matches the empty
    string only, the empty set of letters matches nothing. A choice may contain the empty sequence.
    """

    kind: str
    text: str
    parts: tuple[Expression, ...] = ()
    letters: frozenset[str] = frozenset()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def is_nullable(self) -> bool:
        """Whether it matches the empty string."""
        if self.kind == "sequence":
            return all(part.is_nullable for part in self.parts)
        return self.kind == "star" or any(part.is_nullable for part in self.parts)

    @property
    def items(self) -> tuple[Expression, ...]:
        """The parts of a sequence, or the expression alone."""
        return self.parts if self.kind == "sequence" else (self,)

    @property
    def is_atom(self) -> bool:
        """Whether a sign of repetition may follow the text without brackets."""
        return self.kind == "letters" or self.text == "()"

    @property
    def group(self) -> str:
        """The text in brackets, unless it needs none before a sign of repetition."""
        return self.text if self.is_atom else f"({self.text})"


class ExpressionBuilder:
    """Builds expressions over an alphabet; each method simplifies its result."""

    def __init__(self, alphabet: Iterable[str]) -> None:
        self.alphabet = frozenset(alphabet)
        self.nothing = self.letters(())
        self.empty = Expression("sequence", "()")

    def letters(self, letters: Iterable[str]) -> Expression:
        """Return the expression for one letter of a set."""
        chosen = frozenset(letters)
        return Expression("letters", _letters_text(chosen, self.alphabet), letters=chosen)

    def sequence(self, *parts: Expression) -> Expression:
        """Return the concatenation of expressions."""
        items: list[Expression] = []
        for item in (item for part in parts for item in part.items):
            if item == self.nothing:
                return self.nothing
            last = items[-1] if items else None
            if last is not None and last.kind == "star":
                if item.is_nullable and _is_within(item, last):  # x* x? = x*
                    continue
                if item == last.parts[0]:  # x* x = x x*, which is written x+
                    items[-1:] = [item, last]
                    continue
            while items and item.kind == "star" and items[-1].is_nullable and _is_within(items[-1], item):
                items.pop()  # x? x* = x*
            items.append(item)
        if not items:
            return self.empty
        return items[0] if len(items) == 1 else Expression("sequence", _sequence_text(items), tuple(items))

    def choice(self, *parts: Expression) -> Expression:
        """Return the alternative of expressions."""
        members = {m for part in parts for m in (part.parts if part.kind == "choice" else (part,))}
        while True:
            members = self._reduce(members)
            factored = self._factor(members, front=True) or self._factor(members, front=False)
            if factored is None:
                break
            members = factored
        ordered = sorted(members, key=lambda member: (len(member.text), member.text))
        if len(ordered) < 2:
            return ordered[0] if ordered else self.nothing
        return Expression("choice", _choice_text(ordered), tuple(ordered))

    def _reduce(self, members: set[Expression]) -> set[Expression]:
        """Merge letters, and drop members that another one contains."""
        letters = frozenset(letter for m in members if m.kind == "letters" for letter in m.letters)
        reduced = {m for m in members if m.kind != "letters"} | ({self.letters(letters)} if letters else set())
        if self.empty in reduced:
            for member in list(reduced):  # x x* or the empty string: x*
                star = member.items[-1] if member.kind == "sequence" and member.items else member
                if star.kind == "star" and self.sequence(*member.items[:-1]) == star.parts[0]:
                    reduced = reduced - {member} | {star}
        for member in sorted(reduced, key=lambda m: len(m.text)):
            if any(_is_within(member, other) for other in reduced if other != member):
                reduced = reduced - {member}
        return reduced

    def _factor(self, members: set[Expression], *, front: bool) -> set[Expression] | None:
        """Take out a first (or last) item that several members share: ab|ac = a(b|c). None: no member has one."""
        groups: dict[Expression, list[Expression]] = {}
        for member in sorted(members, key=lambda m: m.text):
            if member != self.empty:
                groups.setdefault(member.items[0 if front else -1], []).append(member)
        saved = {item: (len(group) - 1) * len(item.text) for item, group in groups.items() if len(group) > 1}
        if not saved:
            return None
        shared = max(saved, key=lambda item: saved[item])
        rest = self.choice(*(self.sequence(*(m.items[1:] if front else m.items[:-1])) for m in groups[shared]))
        return members - set(groups[shared]) | {self.sequence(shared, rest) if front else self.sequence(rest, shared)}

    def star(self, part: Expression) -> Expression:
        """Return any number of repetitions of an expression."""
        members = {m for member in _loop_members(part) for m in _loop_members(member)} - {self.empty, self.nothing}
        while True:
            unpacked = {m for member in members for m in _loop_members(member)} - {self.empty}
            if unpacked == members:
                break
            members = unpacked
        for member in sorted(members, key=lambda m: -len(m.text)):
            others = members - {member}
            if others and _is_within(member, _plain_star(self.choice(*others))):
                members = others
        if not members:
            return self.empty
        return _plain_star(self.choice(*members))


def _plain_star(part: Expression) -> Expression:
    return Expression("star", _check_size(f"{part.group}*"), (part,))


def _loop_members(part: Expression) -> tuple[Expression, ...]:
    """Return expressions whose choice has the same star: of x* it is x, of x?y* it is x and y."""
    if part.kind in ("choice", "star"):
        return part.parts
    if part.kind == "sequence" and part.parts and part.is_nullable:
        return part.parts
    if len(part.parts) == 2 and part.parts[1].kind == "star" and part.parts[1].parts[0] == part.parts[0]:
        return part.parts[:1]  # x x*
    return (part,)


def _is_within(part: Expression, other: Expression) -> bool:
    """Whether the second expression clearly matches every string of the first; False if it is not clear."""
    if part == other:
        return True
    if part.kind == "choice":
        return all(_is_within(p, other) for p in part.parts)
    if other.kind == "letters":
        return part.kind == "letters" and part.letters <= other.letters
    if other.kind == "choice":
        return any(_is_within(part, o) for o in other.parts)
    if other.kind == "star":
        if part.kind in ("star", "sequence"):
            return all(_is_within(p, other) for p in part.parts) or _is_within(part, other.parts[0])
        return _is_within(part, other.parts[0])
    if not part.items:
        return other.is_nullable
    nullable = [o.is_nullable for o in other.parts]
    return any(_is_within(part, o) and all(nullable[:k] + nullable[k + 1 :]) for k, o in enumerate(other.parts))


# -- texts -----------------------------------------------------------------------------------------------------------


def _check_size(text: str) -> str:
    if len(text) > MOST_CHARACTERS:
        raise AutomatonError(
            f"the regular expression has more than {MOST_CHARACTERS:,} characters; a machine with so long an "
            "expression is better written as .json or .dot"
        )
    return text


def _letters_text(letters: frozenset[str], alphabet: frozenset[str]) -> str:
    if len(letters) == 1:
        (letter,) = letters
        return f"\\{letter}" if letter in SIGNS else letter
    if letters == alphabet and letters:
        return "."
    listed, others = f"[{_class_text(letters)}]", f"[^{_class_text(alphabet - letters)}]"
    return others if letters and len(others) < len(listed) else listed


def _class_text(letters: frozenset[str]) -> str:
    """Return the inside of a class, with runs of four letters or more as ranges."""
    codes = sorted(map(ord, letters))
    text = ""
    while codes:
        length = next((k for k in range(1, len(codes)) if codes[k] != codes[0] + k or k == 256), len(codes))
        run, codes = [_escape_in_class(chr(code)) for code in codes[:length]], codes[length:]
        text += f"{run[0]}-{run[-1]}" if length > 3 else "".join(run)
    return text


def _escape_in_class(letter: str) -> str:
    return f"\\{letter}" if letter in "\\[]^-&~|" else letter


def _choice_text(members: list[Expression]) -> str:
    texts = [member.text for member in members if member.items]
    text = "|".join(texts)
    if len(texts) == len(members):
        return _check_size(text)
    bound = _bounded_repetition(members)
    if bound is not None and bound[1] > 1:
        return f"{_group_text(bound[0])}{{0,{bound[1]}}}"
    (group,) = [m.group for m in members if m.items] if len(texts) == 1 else [f"({text})"]
    return _check_size(f"{group}?")


def _bounded_repetition(members: Sequence[Expression]) -> tuple[tuple[Expression, ...], int] | None:
    """Return items and the most times that they are repeated, if the members of a choice mean that: ()|x(()|x)."""
    others = [member for member in members if member.items]
    if len(members) != 2 or len(others) != 1:
        return None
    *repeated, last = others[0].items
    inner = _bounded_repetition(last.parts) if last.kind == "choice" else None
    if inner is not None and inner[0] == tuple(repeated):
        return inner[0], inner[1] + 1
    return others[0].items, 1


def _group_text(items: Sequence[Expression]) -> str:
    """Return the text of items so that a sign of repetition may follow."""
    return items[0].group if len(items) == 1 else f"({''.join(map(_item_text, items))})"


def _sequence_text(items: list[Expression]) -> str:
    """Return the text of a sequence; repeated pieces are written with +, {3} or {3,}."""
    text, position = "", 0
    while position < len(items):
        best, end = _item_text(items[position]), position + 1
        saved = 0
        for size in range(1, len(items) - position):
            piece = items[position : position + size]
            count = 1
            while items[position + count * size : position + (count + 1) * size] == piece:
                count += 1
            after = position + count * size
            sign = _repetition_sign(count, tuple(piece), items[after] if after < len(items) else None)
            end_of_piece = after + (not sign.endswith(f"{{{count}}}"))
            plain = sum(len(_item_text(item)) for item in items[position:end_of_piece])
            short = _group_text(piece) + sign
            if plain - len(short) > saved:
                saved, best, end = plain - len(short), short, end_of_piece
        text, position = text + best, end
    return _check_size(text)


def _repetition_sign(count: int, piece: tuple[Expression, ...], following: Expression | None) -> str:
    """Return the sign of a piece that stands `count` times, together with the item that follows: xxx*, xx?."""
    if following is not None and following.kind == "star" and following.parts[0].items == piece:
        return "+" if count == 1 else f"{{{count},}}"
    bound = _bounded_repetition(following.parts) if following is not None and following.kind == "choice" else None
    return f"{{{count},{count + bound[1]}}}" if bound is not None and bound[0] == piece else f"{{{count}}}"


def _item_text(item: Expression) -> str:
    is_bare_choice = item.kind == "choice" and all(part.items for part in item.parts)
    return f"({item.text})" if is_bare_choice else item.text
