"""Chats: adapters, what people send, what reaches them."""
