"""How OpenCode and other programs reach us: the token that they show, the server that waits for them,
and what of OpenCode's configuration is ours."""
