"""MCP servers: their configuration and lists (servers), helper process (connection, helper) and tools (provider).

Each server has its own helper process, which owns the SDK and parses the server's output within limits. Nothing heavy
is imported here.
"""
