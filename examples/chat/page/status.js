// Status messages: the state of the connection, error notices, and screen reader announcements.

import { byId } from "./dom.js";
import { seconds } from "./countdown.js";

const STATES = { connecting: "connecting", open: "online", waiting: "reconnecting", paused: "offline" };
const STATE_LABELS = { connecting: "Connecting", online: "Online", reconnecting: "Reconnecting", offline: "Offline" };
const REASONS = { ABORTED: "the connection was lost", CANCELLED: "the connection has changed", DEADLINE_EXCEEDED: "there was no answer in time" };
const NOTICE_MS = 12_000;

let reason = ""; // why there is no connection; empty before the first attempt has failed
let previous = "";
let countdown = 0;
let noticeTimer = 0;

// showConnection shows a state of the client.
export function showConnection(state, { error, retryAt }) {
  clearInterval(countdown);
  if (error) reason = describe(error, previous === "open");
  if (state === "open") reason = "";
  previous = state;
  const name = state === "waiting" && !navigator.onLine ? "offline" : STATES[state];
  byId("status").dataset.state = name;
  byId("status-text").textContent = STATE_LABELS[name];
  byId("connection").hidden = reason === "";
  byId("connection-reason").textContent = name === "offline" ? "This device is offline." : reason;
  byId("connection-wait").textContent = "Connecting…";
  byId("reconnect-now").disabled = state === "connecting" || !!error?.retryAfterMs; // the client obeys the server's delay
  if (retryAt) countDownTo(retryAt);
}

export function resetConnection() {
  clearInterval(countdown);
  reason = previous = "";
}

// A close frame without the error of a server has a text for developers.
function describe({ code, message, retryAfterMs }, wasOnline) {
  if (code !== "UNAVAILABLE" || retryAfterMs) return sentence(message);
  return wasOnline ? "The connection was lost." : "The server cannot be reached.";
}

// reasonOf returns the text of an error. Those of the client itself have a code alone.
export function reasonOf({ code, message }) {
  return message === code ? REASONS[code] ?? code : message;
}

export function sentence(text) {
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

function countDownTo(until) {
  const tick = () => {
    byId("connection-wait").textContent = `Reconnecting in ${seconds(until - performance.now())} s`;
  };
  countdown = setInterval(tick, 100);
  tick();
}

export function showNotice(text) {
  clearTimeout(noticeTimer);
  byId("notice-text").textContent = text;
  byId("notice").hidden = false;
  noticeTimer = setTimeout(hideNotice, NOTICE_MS);
}

export function hideNotice() {
  byId("notice").hidden = true;
}

// announce sets the text of a live region that only screen readers present.
export function announce(text) {
  byId("announce").textContent = text;
}
