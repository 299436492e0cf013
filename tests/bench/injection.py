"""Ask about one text from outside; a corpus of texts is measured by calling this for each."""

from daemon.injection import Finding, check_tool_result


def check(text: str) -> Finding:
    """Return what a page fetched from the network would be judged to be."""
    return check_tool_result("http_request", text)
