"""Two agents on the official SDK for Python: they exclude each other, by each way in which the protocol begins.

agents.py PROGRAM URL
"""

import asyncio
import subprocess
import sys

from mcp import Client, StdioServerParameters
from mcp.types import Implementation

PROGRAM, URL = sys.argv[1:]


class Agent:
    """An agent, and what its host is told."""

    def __init__(self, name, mode):
        server = StdioServerParameters(command=PROGRAM, args=["mcp", "--url", URL])
        self.messages = asyncio.Queue()
        level = None if mode == "legacy" else "info"
        self.client = Client(
            server, mode=mode, log_level=level, logging_callback=self.messages.put, client_info=Implementation(name=name, version="1")
        )

    async def call(self, tool, **arguments):
        """The text and the JSON of the answer, which the SDK has compared with the schema."""
        result = await self.client.call_tool(tool, arguments)
        return result.content[0].text, result.structured_content, bool(result.is_error)

    async def waits(self, key):
        """A call that waits for the lock, and stands in its queue."""
        shown = asyncio.Queue()

        async def show(_progress, _total, message):
            await shown.put(message)

        call = self.client.call_tool("take", {"key": key, "wait": "5m"}, progress_callback=show)
        task = asyncio.create_task(call)
        message = await shown.get()
        check("the host is shown the place", message.startswith(f"waiting for {key}, at place 1 of its queue"), message)
        return task


def check(name, truth, detail=None):
    if not truth:
        sys.exit(f"FAILED {name}: {detail}")
    print(f"ok {name}", flush=True)


async def nobody_waits(agent, key):
    while (await agent.call("who", key=key))[1]["queue"]:
        pass


async def exclude(mode):
    key = f"python:{mode}"
    one, other = Agent("one", mode), Agent("other", mode)
    async with one.client, other.client:
        print(f"-- {mode}: protocol {one.client.protocol_version}")
        names = [tool.name for tool in (await one.client.list_tools()).tools]
        check("tools", names == ["take", "renew", "release", "list", "who", "wait", "explain"], names)

        text, taken, is_error = await one.call("take", key=key, why="a new index", lease="5m")
        check("take", taken["taken"] and not is_error and taken["owner"].startswith("one-"), text)
        text, refused, is_error = await other.call("take", key=key)
        check("refusal", is_error and not refused["taken"] and "reason: a new index" in text, text)
        check("explain", (await one.call("explain", key=key))[1]["sentences"], "no sentence")
        check("list", (await one.call("list", mine=True))[1]["locks"][0]["key"] == key, "another key")

        waits = await other.waits(key)
        told = await one.messages.get()
        check("contended", told.data["event"] == "lock-contended" and told.level == "notice", told)
        waits.cancel()
        await asyncio.wait([waits])
        await nobody_waits(one, key)
        check("a cancelled call leaves the queue", True)

        waits = await other.waits(key)
        renewed = (await one.call("renew", key=key))[1]
        check("renew", renewed["token"] == taken["token"], renewed)
        text, _, is_error = await one.call("release", key=key, token=taken["token"])
        check("release", not is_error, text)
        got = (await waits).structured_content
        check("the next one has a higher token", got["token"] > taken["token"], got)

        command = [PROGRAM, "break", key, "--token", str(got["token"]), "--url", URL]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        told = await other.messages.get()
        check("lost", told.data["event"] == "lock-lost" and told.level == "warning", told)
        text, lost, is_error = await other.call("renew", key=key)
        check("a lock that is lost is not renewed", is_error and not lost["renewed"] and lost["notices"], text)
        text, nothing, is_error = await other.call("take", key=key, lease="-5s")
        check("bad arguments", is_error and nothing is None and "lease: must be a time" in text, text)
        text, waited, is_error = await other.call("wait", key=key)
        check("wait", waited["free"] and not is_error, text)


for mode in ["legacy", "auto"]:
    asyncio.run(exclude(mode))
print("done")
