"""DirectorySource: the lines of all files of a directory, as they are appended, across rotation.

`scanning` lists files, `files` recognises each again by its inode and its content, whatever its name. `lines` reads
lines, plain or gz, and `task` turns them into records.
"""
