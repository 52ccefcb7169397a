"""DirectorySource: reads the lines of all files in a directory as they are appended, across log rotation.

`scanning` lists files, and `files` recognises each file again by its device, inode and content, whatever its name.
`lines` reads lines of plain and gz files, and `task` turns them into records.
"""
