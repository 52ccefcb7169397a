"""HttpSource: produces the records of a JSON API, which it polls page by page.

`paging` determines the next request and the offset after each record, `requests` makes the requests with retries,
`pointers` finds values in JSON, and `task` combines them.
"""
