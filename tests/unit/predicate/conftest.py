import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def kit() -> ModuleType:
    """The row-at-a-time evaluator, its table and its predicates."""
    spec = importlib.util.spec_from_file_location("evaluate", Path(__file__).with_name("evaluate.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
