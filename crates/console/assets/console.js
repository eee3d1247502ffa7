// Keeps the live parts of a page up to date. Everything works without it.
//
// A live part is an element with an id and `data-live`. The page is asked for again when the server reports an event, and
// every few seconds, and each live part that differs takes the place of the old one. While the page is hidden nothing is
// asked for, and no stream of events is open.
//
// HTTP/1 gives a browser six connections to a server, for all of its pages: one page has the stream, and tells the others.

import { kinds } from "/assets/kinds.js";

/** Figures and progress have no events. */
const PERIOD_MS = 10_000;
/** Events that come together are one refresh. */
const GATHER_MS = 400;
/** After a failure the server is left in peace for a while. */
const PAUSE_MS = 5_000;

const known = document.querySelector('meta[name="newest-event"]');
let newest = Number(known?.content ?? 0);
let stream = null;
let period = 0;
/** Ends the wait for the stream, or gives it to another page. */
let leave = null;
const pages = new BroadcastChannel("spindle-events");
let gathering = 0;
let isAsking = false;

/** Puts the live parts of another copy of this page in place of those that differ. */
function adopt(page) {
  for (const old of document.querySelectorAll("[data-live][id]")) {
    const fresh = page.getElementById(old.id);
    if (!fresh || fresh.isEqualNode(old)) continue;
    // A form in use stays as it is.
    if (old.contains(document.activeElement) && document.activeElement.matches("input, select, textarea")) continue;
    const place = focusIn(old);
    old.replaceWith(document.adoptNode(fresh));
    restoreFocus(document.getElementById(fresh.id), place);
  }
}

/** The place of the focus in a part, to be found again in its next copy. */
function focusIn(part) {
  const focused = document.activeElement;
  if (!part.contains(focused)) return null;
  return { href: focused.getAttribute("href"), index: reachable(part).indexOf(focused) };
}

function restoreFocus(part, place) {
  if (!place || !part) return;
  const all = reachable(part);
  const same = place.href && all.find((element) => element.getAttribute("href") === place.href);
  (same || all[place.index])?.focus({ preventScroll: true });
}

function reachable(part) {
  return [...part.querySelectorAll("a[href], button, [tabindex], summary")];
}

async function refresh() {
  if (isAsking || document.hidden) return;
  isAsking = true;
  try {
    const address = new URL(location.href);
    // Counts are asked for by a person, once.
    for (const name of ["done", "space", "room"]) address.searchParams.delete(name);
    address.hash = "";
    const answer = await fetch(address, { headers: { Accept: "text/html" }, credentials: "same-origin" });
    // The session has ended: the server shows the login.
    if (answer.redirected && new URL(answer.url).pathname === "/login") return location.assign(answer.url);
    if (answer.ok) adopt(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch {
    // The server may start again; the next period asks once more.
  } finally {
    isAsking = false;
  }
}

function happened(number) {
  newest = Math.max(newest, number);
  if (gathering) return;
  gathering = setTimeout(() => {
    gathering = 0;
    refresh();
  }, GATHER_MS);
}

/** Opens the stream, if the page is still shown. */
function listen() {
  if (stream || !leave) return;
  stream = new EventSource(`/v1/events?after=${newest}`);
  const tell = (event) => {
    const number = Number(event.lastEventId) || 0;
    pages.postMessage(number);
    happened(number);
  };
  for (const kind of kinds) stream.addEventListener(kind, tell);
  stream.onerror = () => {
    // A refused stream is not tried again by the browser; one that broke is.
    if (stream?.readyState !== EventSource.CLOSED) return;
    stream = null;
    setTimeout(listen, PAUSE_MS);
  };
}

function open() {
  if (leave || document.hidden) return;
  period = setInterval(refresh, PERIOD_MS);
  // Locks are for pages that came over TLS, or from this machine; others have a stream each.
  if (!navigator.locks) {
    leave = () => {};
    return listen();
  }
  const wait = new AbortController();
  let release = () => {};
  leave = () => {
    wait.abort();
    release();
  };
  const turn = () =>
    new Promise((resolve) => {
      release = resolve;
      listen();
    });
  navigator.locks.request("spindle-events", { signal: wait.signal }, turn).catch(() => {});
}

function close() {
  stream?.close();
  stream = null;
  leave?.();
  leave = null;
  clearInterval(period);
  clearTimeout(gathering);
  gathering = 0;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) return close();
  open();
  refresh();
});
pages.onmessage = (message) => happened(message.data);
addEventListener("pagehide", close);
open();
