"""Pure code: domains, the compiled predicate, evidence, the judge, row sets, and predicates on rows."""
