"""FileStreamSource: reads the lines of one file as they are appended."""
