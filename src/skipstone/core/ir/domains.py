"""Conversion of predicates to domains."""

from __future__ import annotations

import pyarrow as pa

from skipstone.core.domain import ColumnDomain, ColumnHandle, DomainTree, all_of, any_of
from skipstone.core.ir.compile import compile_predicate
from skipstone.core.ir.nodes import AndNode, ConstantNode, Leaf, Node, OrNode
from skipstone.core.plain import type_name
from skipstone.errors import NotExpressibleError
from skipstone.predicate import tree
from skipstone.predicate.tree import Predicate


def to_column_domain(predicate: Predicate, schema: pa.Schema | None = None) -> ColumnDomain:
    """Rows where ``predicate`` is TRUE, as one ColumnDomain."""
    return to_domain_tree(predicate, schema).to_column_domain()


def to_domain_tree(predicate: Predicate, schema: pa.Schema | None = None) -> DomainTree:
    """Rows where ``predicate`` is TRUE, as an AND/OR tree of domains.

    Without a schema each column gets the type of the literals it is compared with.
    """
    compiled = compile_predicate(predicate, schema or _infer_schema(predicate))
    return _tree(compiled.node)


def _tree(node: Node) -> DomainTree:
    match node:
        case Leaf(ref=ref, true=true, false=false, null=null):
            if ref.via:
                raise NotExpressibleError(f"function of a column can't be a domain: {node}")
            if true.overlaps(false | null):
                raise NotExpressibleError(f"condition has no exact domain: {node}")
            return ColumnDomain.of({ColumnHandle(ref.path[0], ref.type, ref.path[1:]): true})
        case AndNode(args):
            return all_of(*(_tree(a) for a in args))
        case OrNode(args):
            return any_of(*(_tree(a) for a in args))
        case ConstantNode(value):
            return ColumnDomain.all() if value else ColumnDomain.none()
    raise NotExpressibleError(f"condition can't be a domain: {node}")


def _infer_schema(predicate: Predicate) -> pa.Schema:
    types: dict[str, pa.DataType] = {}
    for node in predicate.walk():
        match node:
            case tree.Compare(_, tree.Column(path), tree.Literal(scalar)) | tree.Compare(
                _, tree.Literal(scalar), tree.Column(path)
            ):
                kind = scalar.type
            case tree.Between(tree.Column(path), tree.Literal(scalar)):
                kind = scalar.type
            case tree.IsIn(tree.Column(path), values):
                kind = values.type
            case tree.BooleanValue(tree.Column(path)):
                kind = pa.bool_()
            case tree.IsNan(tree.Column(path)):
                kind = pa.float64()
            case tree.Match(_, tree.Column(path)) | tree.Like(tree.Column(path)):
                kind = pa.string()
            case _:
                continue
        if len(path) == 1 and types.setdefault(path[0], kind) != kind:
            raise NotExpressibleError(
                f"column {path[0]} is compared with {type_name(types[path[0]])} and {type_name(kind)}",
                hint="pass the schema",
            )
    missing = [".".join(path) for path in predicate.columns() if len(path) > 1 or path[0] not in types]
    if missing:
        raise NotExpressibleError(f"type of {', '.join(missing)} is unknown", hint="pass the schema")
    return pa.schema(list(types.items()))
