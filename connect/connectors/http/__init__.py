"""HttpSource: records of a JSON API that is polled, page by page.

`paging` knows which request comes next, and what offset is behind each record; `requests` makes requests, with retries;
`pointers` finds values in JSON; `task` joins them.
"""
