"""Tools of MCP servers: what a server is (servers), its helper process (connection, helper), its tools (provider).

A server is reached through a helper process of its own, which owns the SDK: nothing heavy is imported here, and what a
server sends is read there, within limits.
"""
