"""Phase one plans, phase two executes."""
