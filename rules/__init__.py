"""The rule table, the lever catalogue and their pure evaluation."""
