// Status messages: the state of the connection, error notices, and screen reader announcements.

import { byId } from "./dom.js";
import { seconds } from "./countdown.js";

const STATE_LABELS = { connecting: "Connecting", online: "Online", reconnecting: "Reconnecting", offline: "Offline" };
const NOTICE_MS = 12_000;

let countdown = 0;
let noticeTimer = 0;

export function showConnection({ name, until, reason, attempt }) {
  stopCountdown();
  byId("status").dataset.state = name;
  byId("status-text").textContent = STATE_LABELS[name];
  byId("connection").hidden = name === "online" || attempt === 0;
  byId("connection-reason").textContent = name === "offline" ? "This device is offline." : reason;
  byId("connection-wait").textContent = "Connecting…";
  byId("reconnect-now").disabled = name === "connecting";
  if (name === "reconnecting" || name === "offline") countDownTo(until);
}

export function stopCountdown() {
  clearInterval(countdown);
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
