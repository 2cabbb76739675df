"""Subscriptions: what the application wants, what the server was asked for, and the position of each topic."""


class Subscription:
    """One use of a topic by the application. on_ready and on_end are called once each, on_end only after on_ready."""

    def __init__(self, topic, on_ready, on_fail, on_end, on_presence=None):
        self.topic, self.on_ready, self.on_fail, self.on_end, self.on_presence = topic, on_ready, on_fail, on_end, on_presence
        self.ready = self.over = False

    def end(self, error):
        """Reports that the server has ended or refused the subscription."""
        if not self.over:
            self.over = True
            (self.on_end if self.ready else self.on_fail)(error)

    def succeed(self):
        """Reports that the server has accepted the subscription."""
        if not self.ready and not self.over:
            self.ready = True
            self.on_ready()


class Topic:
    """A topic that the application wants, on the present connection."""

    def __init__(self, client, name, since, state):
        self.client, self.name, self.state = client, name, state
        self.uses = []
        self.status = "none"  # none, asked, subscribed or leaving
        self.request = ""  # correlation ID of what was asked last
        self.epoch, self.offset = since if since else (None, 0)
        self.complete = True  # the client has the whole state
        self.base = 0  # publications up to this offset are of the state, while it is not complete
        self.state_left = 0  # how many publications of the state follow first
        self.members = {}

    def disconnected(self):
        """Forgets what the server knew."""
        self.status, self.state_left = "none", 0
        if not self.complete:
            self.epoch, self.offset, self.complete = None, 0, True

    def synchronize(self):
        """Asks the server for what the application wants."""
        if not self.client.is_open:
            return
        if self.uses and self.status == "none":
            payload = {"topic": self.name, "positions": True}
            if any(s.on_presence for s in self.uses):
                payload["presence"] = True
            if self.state:
                payload["state"] = True
            if self.epoch is not None:
                payload["epoch"], payload["offset"] = self.epoch, self.offset
            self.status = "asked"
            self.request = self.client.request("$ws:subscribe", payload, self.answered)
        elif not self.uses and self.status == "subscribed":
            self.leave()

    def leave(self):
        self.status = "leaving"
        self.request = self.client.request("$ws:unsubscribe", {"topic": self.name}, self.left)

    def left(self, _message):
        self.status, self.epoch, self.offset = "none", None, 0
        self.synchronize()
        if not self.uses:
            self.client.topics.pop(self.name, None)

    def answered(self, message):
        """Handles the answer to a subscription."""
        payload = message.get("payload") or {}
        if message["type"] == "RPC_ERROR":
            self.refused(payload)
            return
        self.status = "subscribed"
        if self.epoch is not None and ("ended" in payload or payload.get("recovered") is False):
            if payload.get("state") is None:
                self.client.report_loss(self.name, 0, 0, "ended" in payload)
        self.epoch, self.offset = payload.get("epoch"), payload.get("offset", 0)
        self.base, self.state_left, self.complete = self.offset, payload.get("state") or 0, not payload.get("more")
        for use in list(self.uses):
            use.succeed()
        if "members" in payload:
            self.members = {m["connId"]: m for m in payload["members"]}
            self.report_members()
        self.synchronize()

    def refused(self, error):
        self.status = "none"
        if error.get("retryable"):
            self.client.later((error.get("retryAfterMs") or 1000) / 1000, self.synchronize)
            return
        self.over(error)

    def over(self, error):
        """Ends all uses: the server refuses the topic for good."""
        uses, self.uses, self.status = self.uses, [], "none"
        self.client.topics.pop(self.name, None)
        for use in uses:
            use.end(error)

    def unsubscribed(self, error):
        """Handles the end of the subscription by the server."""
        self.disconnected()
        if error and error.get("retryable"):
            self.synchronize()
        else:
            self.over(error or {})

    def publication(self, offset):
        """Returns (handled, of the state) for a publication with an offset, and moves the position."""
        if offset is None or self.epoch is None:
            return self.status == "subscribed", False
        if self.status != "subscribed":
            return False, False  # it comes again after the answer
        if self.state_left > 0:
            self.state_left -= 1
            return True, True
        if not self.complete and offset <= self.base:
            return True, True
        if offset <= self.offset:
            return False, False
        if offset > self.offset + 1:
            self.status = "none"  # a gap: ask for what is missing
            self.synchronize()
            return False, False
        self.offset = offset
        return True, False

    def moved(self, payload):
        """Handles a position that moves without a publication."""
        if self.status != "subscribed":
            return
        lost = payload.get("lost")
        if (lost or payload.get("reset")) and self.state:
            self.status, self.epoch, self.offset = "none", None, 0
            self.synchronize()
            return
        self.epoch, self.offset = payload["epoch"], payload["offset"]
        if lost or payload.get("reset") or "ended" in payload:
            self.client.report_loss(self.name, (lost or {}).get("from", 0), (lost or {}).get("to", 0), "ended" in payload)

    def presence(self, payload):
        for member in payload["left"]:
            self.members.pop(member["connId"], None)
        for member in payload["joined"]:
            self.members[member["connId"]] = member
        self.report_members()

    def report_members(self):
        for use in self.uses:
            if use.on_presence:
                use.on_presence(len(self.members))

    @property
    def position(self):
        """The epoch and the offset up to which everything was handled, or (None, 0)."""
        return (self.epoch, self.offset) if self.complete else (None, 0)
