"""Channels: one file for each way to reach a target, which also knows what failures are worth a
retry there. base.py has what they share; mail.py (SMTP) and sendmail.py send what mail_message.py
makes to whom mail_url.py reads from the address of the target.
"""
