"""The command line: ``main`` has the app, each command a module of its own, which share the others.

To add a command, write ``cli/<name>.py`` with one function and list it in ``main.COMMANDS``. To add a format
of rows, write its writer in ``formats`` and name it in ``query.RowFormat``.
"""
