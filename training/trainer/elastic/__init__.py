"""Replica groups that leave and join a running training without changing a bit of any loss.

`reduction` fixes the order of every sum, `views` the order of memberships, `links` connects the members of a view,
`transfer` gives a joining group its state, and `group` runs the steps. docs/elastic.md has the rules.
"""
