"""Small changes of a source file's meaning, one each: a pure function of its text.

compare     < to <=, == to !=, in to not in
arithmetic  + to -, * to /, // to *
logic       and to or, a `not` left out
constants   a number and one more, True to False
conditions  an `if` that is never taken
calls       a statement that is a call left out
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
}


@dataclass(frozen=True)
class Mutant:
    """One change of one file: the text between two offsets, in bytes, is another."""

    line: int
    start: int
    end: int
    old: str
    new: str

    def applied(self, text: str) -> str:
        """The whole file with the change."""
        source = text.encode()
        return (source[: self.start] + self.new.encode() + source[self.end :]).decode()

    def __str__(self) -> str:
        return f"{self.old.splitlines()[0][:60]} -> {self.new.splitlines()[0][:60]}"


def mutants(text: str) -> list[Mutant]:
    """All of a file, in its order; none of annotations, texts, overloads and imports."""
    lines = [0]
    for line in text.encode().splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    found = []
    for node, new in _changes(ast.parse(text)):
        start = lines[node.lineno - 1] + node.col_offset
        end = lines[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        old = text.encode()[start:end].decode()
        # Unparsed text has the same meaning; brackets keep what stands around it apart.
        new_text = new if new == "pass" else f"({new})"
        found.append(Mutant(node.lineno, start, end, old, new_text))
    return found


def _changes(tree: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list", "bases", "type_comment"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.AST) and not isinstance(node, (ast.JoinedStr, ast.pattern)):
                yield from _of(node)
                yield from _changes(node)


def _of(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """The changes of this node itself."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            yield node, ast.unparse(ast.Compare(left, [_COMPARED[type(op)]()], [right]))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _COMPUTED:
            if not any(isinstance(side, (ast.List, ast.JoinedStr)) for side in (left, right)):
                yield node, ast.unparse(ast.BinOp(left, _COMPUTED[type(op)](), right))
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield node, ast.unparse(ast.BoolOp(other, values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, ast.unparse(operand)
        case ast.Constant(value=bool(value)):
            yield node, str(not value)
        case ast.Constant(value=int(value)) | ast.Constant(value=float(value)):
            yield node, repr(value + 1)
        case ast.If(test=test):
            yield test, "False"
        case ast.Expr(value=ast.Call()):
            yield node, "pass"
