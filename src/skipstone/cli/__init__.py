"""The command line: ``main`` has the app, which loads the module of a command when it is run.

To add a command, write its function and name it with its module in ``main.COMMANDS``. To add a format of
rows, write its writer in ``formats`` and name it in ``query.RowFormat``.
"""
