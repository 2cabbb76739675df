// useChat of @ai-sdk/react in jsdom.

import { JSDOM } from "jsdom";

const dom = new JSDOM("<!doctype html><div id=root></div>", { url: "http://localhost/" });
const globals = { window: dom.window, document: dom.window.document, navigator: dom.window.navigator };
for (const [name, value] of Object.entries(globals)) {
  Object.defineProperty(globalThis, name, { value, configurable: true });
}

const assert = (await import("node:assert/strict")).default;
const { test } = await import("node:test");
const { createElement } = await import("react");
const { createRoot } = await import("react-dom/client");
const { Chat, useChat } = await import("@ai-sdk/react");
const { newChat, sleep, Tab, text, textOf, until } = await import("./checks.mjs");

// A Page shows a component that uses useChat.
class Page {
  constructor(options, tab = {}) {
    this.tab = new Tab(tab);
    if (options.own) {
      this.options = { chat: new Chat({ ...options, transport: this.tab.transport }), resume: options.resume };
    } else {
      this.options = { ...options, transport: this.tab.transport };
    }
    this.root = createRoot(document.createElement("div"));
  }

  async mount() {
    const Component = () => {
      this.chat = useChat(this.options);
      return null;
    };
    this.root.render(createElement(Component));
    await until(() => this.chat);
    return this;
  }

  do(name, ...args) {
    void this.chat[name](...args);
  }

  until(condition) {
    return until(() => condition(this.chat), String(condition));
  }

  get answers() {
    return this.chat.messages.filter((m) => m.role === "assistant");
  }

  sent(type) {
    return this.tab.Socket.sent.filter((frame) => frame.type === type);
  }

  async close() {
    this.root.unmount();
    await sleep(50);
    this.tab.close();
  }
}

const body = { items: 200, everyMs: 2 };

test("sendMessage, a reload and a second tab show one answer", async () => {
  const id = newChat();
  const page = await new Page({ id }).mount();
  page.do("sendMessage", { text: "hello" }, { body });
  await page.until((chat) => textOf(chat.messages.at(-1)).length > 20 && chat.messages.length === 2);
  const tab = await new Page({ id, messages: page.chat.messages, resume: true }, { node: 1 }).mount();
  page.tab.cut();
  await page.until((chat) => chat.status === "error");
  page.do("resumeStream");
  for (const p of [page, tab]) {
    await p.until((chat) => chat.status === "ready" && chat.messages.length === 2 && textOf(chat.messages[1]) === text(200));
    assert.equal(p.answers.length, 1, "one message");
    assert.equal(p.answers[0].parts.filter((part) => part.state === "streaming").length, 0);
  }
  const reloaded = await new Page({ id, messages: page.chat.messages, resume: true }, { node: 1 }).mount();
  await sleep(200);
  await reloaded.until((chat) => chat.status === "ready");
  assert.deepEqual(reloaded.answers, page.answers, "after the end of the run");
  await Promise.all([page, tab, reloaded].map((p) => p.close()));
});

test("stop stops the run, and regenerate begins another one", async () => {
  const id = newChat();
  const page = await new Page({ id }).mount();
  page.do("sendMessage", { text: "hello" }, { body: { items: 1e6, everyMs: 2 } });
  await page.until((chat) => chat.messages.length === 2 && textOf(chat.messages[1]).length > 20);
  const viewer = await new Page({ id, messages: page.chat.messages, resume: true }, { node: 1 }).mount();
  await viewer.until((chat) => chat.status === "streaming");
  page.do("stop");
  await page.until((chat) => chat.status === "ready");
  await viewer.until((chat) => chat.status === "ready");
  assert.equal(page.sent("abort").length, 1);
  assert.equal(viewer.answers[0].parts.filter((part) => part.state === "streaming").length, 0);
  const before = page.answers[0].id;
  for (let i = 0; i < 2; i++) {
    page.do("regenerate", { body });
    await page.until((chat) => chat.status === "ready" && textOf(chat.messages.at(-1)) === text(200));
  }
  assert.equal(page.answers.length, 1);
  assert.notEqual(page.answers[0].id, before);
  await page.close();
  await viewer.close();
});

test("leaving the page stops the run, unless the application has made the chat", async () => {
  for (const own of [false, true]) {
    const id = newChat();
    const page = await new Page({ id, own }).mount();
    page.do("sendMessage", { text: "hello" }, { body });
    await page.until((chat) => chat.messages.length === 2 && textOf(chat.messages[1]).length > 20);
    page.root.unmount();
    await sleep(100);
    assert.equal(page.sent("abort").length, own ? 0 : 1);
    const tab = new Tab();
    const answer = await tab.resume(id);
    await answer.end;
    assert.equal(answer.chunks.at(-1).type, own ? "finish" : "abort");
    tab.close();
    page.tab.close();
  }
});

test("a page without a run resumes nothing", async () => {
  const page = await new Page({ id: newChat(), resume: true }).mount();
  await page.until((chat) => page.sent("resume").length === 1 && chat.status === "ready");
  assert.equal(page.chat.messages.length, 0);
  await page.close();
});

test("a failed run is an error of the chat", async () => {
  const page = await new Page({ id: newChat() }).mount();
  page.do("sendMessage", { text: "hello" }, { body: { items: 5, failAfter: 3 } });
  await page.until((chat) => chat.status === "error");
  assert.equal(page.chat.error.message, "the model has failed");
  assert.equal(textOf(page.answers[0]), text(3));
  assert.equal(page.answers[0].parts.filter((part) => part.state === "streaming").length, 0);
  await page.close();
});
