// The application: the session of a user, the conversation, and the answer that is being written. run.js reads
// answers, view.js shows everything.

import { createClient } from "./penstock-client.js";
import { readRun } from "./run.js";
import { byId, showAnswer, showBudget, showMessages, showNotice, showRunning, showState } from "./view.js";

let session = null; // null: signed out

const newID = () => crypto.getRandomValues(new Uint32Array(4)).join("-");

// A name is the token of a user, and the hash is the chat: a second tab with the same address shows the same.
function startSession(name) {
  localStorage.setItem("aichat-name", name);
  const client = createClient({
    url: new URL("/ws", location.href.replace(/^http/, "ws")).href,
    token: () => name,
    stopOn: (code) => code === 4401,
  });
  session = { client, name, chat: null };
  client.onState((state, { error }) => {
    if (session?.client !== client) return;
    if (state === "closed") return signOut(error.message);
    showState(state);
    if (state === "open") void refreshBudget();
  });
  byId("signin").hidden = true;
  byId("chat").hidden = false;
  openChat();
}

function signOut(reason = "") {
  session?.chat?.close();
  session?.client.close();
  session = null;
  localStorage.removeItem("aichat-name");
  byId("chat").hidden = true;
  byId("signin").hidden = false;
  byId("name-error").textContent = reason;
  byId("name").focus();
}

// Chats

function openChat() {
  if (!session) return;
  session.chat?.close();
  const id = decodeURIComponent(location.hash.slice(1));
  if (!id) return location.replace("#" + newID()); // calls openChat again
  session.chat = newChat(session.client, session.name, id);
}

// newChat shows a conversation: its messages, and the answer that is being written, in whatever tab it was asked for.
function newChat(client, user, id) {
  const topic = `answer/${user}/${id}`;
  const closing = new AbortController();
  let messages = [];
  let run = null; // the ID of the run that is being read, or was read last
  let answer = ""; // its text so far
  const subscriptions = [
    client.subscribe(`messages/${user}/${id}`, { on: { MESSAGE: addMessage }, onReady: load, onLoss: load, onEnd: failed }),
    client.subscribe(topic, { on: { "run.changed": ({ run, state }) => state === "running" && follow(run) }, onEnd: failed }),
  ];
  show();
  showRunning(false);
  showNotice();
  byId("text").focus();

  function show() {
    showMessages(messages, user);
    if (answer && !isSaved()) showAnswer(answer);
  }

  function isSaved() {
    return messages.some((message) => message.id === run);
  }

  function addMessage(message) {
    const known = messages.findIndex((other) => other.id === message.id);
    if (message.role === "user" && known >= 0) messages.length = known; // asked again
    if (message.role === "assistant" && messages.at(-1)?.id !== message.replyTo) return;
    messages.push(message);
    show();
  }

  async function load() {
    try {
      const opened = await client.call("OPEN_CHAT", { chat: id }, { idempotent: true, signal: closing.signal });
      messages = opened.messages;
      show();
      if (opened.run) follow(opened.run);
    } catch (error) {
      failed(error);
    }
  }

  // follow shows the items of a run, from the first one on, until it has ended.
  async function follow(next) {
    if (next === run) return;
    run = next;
    answer = "";
    showRunning(true);
    try {
      const ended = await readRun(client, { topic, run }, closing.signal, ({ type, delta }) => {
        if (run !== next || type !== "text-delta") return;
        answer += delta;
        if (!isSaved()) showAnswer(answer);
      });
      // Its retryAfterMs is that of the next word. A question needs more.
      if (run === next && ended.error && ended.state !== "stopped") showNotice({ ...ended.error, retryAfterMs: undefined });
    } catch (error) {
      if (run === next) failed(error);
    }
    if (run !== next) return;
    showRunning(false);
    void refreshBudget();
  }

  function failed(error) {
    if (!closing.signal.aborted && error.code !== "NOT_FOUND") showNotice(error);
  }

  return {
    async ask(text) {
      const { run } = await client.call("ASK", { chat: id, id: newID(), text }, { idempotent: true, signal: closing.signal });
      void follow(run);
    },
    stop: () => client.call("aisdk.chunk.stop", { topic, run }, { idempotent: true }),
    close() {
      closing.abort();
      for (const subscription of subscriptions) subscription.unsubscribe();
    },
  };
}

// Budget

async function refreshBudget() {
  const { client } = session ?? {};
  if (client?.state !== "open") return;
  try {
    const { limits } = await client.call("GET_BUDGET", {}, { idempotent: true });
    if (session?.client === client) showBudget(limits);
  } catch (error) {
    if (session?.client === client) showNotice(error);
  }
}

setInterval(refreshBudget, 2_000);

// Controls

async function ask() {
  const text = byId("text").value.trim();
  if (!text || !session) return;
  showNotice();
  byId("send").disabled = true;
  try {
    await session.chat.ask(text);
    byId("text").value = "";
  } catch (error) {
    showNotice(error);
  }
  byId("send").disabled = false;
  void refreshBudget();
}

byId("signin").addEventListener("submit", (event) => {
  event.preventDefault();
  startSession(byId("name").value.trim());
});
byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  void ask();
});
byId("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  void ask();
});
byId("stop").addEventListener("click", () => session?.chat.stop().catch(showNotice));
byId("signout").addEventListener("click", () => signOut());
addEventListener("hashchange", openChat);

const name = localStorage.getItem("aichat-name");
if (name) startSession(name);
else signOut();
