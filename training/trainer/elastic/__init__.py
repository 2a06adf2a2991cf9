"""Replica groups that leave and join a running training without changing a bit of any loss.

`reduction` fixes the order of every sum, `views` the order of memberships. `links` connects the members of a view,
`ranks` and `watch` the ranks of one group. `entrance` brings a group in, `transfer` and `donors` give it its
state, and `group` runs the steps. docs/elastic.md has the rules.
"""
