"""FuncPipe's own method, its peers, and its figures 5, 7, 8, 10 and 11."""
