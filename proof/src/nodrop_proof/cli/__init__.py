"""The verbs of `nodrop prove`: parse, run a proof, print. `tree` has all of them."""
