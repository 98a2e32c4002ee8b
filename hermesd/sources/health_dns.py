"""Asks one DNS server for one name. Loaded only where a check names a server.

This module must never ask another server than the one it is told, and never take a failure of the
server for an answer about the name.
"""

from __future__ import annotations

import asyncio
import socket

import dns.asyncquery
import dns.exception
import dns.message
import dns.rcode
import dns.rdatatype

_NO_ANSWER_ABOUT_THE_NAME = (dns.rcode.SERVFAIL, dns.rcode.FORMERR, dns.rcode.NOTIMP)


async def ask_server(server: str, port: int, name: str, record: str) -> list[str] | str:
    """Return the records of a name as texts, or the server's refusal in words.

    Raise OSError when the server could not be asked, or failed itself. It is given what time is left to
    the caller, who has a clock.
    """
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(server, port, type=socket.SOCK_DGRAM)
    try:
        reply, _by_tcp = await dns.asyncquery.udp_with_fallback(
            dns.message.make_query(name, record),
            str(addresses[0][4][0]),
            port=port,
            ignore_unexpected=True,
            ignore_errors=True,
        )
    except dns.exception.DNSException as error:
        raise OSError(f"{server} gave no answer that could be read: {error}") from None
    rcode = reply.rcode()
    if rcode in _NO_ANSWER_ABOUT_THE_NAME:
        raise OSError(f"{server} answered {dns.rcode.to_text(rcode)}")
    if rcode != dns.rcode.NOERROR:
        return f"{server} answered {dns.rcode.to_text(rcode)}"
    wanted = dns.rdatatype.from_text(record)
    return [item.to_text() for part in reply.answer if part.rdtype == wanted for item in part]
