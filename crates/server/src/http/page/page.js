// The page of locks: what the server tells by /api/events, and on request by the rest of /api. Where several groups share out
// the slots of a cluster, the page asks the leader of each.
//
// Rule  every text from the server enters the document by `say` or `readable`: a key is never markup, and hides nothing.
// Rule  the list has elements for the visible rows alone, however many locks there are.
"use strict";

const ROW = 46; // Pixels of a row, as in style.css.
const OVERSCAN = 6; // Rows above and below the visible ones.
const TICK_MS = 250; // How often times and lease bars move.
const REFRESH_MS = 2000; // How often the open lock and the open view are asked for.
const WAITERS_SHOWN = 100;
const HOLDS_SHOWN = 12;
const KEY_END = 8; // Characters of a key's end that stay, however narrow its place is.

const $ = (id) => document.getElementById(id);

// Characters that are not seen, or that turn text around: `is_hidden` in log_name.rs.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\udb40[\udc00-\udc7f]/g;

/** A text of a client as people may read it: a hidden character is an escape. */
const readable = (text) => String(text).replace(HIDDEN, (hidden) => `\\u{${hidden.codePointAt(0).toString(16)}}`);

/** The text of an element. */
const say = (element, text) => { element.textContent = readable(text); };

/** An element with a class and a text, or with children. */
function make(tag, name, content) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (Array.isArray(content)) element.append(...content.map((part) => (typeof part === "string" ? readable(part) : part)));
  else if (content !== undefined) say(element, content);
  return element;
}

/** A key in an element. Where there is no room for it, style.css cuts it in the middle: keys often differ in the end alone. */
function sayKey(element, key) {
  const text = readable(key);
  let cut = Math.max(0, text.length - KEY_END);
  // Not between the two halves of a character.
  if (/^[\udc00-\udfff]/.test(text.slice(cut))) cut -= 1;
  element.classList.add("cut");
  element.replaceChildren(make("bdi", "", text.slice(0, cut)), make("bdi", "", text.slice(cut)));
  element.title = text;
}

// ---- Words ----------------------------------------------------------------------------------------------------------

/** Milliseconds as people say them. */
function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  ms = Math.max(0, ms);
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = Math.floor(ms / 1000);
  if (s < 10) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${String(s % 60).padStart(2, "0")} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

/** Whole seconds, as CLIENT LIST has them. */
const seconds = (s) => (s < 1 ? "< 1 s" : s < 10 ? `${s} s` : duration(s * 1000));
const number = (value) => (value === null || value === undefined ? "–" : Number(value).toLocaleString("en-US"));
const plural = (count, one, many) => `${number(count)} ${count === 1 ? one : many}`;
const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour12: false });

/** A client: its name or library, and its address. */
function clientText(client) {
  if (!client) return "";
  const library = [client["lib-name"], client["lib-ver"]].filter(Boolean).join(" ");
  return [client.name, library, client.addr].filter(Boolean).join(", ") || `client ${client.id}`;
}

const ownerText = (holder) =>
  (holder.owner === null ? "names no owner" : holder.owner) + (holder.known === "inferred" ? " (inferred)" : "");

/** The kind of a lock; of a key that is no lock, what it is. */
const kindText = (lock) => (lock.type ? `not a lock, but a ${lock.type}` : lock.kind);
const UNKNOWN_OWNER = "an unknown owner";

// ---- Asking the servers ---------------------------------------------------------------------------------------------

/** Who tells of locks: the server of this page, and the leaders of the other groups. `base` begins the URLs of a server. */
const sources = [newSource(null, "")];

function newSource(number, base) {
  const ended = new AbortController();
  return { number, base, ended, totals: null, offset: 0, isAdmin: false, isCut: false, state: "connecting", text: "Connecting" };
}

/** The source that has a lock now: the group may have got another leader. */
const sourceOf = (lock) => sources.find(({ number }) => number === lock.source.number) ?? lock.source;

let authorization = null;
let loggingIn = null;

/** Sends a request, and asks for a password if the server does. Cookies and the browser's own dialogue stay out of it. */
async function ask(source, path, options = {}) {
  for (;;) {
    const headers = { ...options.headers };
    if (authorization) headers.Authorization = authorization;
    const response = await fetch(source.base + path, { ...options, headers, credentials: "omit", cache: "no-store" });
    // The nodes of a cluster have the same passwords. One that has not says so, and is left out.
    if (response.status !== 401 || (source.base && authorization)) return response;
    await logIn(authorization !== null);
  }
}

async function askJson(source, path, options) {
  return valueOf(await ask(source, path, options));
}

/** The answers of all servers that answer, each with its source. */
async function askAll(path) {
  const asked = sources.map(async (source) => ({ source, answer: await askJson(source, path) }));
  const settled = await Promise.allSettled(asked);
  const answered = settled.filter(({ status }) => status === "fulfilled").map(({ value }) => value);
  if (!answered.length) throw new Error("no server answers");
  return answered;
}

/** The value of a response. A refusal may be a line of text. */
async function valueOf(response) {
  const text = await response.text();
  const isJson = (response.headers.get("Content-Type") ?? "").startsWith("application/json");
  if (response.ok) return JSON.parse(text);
  throw new Error(isJson ? JSON.parse(text).error : text.trim());
}

function logIn(wasWrong) {
  if (loggingIn) return loggingIn;
  say($("login-error"), wasWrong ? "The server does not accept this." : "");
  $("login").showModal();
  loggingIn = new Promise((resolve) => {
    $("login-form").onsubmit = () => {
      const bytes = new TextEncoder().encode(`${$("login-user").value}:${$("login-password").value}`);
      authorization = `Basic ${btoa(String.fromCharCode(...bytes))}`;
      $("login-password").value = "";
      loggingIn = null;
      resolve();
    };
  });
  return loggingIn;
}
// Without a login there is nothing to show.
$("login").addEventListener("cancel", (event) => event.preventDefault());

// ---- Locks ----------------------------------------------------------------------------------------------------------

/** All locks by their identity. A key that is not UTF-8 is told apart by its bytes. */
const locks = new Map();
const idOf = (lock) => (lock.key_base64 ? `b${lock.key_base64}` : `t${lock.key}`);
const keyQuery = (lock) =>
  lock.key_base64 ? `key_base64=${encodeURIComponent(lock.key_base64)}` : `key=${encodeURIComponent(lock.key)}`;

let view = []; // The locks that are shown, in order.
let sorting = { by: "waiters", down: true }; // What is waited for comes first.
let selected = null; // The identity of the open lock.
let current = 0; // The row that has the keyboard.
const serverNow = (lock) => Date.now() + lock.source.offset;

/** Adds what the list needs to a lock that a server has sent. */
function settle(lock, source) {
  lock.id = idOf(lock);
  lock.source = source;
  lock.first = lock.holders[0];
  const words = [lock.key, lock.kind];
  for (const { owner, token, client } of lock.holders) words.push(owner ?? "", token ?? "", clientText(client));
  lock.words = words.join("\n").toLowerCase();
  return lock;
}

const SORTS = {
  key: (lock) => lock.key,
  owner: (lock) => lock.first.owner ?? "",
  since: (lock) => -(lock.first.since ?? Infinity),
  until: (lock) => lock.first.until ?? Infinity,
  waiters: (lock) => lock.waiters,
  token: (lock) => lock.first.token ?? 0,
};

const KINDS = {
  all: () => true,
  waited: (lock) => lock.waiters > 0,
  endless: (lock) => lock.holders.some((holder) => holder.lease === null),
  held: (seconds) => (lock) => lock.first.since !== null && serverNow(lock) - lock.first.since >= seconds * 1000,
};

function chosenKind() {
  const value = $("filter-kind").value;
  return value.startsWith("held-") ? KINDS.held(Number(value.slice(5))) : KINDS[value];
}

/** Chooses and sorts the locks that are shown. */
function arrange() {
  const text = $("filter-text").value.trim().toLowerCase();
  const fits = chosenKind();
  const keyed = view.length > current ? view[current].id : null;
  const value = SORTS[sorting.by];
  const sign = sorting.down ? -1 : 1;
  view = [...locks.values()].filter((lock) => (!text || lock.words.includes(text)) && fits(lock));
  const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  // Of queues of one length, the one that has waited for longest comes first.
  const waits = (lock) => lock.waits_since ?? Infinity;
  view.sort((a, b) => sign * order(value(a), value(b)) || order(waits(a), waits(b)) || order(a.key, b.key) || order(a.id, b.id));
  const kept = keyed === null ? -1 : view.findIndex((lock) => lock.id === keyed);
  current = kept >= 0 ? kept : Math.max(0, Math.min(current, view.length - 1));

  $("rows").style.height = `${view.length * ROW}px`;
  $("grid").setAttribute("aria-rowcount", view.length + 1);
  const isAll = view.length === locks.size;
  say($("shown"), isAll ? plural(locks.size, "lock", "locks") : `${number(view.length)} of ${plural(locks.size, "lock", "locks")}`);
  if (sources.some(({ isCut }) => isCut)) $("shown").textContent += " (the first ones)";
  $("empty").hidden = view.length > 0;
  say($("empty-title"), locks.size ? "No lock fits" : "No lock is held");
  say($("empty-hint"), locks.size ? "Change the filter to see others." : "Locks appear here as soon as a client takes one.");
  draw();
}

// ---- The list -------------------------------------------------------------------------------------------------------

const rows = []; // Elements, reused for whichever lock is visible.

function newRow() {
  const row = make("div", "row");
  row.setAttribute("role", "row");
  const part = (name) => {
    const cell = make("div", `cell ${name}`);
    cell.setAttribute("role", "gridcell");
    row.append(cell);
    return cell;
  };
  const [key, owner, held, lease, waits, token] = ["key", "owner", "number held", "lease", "number waits", "number token"].map(part);
  const bar = make("div", "bar", [make("i")]);
  bar.setAttribute("aria-hidden", "true");
  const left = make("span");
  lease.append(left, bar);
  const texts = { key: make("span"), kind: make("small"), owner: make("span"), client: make("small") };
  key.append(texts.key, texts.kind);
  owner.append(texts.owner, texts.client);
  $("rows").append(row);
  const entry = { row, key, owner, held, lease, left, bar, waits, token, texts, index: -1, lock: null };
  row.addEventListener("click", () => { current = entry.index; open(entry.lock); });
  rows.push(entry);
  return entry;
}

function draw() {
  const scroller = $("scroller");
  const first = Math.max(0, Math.floor(scroller.scrollTop / ROW) - OVERSCAN);
  const count = Math.min(view.length - first, Math.ceil(scroller.clientHeight / ROW) + 2 * OVERSCAN);
  const hadFocus = $("rows").contains(document.activeElement);
  // The columns of the head are above those of the rows, beside which there may be a scroll bar.
  $("grid-head").style.paddingRight = `${scroller.offsetWidth - scroller.clientWidth}px`;
  while (rows.length < count) newRow();
  // A row keeps its element while it stays visible, so that the focus stays, too.
  for (let index = first; index < first + count; index++) fill(rows[index % rows.length], index);
  for (const entry of rows) {
    const isShown = entry.index >= first && entry.index < first + count;
    entry.row.hidden = !isShown;
    if (!isShown) entry.index = -1;
  }
  if (hadFocus && !$("rows").contains(document.activeElement)) $("scroller").focus({ preventScroll: true });
  move();
}

function fill(entry, index) {
  const lock = view[index];
  const { row, texts } = entry;
  const kind = lock.kind === "permits" ? `${lock.limit} permits` : kindText(lock);
  const others = lock.holders.length - 1;
  row.style.transform = `translateY(${index * ROW}px)`;
  row.setAttribute("aria-rowindex", index + 2);
  row.setAttribute("aria-selected", lock.id === selected);
  row.tabIndex = index === current ? 0 : -1;
  sayKey(texts.key, lock.key);
  say(texts.kind, lock.kind === "exclusive" ? "" : kind);
  say(texts.owner, lock.type ? UNKNOWN_OWNER : ownerText(lock.first));
  const client = clientText(lock.first.client) || (lock.type ? "" : "its connection is gone");
  say(texts.client, others > 0 ? `and ${plural(others, "other", "others")}` : client);
  entry.waits.className = lock.waiters ? "cell number waits" : "cell number waits none";
  say(entry.token, lock.first.token ?? "–");
  entry.index = index;
  entry.lock = lock;
}

/** Moves what depends on the time alone. */
function move() {
  for (const entry of rows) {
    if (entry.index < 0) continue;
    const now = serverNow(entry.lock);
    const { first, waiters, waits_since: waitsSince } = entry.lock;
    say(entry.held, first.since === null ? "–" : duration(now - first.since));
    const left = first.until === null ? null : Math.max(0, first.until - now);
    say(entry.left, left === null ? (first.session ? "session" : "no lease") : duration(left));
    showLease(entry.bar, first, left);
    const waits = waitsSince === null ? "" : `, ${duration(now - waitsSince)}`;
    entry.waits.replaceChildren(waiters ? make("b", "", number(waiters)) : "–", waiters ? waits : "");
  }
}

function showLease(bar, holder, left) {
  const part = left === null ? 1 : Math.min(1, left / Math.max(holder.lease ?? left, 1));
  bar.dataset.level = left === null ? "none" : part > 1 / 3 ? "good" : part > 1 / 8 ? "warn" : "bad";
  bar.firstChild.style.transform = left === null ? "scaleX(0)" : `scaleX(${part})`;
}

let isDrawing = false;
function drawSoon() {
  if (isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(() => { isDrawing = false; draw(); });
}
$("scroller").addEventListener("scroll", drawSoon, { passive: true });
new ResizeObserver(drawSoon).observe($("scroller"));

/** Gives the keyboard to a row. */
function goTo(index) {
  if (!view.length) return;
  current = Math.max(0, Math.min(index, view.length - 1));
  const scroller = $("scroller");
  const [top, height] = [current * ROW, scroller.clientHeight];
  if (top < scroller.scrollTop) scroller.scrollTop = top;
  else if (top + ROW > scroller.scrollTop + height) scroller.scrollTop = top + ROW - height;
  draw();
  rows.find((entry) => entry.index === current)?.row.focus({ preventScroll: true });
}

$("scroller").addEventListener("keydown", (event) => {
  const page = Math.max(1, Math.floor($("scroller").clientHeight / ROW) - 1);
  const to = { ArrowDown: current + 1, ArrowUp: current - 1, PageDown: current + page, PageUp: current - page, Home: 0, End: view.length - 1 };
  if (event.key in to) goTo(to[event.key]);
  else if ((event.key === "Enter" || event.key === " ") && view[current]) open(view[current], true);
  else return;
  event.preventDefault();
});

for (const header of document.querySelectorAll("[data-sort]")) {
  header.querySelector("button").addEventListener("click", () => {
    const by = header.dataset.sort;
    // What is most is looked for first, of texts what comes first.
    sorting = { by, down: sorting.by === by ? !sorting.down : ["waiters", "token"].includes(by) };
    showSorting();
    arrange();
  });
}

function showSorting() {
  for (const header of document.querySelectorAll("[data-sort]")) {
    if (header.dataset.sort === sorting.by) header.setAttribute("aria-sort", sorting.down ? "descending" : "ascending");
    else header.removeAttribute("aria-sort");
  }
}

$("filters").addEventListener("submit", (event) => event.preventDefault());
$("filter-text").addEventListener("input", arrange);
$("filter-kind").addEventListener("change", arrange);

// ---- One lock -------------------------------------------------------------------------------------------------------

let opener = null; // Has the keyboard again when the details are closed.

function open(lock, takesFocus = false) {
  if (selected !== lock.id) {
    $("break-token").value = "";
    say($("break-result"), "");
    for (const id of ["detail-facts", "detail-waiters", "timeline", "detail-explain"]) $(id).replaceChildren();
    say($("detail-now"), "");
  }
  selected = lock.id;
  $("detail").query = keyQuery(lock);
  $("detail").lock = lock;
  say($("detail-key"), lock.key);
  $("detail").hidden = false;
  $("break").hidden = !sourceOf(lock).isAdmin;
  if (takesFocus) {
    opener = document.activeElement;
    $("detail-key").focus();
  }
  draw();
  refreshLock();
}

function close() {
  selected = null;
  $("detail").hidden = true;
  draw();
  if (opener?.isConnected && !opener.hidden) opener.focus();
  else goTo(current);
}
$("detail-close").addEventListener("click", close);
$("detail").addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });

async function refreshLock() {
  const asked = selected;
  if (!asked) return;
  try {
    const about = await askJson(sourceOf($("detail").lock), `/api/lock?${$("detail").query}`);
    if (selected === asked) showLock(about);
  } catch (error) {
    if (selected === asked) say($("detail-now"), error.message);
  }
}

function showLock({ now, who, waiters, explain, history }) {
  const holders = who ? who.holders : [];
  say($("detail-now"), who ? "" : "Nobody holds it.");
  $("detail-facts").replaceChildren(...(who ? facts(who, now) : []));
  say($("waiters-title"), waiters.length ? `Waiting, in order (${number(waiters.length)})` : "Nobody waits");
  const items = waiters.slice(0, WAITERS_SHOWN).map((waits) => {
    const who = waits.owner ?? (clientText(waits.client) || "a client");
    return make("li", "", [make("span", "who mono", who), make("span", "time", [...howText(waits), duration(waits.waited)].join(", "))]);
  });
  if (waiters.length > WAITERS_SHOWN) items.push(make("li", "more", `and ${number(waiters.length - WAITERS_SHOWN)} more`));
  $("detail-waiters").replaceChildren(...items);
  $("detail-explain").replaceChildren(...explain.map((sentence) => make("li", "", sentence)));
  showTimeline(holders, history, now);
  $("break").hidden = !sourceOf($("detail").lock).isAdmin || !holders.some((holder) => holder.token !== null);
}

/** How a client waits: it polls, or what the options ANY and PRIORITY of its request say. */
function howText({ how, any, of, priority }) {
  return [how === "polling" && "polls", any && `any ${any} of ${of}`, priority && `priority ${priority}`].filter(Boolean);
}

function facts(who, now) {
  const all = [["Kind", kindText(who) + (who.limit === null ? "" : `, ${plural(who.limit, "permit", "permits")}`)]];
  for (const holder of who.holders.slice(0, HOLDS_SHOWN)) {
    all.push(["Holder", who.type ? UNKNOWN_OWNER : ownerText(holder)]);
    if (who.type && holder.owner !== null) all.push(["Value", holder.owner]);
    all.push(["Token", holder.token ?? "none"]);
    if (!who.type) all.push(["Client", clientText(holder.client) || "its connection is gone"]);
    if (holder.since !== null) all.push(["Since", `${clock(holder.since)}, for ${duration(now - holder.since)}`]);
    const whole = holder.lease === null ? "" : ` of ${duration(holder.lease)}`;
    const lease = holder.left === null ? "none" : `${duration(holder.left)} left${whole}`;
    all.push(["Lease", holder.session ? "until its connection ends" : lease]);
    if (holder.renewals) all.push(["Renewed", plural(holder.renewals, "time", "times")]);
    for (const [field, value] of Object.entries(holder.meta)) all.push([field, value]);
  }
  if (who.holders.length > HOLDS_SHOWN) all.push(["Holders", `${number(who.holders.length - HOLDS_SHOWN)} more`]);
  return all.flatMap(([name, value]) => [make("dt", "", name), make("dd", "", value)]);
}

/** Bars of the current holders and the last earlier ones, on one axis of time. */
function showTimeline(holders, history, now) {
  const held = holders.filter((holder) => holder.since !== null).map((holder) =>
    ({ owner: ownerText(holder), since: holder.since, held: now - holder.since, how: "held", kind: "held" }));
  const ended = history.map((end) => ({
    owner: ownerText(end), since: end.since, held: end.held, how: end.text ? `${end.reason}: ${end.text}` : end.reason,
    kind: end.reason === "released" ? "released" : "lost",
  }));
  const holds = [...held, ...ended].slice(0, HOLDS_SHOWN);
  if (!holds.length) return $("timeline").replaceChildren(make("p", "note", "No holder is remembered."));
  const start = Math.min(...holds.map((hold) => hold.since));
  const length = Math.max(now - start, 1);
  const bars = holds.map((hold) => {
    const bar = make("i");
    bar.style.left = `${(100 * (hold.since - start)) / length}%`;
    bar.style.width = `${(100 * hold.held) / length}%`;
    const line = make("div", "hold", [make("span", "who", hold.owner), make("span", "span", [bar]), make("span", "how", hold.how)]);
    line.dataset.end = hold.kind;
    line.title = readable(`${hold.owner}: ${hold.how}, from ${clock(hold.since)} for ${duration(hold.held)}`);
    line.setAttribute("role", "img");
    line.setAttribute("aria-label", line.title);
    return line;
  });
  const axis = make("div", "axis", [make("span", "", clock(start)), make("span", "", "now")]);
  $("timeline").replaceChildren(...bars, axis);
}

$("break").addEventListener("submit", async (event) => {
  event.preventDefault();
  const lock = $("detail").lock;
  const { key, key_base64 } = lock;
  const result = $("break-result");
  try {
    const body = JSON.stringify({ key, key_base64, token: Number($("break-token").value) });
    const headers = { "Content-Type": "application/json" };
    const { broken, free } = await askJson(sourceOf(lock), "/api/break", { method: "POST", body, headers });
    result.dataset.result = broken ? "good" : "bad";
    const refused = free ? "Not broken: the lock is free." : "Not broken: this is not the current token.";
    say(result, broken ? "Broken: its holder has lost it." : refused);
    if (broken) $("break-token").value = "";
  } catch (error) {
    result.dataset.result = "bad";
    say(result, `Not broken: ${error.message}`);
  }
  refreshLock();
});

// ---- The other views ------------------------------------------------------------------------------------------------

const VIEWS = { locks: null, contention: showContention, lint: showLint, clients: showClients };
let shownView = "locks";

function showView(name) {
  shownView = name;
  for (const each of Object.keys(VIEWS)) {
    const isShown = each === name;
    $(`tab-${each}`).setAttribute("aria-selected", isShown);
    $(`tab-${each}`).tabIndex = isShown ? 0 : -1;
    $(`view-${each}`).hidden = !isShown;
  }
  if (name === "locks") drawSoon();
  refreshView();
}

let nextRefresh = 0; // A view that is dear to the server is asked for less often.

async function refreshView() {
  const start = Date.now();
  try {
    nextRefresh = Infinity;
    await VIEWS[shownView]?.();
  } catch {
    // The state in the header says it if the server is gone; the next refresh asks again.
  }
  nextRefresh = Date.now() + 20 * (Date.now() - start);
}

const tabs = [...document.querySelectorAll('[role="tab"]')];
for (const tab of tabs) {
  tab.addEventListener("click", () => showView(tab.id.slice(4)));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length];
    next.focus();
    next.click();
  });
}

function linkTo(key, source) {
  const button = make("button");
  sayKey(button, key.key);
  button.type = "button";
  button.addEventListener("click", () => { showView("locks"); open({ ...key, source, id: idOf(key) }, true); });
  return button;
}

/** A row for the table with this body. On a narrow screen each cell is below the name of its column. */
function tableRow(body, cells) {
  const heads = $(body).closest("table").tHead.rows[0].cells;
  return make("tr", "", cells.map((cell, column) => {
    const isNumber = typeof cell === "object" && cell !== null && "n" in cell;
    const td = make("td", isNumber ? "n" : "");
    td.dataset.column = heads[column].textContent;
    const content = isNumber ? cell.n : cell;
    td.append(typeof content === "string" ? readable(content) : content);
    if (typeof content === "string") td.title = readable(content);
    return td;
  }));
}

async function showContention() {
  const [contended, graphs] = await Promise.all([askAll("/api/contention"), askAll("/api/graph")]);
  const keys = contended.flatMap(({ source, answer }) => answer.keys.map((key) => ({ ...key, source })));
  if (contended.length > 1) keys.sort((a, b) => (b.waited ?? -1) - (a.waited ?? -1) || b.waiters - a.waiters);
  const waits = graphs.flatMap(({ answer }) => answer.waits);
  $("contention").replaceChildren(...keys.map((key) => {
    const share = key.fairness === null ? null : Math.round(key.fairness * 100);
    const bar = make("span", "bar", [make("i")]);
    bar.dataset.level = share >= 80 ? "good" : share >= 50 ? "warn" : "bad";
    bar.firstChild.style.transform = `scaleX(${(share ?? 0) / 100})`;
    const fair = make("span");
    if (share === null) fair.append("–");
    else fair.append(bar, `${share} %`);
    const n = (text) => ({ n: text });
    return tableRow("contention", [linkTo(key, key.source), n(number(key.waiters)), n(duration(key.waited)), n(number(key.polls)), n(number(key.holds)),
      n(duration(key.hold_p50)), n(duration(key.hold_p99)), n(number(key.lost)), n(number(key.clients)), fair]);
  }));
  $("view-contention").querySelector(".scrolls").hidden = !keys.length;
  $("contention-empty").hidden = keys.length > 0;
  $("graph").replaceChildren(...waits.map((wait) => make("li", "", [
    make("b", "mono", wait.owner), howText(wait).map((how) => `, ${how}`).join(""), " waits for ", make("span", "mono", wait["waits-for"]),
    wait["held-by"].length ? ", held by " : "", make("span", "mono", wait["held-by"].join(", ")),
  ])));
  $("graph-empty").hidden = waits.length > 0;
}

async function showLint() {
  const all = (await askAll("/api/lint")).map(({ answer }) => answer);
  const [enabled, findings] = [all.some((one) => one.enabled), all.flatMap((one) => one.findings).filter((one) => one.rule !== "off")];
  $("lint-note").textContent = enabled
    ? findings.length ? plural(findings.length, "finding", "findings") : "The server looks for mistakes of lock clients, and has found none."
    : "The server does not look for mistakes: CONFIG SET lock-lint yes makes it.";
  $("lint").replaceChildren(...findings.map((finding) => make("li", "", [
    make("h2", "", [finding.rule, make("span", "", `${plural(finding.count, "time", "times")}, last ${clock(finding.last)}`)]),
    make("p", "", [make("span", "mono", finding.key)]),
    make("p", "who", clientText(finding.client)),
    make("p", "", finding.advice),
  ])));
}

async function showClients() {
  const all = (await askAll("/api/clients")).map(({ answer }) => answer);
  const [clients, total] = [all.flatMap((one) => one.clients), all.reduce((sum, one) => sum + one.total, 0)];
  $("clients-note").textContent = clients.length === total ? plural(total, "connection", "connections")
    : `${number(clients.length)} of ${plural(total, "connection", "connections")}`;
  const n = (text) => ({ n: text });
  $("clients").replaceChildren(...clients.map((client) => {
    const library = [client["lib-name"], client["lib-ver"]].filter(Boolean).join(" ");
    return tableRow("clients", [n(client.id), client.name || "–", library || "–", client.addr || "in process", client.user, n(seconds(client.age)),
      n(seconds(client.idle)), client.cmd, client["waits-for"] || "–"]);
  }));
}

// ---- Live -----------------------------------------------------------------------------------------------------------

// A script that runs for longer is shown, in milliseconds.
const SCRIPT_MS = 1000;

let announced = { text: "", at: 0 };

function showState(source, state, text) {
  Object.assign(source, { state, text });
  // What is wrong at one server is said first.
  const shown = ["lost", "connecting", "live"].map((kind) => sources.find((each) => each.state === kind)).find(Boolean);
  $("state").dataset.state = shown.state;
  say($("state-text"), sources.length > 1 && shown.state !== "live" ? `Group ${shown.number}: ${shown.text}` : shown.text);
}

/** What is said of INFO's running_script, once its script has run for a second. */
function scriptOf(field) {
  const found = /^(?:sha1|function)=([^,]*),age_ms=(\d+),client=(\d+),addr=([^,]*),name=(.*)$/.exec(field ?? "");
  if (!found || found[2] < SCRIPT_MS) return "";
  const [, name, age, client, address, label] = found;
  return `A script (${name.slice(0, 8)}) of client ${client} ${label || address} runs for ${duration(age)}`;
}

function showTotals() {
  const totals = {};
  for (const name of ["locks", "waiters", "granted", "refused", "expired", "clients"]) {
    const figures = sources.map((source) => source.totals?.[name]).filter(Number.isFinite);
    totals[name] = figures.length ? figures.reduce((sum, figure) => sum + figure) : null;
    say($(`total-${name}`), number(totals[name]));
  }
  // Screen readers hear of changes, but not of each.
  const text = `${plural(totals.locks, "lock", "locks")}, ${number(totals.waiters)} waiting`;
  if (text !== announced.text && Date.now() - announced.at > 10_000) {
    announced = { text, at: Date.now() };
    say($("announcement"), text);
  }
}

/** Forgets what a server has told of its locks. */
function forget(source) {
  for (const [id, lock] of locks) if (lock.source === source) locks.delete(id);
}

/** Follows the leaders of the groups that share out the slots, as one of them tells of the others. */
function followGroups(source, group) {
  $("group").hidden = !group;
  if (!group) return;
  source.number = group.number;
  for (const { number, http_host, http_port } of group.others) {
    if (!http_port) continue;
    const url = `http://${http_host ?? (source.base ? new URL(source.base).hostname : location.hostname)}:${http_port}`;
    const base = url === location.origin ? "" : url;
    const known = sources.findIndex((each) => each.number === number);
    if (known >= 0 && sources[known].base === base) continue;
    if (known >= 0) {
      sources[known].ended.abort();
      forget(sources[known]);
      sources.splice(known, 1);
    }
    const leader = newSource(number, base);
    sources.push(leader);
    live(leader);
  }
  showGroups(source, group);
}

/** The groups, as links to the pages of their leaders. */
function showGroups(source, group) {
  const own = { number: group.number, leader: source.base ? new URL(source.base).host : "here" };
  const places = [own, ...group.others].sort((a, b) => a.number - b.number).flatMap(({ number, leader }) => {
    const base = sources.find((each) => each.number === number)?.base;
    const where = make(base ? "a" : "span", "", `${number} (${leader}${base === undefined ? ", without a page" : ""})`);
    if (base) where.href = `${base}/`;
    return [" ", where];
  });
  const missing = group.count - 1 - group.others.length;
  $("group").replaceChildren(make("b", "", `${plural(group.count, "group", "groups")} of slots, by leader:`), ...places,
    missing ? ` ${plural(missing, "group has", "groups have")} no leader.` : "");
}

/** Asks a server that answers where the leaders are now. */
async function refreshGroups() {
  for (const source of sources.filter(({ state }) => state === "live")) {
    try {
      return followGroups(source, await askJson(source, "/api/groups"));
    } catch {
      // Another one may know.
    }
  }
}

function receive(source, name, data) {
  if (name === "error") return showState(source, "lost", data.error);
  source.offset = data.now - Date.now();
  if (name === "snapshot") {
    forget(source);
    source.isAdmin = data.admin;
    say($("version"), data.version);
    followGroups(source, data.group);
  }
  for (const key of data.removed) {
    if (locks.get(idOf(key))?.source === source) locks.delete(idOf(key));
  }
  for (const lock of data.locks) {
    const settled = settle(lock, source);
    locks.set(settled.id, settled);
  }
  source.isCut = data.cut;
  source.totals = data.totals;
  showTotals();
  const script = scriptOf(data.totals.script);
  if (script) showState(source, "lost", script);
  else showState(source, "live", data.interval < 2000 ? "Live" : `Live, every ${duration(data.interval)}`);
  if (name === "snapshot" || data.removed.length || data.locks.length) arrange();
  const isOpenChanged = [...data.removed, ...data.locks].some((lock) => idOf(lock) === selected);
  if (isOpenChanged) refreshLock();
}

/** Reads one stream of events to its end. EventSource cannot send a password. */
async function follow(source) {
  const response = await ask(source, "/api/events", { signal: source.ended.signal });
  if (!response.ok) await valueOf(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let parts = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    // An event ends with an empty line. What has arrived before is joined once.
    parts.push(value);
    if (!value.includes("\n")) continue;
    const events = parts.join("").split("\n\n");
    parts = [events.pop()];
    for (const event of events) {
      const [name, data] = event.split("\n");
      if (data) receive(source, name.slice("event: ".length), JSON.parse(data.slice("data: ".length)));
    }
  }
}

/** Follows a server until its group has another leader. */
async function live(source) {
  for (let attempt = 0; !source.ended.signal.aborted; attempt++) {
    const start = Date.now();
    let why = "Connection lost";
    try {
      await follow(source);
    } catch (error) {
      if (!(error instanceof TypeError)) why = error.message;
    }
    if (source.ended.signal.aborted) return;
    if (Date.now() - start > 10_000) attempt = 0;
    showState(source, "lost", why);
    say($("announcement"), why);
    const pause = Math.min(1000 * 2 ** attempt, 10_000);
    await new Promise((resolve) => setTimeout(resolve, pause));
    await refreshGroups();
  }
}

setInterval(() => { if (shownView === "locks") move(); }, TICK_MS);
setInterval(() => {
  if (document.hidden || loggingIn) return;
  refreshLock();
  if (Date.now() >= nextRefresh) refreshView();
  // Which locks are held for long changes with the time.
  if ($("filter-kind").value.startsWith("held-")) arrange();
}, REFRESH_MS);
showSorting();
live(sources[0]);
