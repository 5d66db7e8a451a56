"""`edged bench`: load against a device, measured so that a stall cannot hide.

A plan (`plan`) is a list of cases. A trial (`trial`) runs one: the generator sends by schedule on its own thread, the
target (`target`) carries requests and answers, the ledger says which answer belongs to which request, and the tally
counts. What came out is one JSON document (`document`); the table, the page and the comparison read nothing else.
"""
