"""Identity on the wire: keys, bearers, signatures, invitations, links."""
