"""What `packages/release.py` makes: a module for each kind of file, and those that all of them use.

`targets` knows the platforms, `program` reads the head of a program, `build` calls cargo, `archive` writes files that are the same
bytes each time. Nothing here is sent anywhere.
"""
