"""The command line: ``main`` has the app, each command a module of its own, ``output`` what they share.

To add a command, write ``cli/<name>.py`` with one function and list it in ``main.COMMANDS``.
"""
