"""Pure code: domains, the IR, evidence, the judge, row sets and row filters."""
