"""Predicates as domains: the other way round, by binding them to a schema."""

from __future__ import annotations

import pyarrow as pa

from skipstone.core.domain import ColumnDomain, ColumnHandle, DomainTree, all_of, any_of
from skipstone.core.ir.compile import compile_predicate
from skipstone.core.ir.nodes import AndNode, ConstantNode, Leaf, Node, OrNode
from skipstone.errors import NotExpressibleError
from skipstone.predicate import tree
from skipstone.predicate.tree import Predicate


def to_column_domain(predicate: Predicate, schema: pa.Schema | None = None) -> ColumnDomain:
    """The rows for which ``predicate`` is TRUE, as one ColumnDomain."""
    return to_domain_tree(predicate, schema).to_column_domain()


def to_domain_tree(predicate: Predicate, schema: pa.Schema | None = None) -> DomainTree:
    """The rows for which ``predicate`` is TRUE, as an AND/OR tree of domains.

    Without a schema each column takes the type of the literals it is compared with.
    """
    compiled = compile_predicate(predicate, schema or _inferred_schema(predicate))
    return _tree(compiled.node)


def _tree(node: Node) -> DomainTree:
    match node:
        case Leaf(ref=ref, true=true, false=false, null=null):
            if ref.via:
                raise NotExpressibleError(f"a domain can't hold a function of a column: {node}")
            if true.overlaps(false | null):
                raise NotExpressibleError(f"a domain can't hold {node}, which bounds don't decide")
            return ColumnDomain.of({ColumnHandle(ref.path[0], ref.type, ref.path[1:]): true})
        case AndNode(args):
            return all_of(*(_tree(a) for a in args))
        case OrNode(args):
            return any_of(*(_tree(a) for a in args))
        case ConstantNode(value):
            return ColumnDomain.all() if value else ColumnDomain.none()
    raise NotExpressibleError(f"a domain can't hold {node}")


def _inferred_schema(predicate: Predicate) -> pa.Schema:
    types: dict[str, pa.DataType] = {}
    for node in predicate.walk():
        match node:
            case tree.Compare(_, tree.Column(path), tree.Literal(scalar)) | tree.Compare(
                _, tree.Literal(scalar), tree.Column(path)
            ):
                found = scalar.type
            case tree.Between(tree.Column(path), tree.Literal(scalar)):
                found = scalar.type
            case tree.IsIn(tree.Column(path), values):
                found = values.type
            case tree.Holds(tree.Column(path)):
                found = pa.bool_()
            case tree.IsNan(tree.Column(path)):
                found = pa.float64()
            case tree.Match(_, tree.Column(path)) | tree.Like(tree.Column(path)):
                found = pa.string()
            case _:
                continue
        if len(path) == 1 and types.setdefault(path[0], found) != found:
            raise NotExpressibleError(
                f"column {path[0]} is compared with {types[path[0]]} and {found}", hint="give the schema"
            )
    missing = [".".join(path) for path in predicate.columns() if len(path) > 1 or path[0] not in types]
    if missing:
        raise NotExpressibleError(f"the type of {', '.join(missing)} is not known", hint="give the schema")
    return pa.schema(list(types.items()))
