"""The command line: ``main`` has the app, which loads the module of a command when it runs.

To add a command, write its function and list it in ``main.COMMANDS``. To add a format of rows, write its
writer in ``skipstone.scan.formats`` and list it in ``query.RowFormat``.
"""
