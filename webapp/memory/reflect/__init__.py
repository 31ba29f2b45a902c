"""Reflection: once a session is idle, a model of the user's distils lessons from its end.

`watch` notices idle sessions, `ledger` lets each be asked about once, `excerpt` makes what is sent,
`endpoint` sends it, `lessons` reads the answer and `keep` saves what is new.
"""

from webapp.memory.reflect.ledger import Reflection, Totals, listing, totals
from webapp.memory.reflect.watch import Reflector, host, missing, unusable

__all__ = ["Reflection", "Reflector", "Totals", "host", "listing", "missing", "totals", "unusable"]
