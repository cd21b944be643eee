// The search page. The address holds the whole state, so that it can be shared and the back button works:
//   q | id + side | code    what to search with; a picture is held in memory, and its code is in the address
//   find, rerank, top, radius, show, where, f.COLUMN

const $ = (id) => document.getElementById(id);
const SKELETON_AFTER = 200; // milliseconds
const SLOW_AFTER = 4000;
const CHUNK = 60; // results that are drawn at once
const MAX_CACHED = 24; // answers kept for the back button
const SEND_AS_IS = ["image/jpeg", "image/png", "image/gif", "image/bmp", "image/webp"];
const REENCODE_ABOVE = 4 << 20; // bytes
const REENCODED_SIZE = 1600; // pixels
const TOPS = [20, 50, 100, 200, 500, 1000];
const DEFAULTS = { find: "images", rerank: "asymmetric", top: 50, radius: "", distance: false, bits: false, where: "" };
const TITLES = { images: "Pictures", texts: "Texts" };
const ORDERS = { asymmetric: "re-ranked", none: "by Hamming distance", features: "re-ranked by features" };

let service = {
  items: 0, bits: 0, columns: [], rerankings: [], serves_pictures: true, limits: { max_top: 1000, max_body_bytes: 16 << 20 },
};
let state = { ...DEFAULTS, filters: {} };
let panels = [];
const pictures = new Map(); // key -> {blob, url}
const cache = new Map(); // request -> answer

// Small things

function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node) node[name] = value;
    else if (value !== null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const count = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
const announce = (message) => { $("status").textContent = message; };

function duration(seconds) {
  if (seconds >= 1) return `${seconds.toFixed(1)} s`;
  return seconds < 0.001 ? "less than 1 ms" : `${(1000 * seconds).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
}

// State and address

const isPictureQuery = () => state.picture !== undefined && pictures.has(state.picture);
const hasQuery = () => isPictureQuery() || Boolean(state.q || state.id || state.code);

function readAddress() {
  const given = new URLSearchParams(location.search);
  const pick = (name, allowed) => (allowed.includes(given.get(name)) ? given.get(name) : DEFAULTS[name]);
  const shown = (given.get("show") || "").split(",");
  const top = Number.parseInt(given.get("top"), 10);
  state = {
    q: given.get("q") || undefined,
    id: given.get("id") || undefined,
    side: given.get("side") === "text" ? "text" : given.get("side") === "image" ? "image" : undefined,
    code: given.get("code") || undefined,
    picture: history.state?.picture,
    find: pick("find", ["images", "texts", "both"]),
    rerank: pick("rerank", ["asymmetric", "none", "features", "compare"]),
    top: top > 0 ? Math.min(top, service.limits.max_top) : Math.min(DEFAULTS.top, service.limits.max_top),
    radius: /^\d{1,9}$/.test(given.get("radius") || "") ? given.get("radius") : "",
    where: given.get("where") || "",
    distance: shown.includes("distance"),
    bits: shown.includes("bits"),
    filters: {},
  };
  for (const [name, value] of given) if (name.startsWith("f.") && value) state.filters[name.slice(2)] = value;
}

function address(changes = {}) {
  const wanted = { ...state, ...changes };
  const given = new URLSearchParams();
  for (const name of ["q", "id", "side", "code"]) if (wanted[name]) given.set(name, wanted[name]);
  for (const name of ["find", "rerank", "top", "radius", "where"]) {
    if (wanted[name] !== DEFAULTS[name] && wanted[name] !== "") given.set(name, wanted[name]);
  }
  const shown = ["distance", "bits"].filter((name) => wanted[name]);
  if (shown.length) given.set("show", shown.join(","));
  for (const [name, value] of Object.entries(wanted.filters)) given.set(`f.${name}`, value);
  const query = given.toString();
  return query ? `/?${query}` : "/";
}

// Goes to a new state. The place on the page is kept for the back button.
function go(changes, place = null) {
  rememberPlace();
  // A text that was typed but not searched for yet is searched for together with the changed option.
  const typed = $("text").value.trim();
  const isNew = typed && typed !== state.q && !("q" in changes);
  state = { ...state, ...(isNew ? { ...NO_QUERY, q: typed } : {}), ...changes };
  history.pushState({ picture: state.picture }, "", address());
  update(place);
}

const NO_QUERY = { q: undefined, id: undefined, side: undefined, code: undefined, picture: undefined };
const searchWith = (query) => go({ ...NO_QUERY, ...query });

function rememberPlace() {
  const shown = panels.map((panel) => panel.shown);
  history.replaceState({ ...history.state, scroll: scrollY, shown }, "", location.href);
}

// Filters

const quoted = (text) => `'${text.replaceAll("'", "''")}'`;
const columnName = (name) => (/^[A-Za-z_]\w*$/.test(name) ? name : `"${name}"`);

function whereOf() {
  const parts = [];
  for (const [name, value] of Object.entries(state.filters)) {
    const column = service.columns.find((one) => one.name === name);
    if (column?.type === "number") {
      const [least, most] = value.split("..");
      if (least) parts.push(`${columnName(name)} >= ${least}`);
      if (most) parts.push(`${columnName(name)} <= ${most}`);
    } else parts.push(`${columnName(name)} = ${quoted(value)}`);
  }
  if (state.where) parts.push(parts.length ? `(${state.where})` : state.where);
  return parts.length ? parts.join(" and ") : undefined;
}

function example(column) {
  if (column.type === "number") return `${columnName(column.name)} >= ${column.range?.[0] ?? 0}`;
  return `${columnName(column.name)} = ${quoted(column.values[0] || "")}`;
}

function setFilter(name, value) {
  const filters = { ...state.filters };
  if (value) filters[name] = value;
  else delete filters[name];
  go({ filters });
}

// The controls are made once per set of columns, so that they keep the focus when a filter changes.
let filterControls = { columns: null, show: [] };

function drawFilters() {
  if (filterControls.columns !== service.columns) {
    filterControls = { columns: service.columns, show: [] };
    $("columns").replaceChildren(...service.columns.map((column, position) => {
      const id = `column-${position}`;
      if (column.type === "number") return numberFilter(column, id);
      return column.complete === false ? textFilter(column, id) : choiceFilter(column, id);
    }));
    $("where").placeholder = service.columns.slice(0, 2).map(example).join(" and ");
  }
  for (const show of filterControls.show) show();
  const used = Object.keys(state.filters).length + (state.where ? 1 : 0);
  $("filter-count").hidden = !used;
  $("filter-count").textContent = used ? `${used} in use` : "";
  $("clear-filters").disabled = !used;
}

function choiceFilter(column, id) {
  const option = (value, text = value) => make("option", { value }, text);
  const select = make("select", { id, onchange: () => setFilter(column.name, select.value) },
    option("", "any"), ...column.values.map((value) => option(value)));
  filterControls.show.push(() => {
    const value = state.filters[column.name] || "";
    if (![...select.options].some((one) => one.value === value)) select.append(option(value));
    select.value = value;
  });
  return make("div", { className: "column" }, make("label", { htmlFor: id }, column.name), select);
}

function textFilter(column, id) {
  const list = make("datalist", { id: `${id}-values` }, ...column.values.map((value) => make("option", { value })));
  const input = make("input", { id, type: "text", placeholder: "any", onchange: () => setFilter(column.name, input.value.trim()) });
  input.setAttribute("list", list.id);
  filterControls.show.push(() => { input.value = state.filters[column.name] || ""; });
  return make("div", { className: "column" }, make("label", { htmlFor: id }, column.name), input, list);
}

function numberFilter(column, id) {
  const range = column.range || ["", ""];
  const field = (text, hint) => make("input", {
    type: "number", step: "any", placeholder: hint, "aria-label": `${column.name}, ${text}`,
    onchange: () => setFilter(column.name, least.value || most.value ? `${least.value}..${most.value}` : ""),
  });
  const least = field("at least", String(range[0]));
  const most = field("at most", String(range[1]));
  filterControls.show.push(() => {
    [least.value = "", most.value = ""] = (state.filters[column.name] || "").split("..");
  });
  return make("fieldset", { className: "column" }, make("legend", {}, column.name),
    least, make("span", { "aria-hidden": "true" }, "to"), most);
}

// Controls

function drawControls() {
  $("text").value = state.q || "";
  for (const radio of document.getElementsByName("find")) radio.checked = radio.value === state.find;
  const offersFeatures = service.rerankings.includes("features") || state.rerank === "features";
  if (offersFeatures && !$("rerank").querySelector("[value=features]")) {
    $("rerank").append(make("option", { value: "features" }, "By features"));
  }
  $("rerank").value = state.rerank;
  const tops = [...new Set([...TOPS, state.top, service.limits.max_top])].filter((top) => top <= service.limits.max_top);
  tops.sort((one, other) => one - other);
  $("top").replaceChildren(...tops.map((top) => make("option", { value: top }, top.toLocaleString("en"))));
  $("top").value = state.top;
  $("radius").value = state.radius;
  if (service.bits) $("radius").max = service.bits;
  $("show-distance").checked = state.distance;
  $("show-bits").checked = state.bits;
  $("where").value = state.where;
  $("where").removeAttribute("aria-invalid");
  $("where-error").hidden = true;
  drawQuery();
  drawFilters();
}

function drawQuery() {
  const picture = $("query-picture");
  const isText = !isPictureQuery() && !state.id && !state.code;
  $("query").hidden = isText;
  $("text").placeholder = isText ? "Describe what you are looking for" : "or describe something else";
  picture.hidden = true;
  picture.removeAttribute("src");
  let name = "";
  if (isPictureQuery()) {
    picture.src = pictures.get(state.picture).url;
    picture.hidden = false;
    name = "Your picture";
  } else if (state.id) {
    name = state.side === "text" ? `Text of ${state.id}` : `Item ${state.id}`;
    if (state.side !== "text" && service.serves_pictures) {
      picture.onerror = () => { picture.hidden = true; };
      picture.src = `/v1/items/${encodeURIComponent(state.id)}/picture?size=128`;
      picture.hidden = false;
    }
  } else if (state.code) name = `Code ${state.code}`;
  $("query-name").textContent = name;
  const what = state.q || name;
  document.title = what ? `${what} – Search` : "Search";
}

function listen() {
  $("search").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = $("text").value.trim();
    if (text) searchWith({ q: text });
    else if (hasQuery()) go({});
    else $("text").focus();
  });
  $("file").addEventListener("change", () => {
    if ($("file").files.length) searchWithPicture($("file").files[0]);
    $("file").value = "";
  });
  $("clear").addEventListener("click", () => { searchWith({}); $("text").focus(); });
  document.querySelector("[data-home]").addEventListener("click", (event) => {
    if (isPlainClick(event)) { event.preventDefault(); searchWith({ ...DEFAULTS, filters: {} }); }
  });
  for (const radio of document.getElementsByName("find")) radio.addEventListener("change", () => go({ find: radio.value }));
  $("rerank").addEventListener("change", () => go({ rerank: $("rerank").value }));
  $("top").addEventListener("change", () => go({ top: Number($("top").value) }));
  $("radius").addEventListener("change", () => go({ radius: $("radius").value }));
  $("where").addEventListener("change", () => go({ where: $("where").value.trim() }));
  $("clear-filters").addEventListener("click", () => { go({ filters: {}, where: "" }); $("where").focus(); });
  $("more").addEventListener("click", () => {
    const isOpen = $("extra").classList.toggle("open");
    $("more").setAttribute("aria-expanded", String(isOpen));
  });
  for (const name of ["distance", "bits"]) {
    $(`show-${name}`).addEventListener("change", () => {
      state[name] = $(`show-${name}`).checked;
      history.replaceState(history.state, "", address());
      showLegend();
      for (const panel of panels) panel.draw();
    });
  }
  addEventListener("popstate", () => { readAddress(); update(history.state, true); });
  addEventListener("pagehide", rememberPlace);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/" && !event.target.closest("input, select, textarea")) {
      event.preventDefault();
      $("text").focus();
      $("text").select();
    }
    const hit = event.target.closest?.("a.hit");
    if (hit && (event.key === "ArrowRight" || event.key === "ArrowLeft")) {
      const hits = [...$("results").querySelectorAll("a.hit")];
      const next = hits[hits.indexOf(hit) + (event.key === "ArrowRight" ? 1 : -1)];
      if (next) { event.preventDefault(); next.focus(); }
    }
  });
  $("results").addEventListener("click", (event) => {
    const hit = event.target.closest("a.hit");
    if (!hit || !isPlainClick(event)) return;
    event.preventDefault();
    searchWith({ id: hit.dataset.id, side: hit.dataset.side });
    scrollTo({ top: 0 });
    $("results").focus({ preventScroll: true });
  });
  listenForPictures();
}

const isPlainClick = (event) => event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;

// Pictures as queries

function listenForPictures() {
  let depth = 0;
  const show = (isShown) => { $("drop").hidden = !isShown; };
  const carries = (event) => [...(event.dataTransfer?.types || [])].some((type) => type === "Files" || type === "text/uri-list");
  addEventListener("dragenter", (event) => { if (carries(event)) { event.preventDefault(); depth += 1; show(true); } });
  addEventListener("dragleave", (event) => { if (carries(event)) { depth = Math.max(0, depth - 1); show(depth > 0); } });
  addEventListener("dragover", (event) => { if (carries(event)) event.preventDefault(); });
  addEventListener("drop", (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    depth = 0;
    show(false);
    const file = [...event.dataTransfer.files].find((one) => one.type.startsWith("image/"));
    if (file) { searchWithPicture(file); return; }
    const item = itemOfAddress(event.dataTransfer.getData("text/uri-list"));
    if (item) searchWith(item);
    else showProblem("Only pictures can be dropped here. Save the picture as a file, or copy and paste it.");
  });
  document.addEventListener("paste", (event) => {
    const file = [...(event.clipboardData?.files || [])].find((one) => one.type.startsWith("image/"));
    if (file) { event.preventDefault(); searchWithPicture(file); }
  });
}

// A result that was dragged onto the page.
function itemOfAddress(text) {
  const given = URL.canParse(text) ? new URL(text) : null;
  if (given === null || given.origin !== location.origin) return null;
  if (given.searchParams.get("id")) return { id: given.searchParams.get("id"), side: given.searchParams.get("side") || undefined };
  const match = /^\/v1\/items\/([^/]+)\/picture$/.exec(given.pathname);
  return match ? { id: decodeURIComponent(match[1]), side: "image" } : null;
}

async function searchWithPicture(file) {
  let blob;
  try {
    blob = await preparedPicture(file);
  } catch {
    showProblem(`${file.name || "The file"} is not a picture that this browser can read.`);
    return;
  }
  const key = `${Date.now()}-${pictures.size}`;
  pictures.set(key, { blob, url: URL.createObjectURL(blob) });
  searchWith({ picture: key });
}

// Pictures that are large, or in a format that the service may not read, are encoded again.
async function preparedPicture(file) {
  if (SEND_AS_IS.includes(file.type) && file.size <= Math.min(REENCODE_ABOVE, service.limits.max_body_bytes - 4096)) return file;
  const url = URL.createObjectURL(file);
  try {
    const picture = make("img", { src: url });
    await picture.decode();
    const width = picture.naturalWidth || REENCODED_SIZE;
    const height = picture.naturalHeight || REENCODED_SIZE;
    const scale = Math.min(1, REENCODED_SIZE / Math.max(width, height));
    const canvas = make("canvas", { width: Math.max(1, Math.round(width * scale)), height: Math.max(1, Math.round(height * scale)) });
    const pen = canvas.getContext("2d");
    pen.fillStyle = "white";
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) => {
      canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("not encoded"))), "image/jpeg", 0.92);
    });
  } finally {
    URL.revokeObjectURL(url);
  }
}

// Requests

class Failure extends Error {
  constructor(message, requestId) {
    super(message);
    this.requestId = requestId;
  }
}

async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("The service cannot be reached. Check your connection, then try again.");
  }
  const answer = await response.json().catch(() => null);
  if (response.ok && answer !== null) return answer;
  const message = answer?.error?.message || `The service answered with status ${response.status}.`;
  throw new Failure(message, answer?.request_id);
}

// What a panel asks for, apart from the query.
function optionsOf(find, rerank) {
  const where = whereOf();
  return {
    find, rerank, top: state.top,
    ...(state.radius === "" ? {} : { radius: Number(state.radius) }),
    ...(where === undefined ? {} : { where }),
  };
}

function queryOf() {
  if (state.q) return { text: state.q };
  if (state.id) return { id: state.id, ...(state.side ? { side: state.side } : {}) };
  return { code: state.code };
}

// Panels: one list of results each

class Panel {
  constructor(find, rerank, isCompared) {
    this.find = find;
    this.rerank = rerank;
    this.shown = CHUNK;
    this.answer = null;
    this.rival = null; // the panel with the other order, in a comparison
    this.abort = new AbortController();
    this.id = `panel-${find}-${rerank}`;
    this.heading = make("h2", { id: this.id }, isCompared ? `${TITLES[find]} ${ORDERS[rerank]}` : TITLES[find]);
    this.summary = make("p", { className: "summary" });
    this.json = make("a", { className: "json", hidden: true }, "JSON");
    this.json.setAttribute("aria-label", `${this.heading.textContent} as JSON`);
    this.body = make("div", { className: "body" });
    this.section = make("section", { className: `panel ${find}`, "aria-labelledby": this.id },
      make("div", { className: "title" }, this.heading, this.summary, this.json), this.body);
    this.section.setAttribute("aria-busy", "true");
  }

  get hits() {
    return this.answer === null ? [] : this.answer.results[0].hits;
  }

  key() {
    return JSON.stringify([isPictureQuery() ? state.picture : queryOf(), optionsOf(this.find, this.rerank)]);
  }

  // Returns whether there is an answer.
  async load(fromCache) {
    const key = this.key();
    if (fromCache && cache.has(key)) {
      this.take(cache.get(key));
      return true;
    }
    const timers = [setTimeout(() => this.drawWaiting(false), SKELETON_AFTER), setTimeout(() => this.drawWaiting(true), SLOW_AFTER)];
    try {
      const answer = await this.fetch();
      cache.delete(key);
      cache.set(key, answer);
      while (cache.size > MAX_CACHED) cache.delete(cache.keys().next().value);
      this.take(answer);
      return true;
    } catch (error) {
      if (this.abort.signal.aborted) { if (this.isCancelled) this.drawCancelled(); } else this.drawFailure(error);
      return false;
    } finally {
      timers.forEach(clearTimeout);
      this.section.setAttribute("aria-busy", "false");
    }
  }

  fetch() {
    const options = optionsOf(this.find, this.rerank);
    const { signal } = this.abort;
    if (isPictureQuery()) {
      const form = new FormData();
      for (const [name, value] of Object.entries(options)) form.append(name, value);
      form.append("image", pictures.get(state.picture).blob, "picture");
      return request("/v1/search", { method: "POST", body: form, signal });
    }
    const body = JSON.stringify({ queries: [queryOf()], ...options });
    return request("/v1/search", { method: "POST", headers: { "content-type": "application/json" }, body, signal });
  }

  take(answer) {
    this.answer = answer;
    this.section.setAttribute("aria-busy", "false");
    // A picture is not part of an address: its answer is offered as a file.
    if (this.jsonUrl) URL.revokeObjectURL(this.jsonUrl);
    if (isPictureQuery()) {
      this.jsonUrl = URL.createObjectURL(new Blob([JSON.stringify(answer, null, 2)], { type: "application/json" }));
      this.json.href = this.jsonUrl;
      this.json.download = "search.json";
    } else this.json.href = `/v1/search?${new URLSearchParams({ ...queryOf(), ...optionsOf(this.find, this.rerank) })}`;
    this.json.hidden = false;
    this.draw();
  }

  drawWaiting(isSlow) {
    const shape = make("div", { className: "skeleton", "aria-hidden": "true" }, ...Array.from({ length: 12 }, () => make("span")));
    const children = [shape];
    if (isSlow) {
      announce("The search takes longer than usual.");
      const cancel = () => { this.isCancelled = true; this.abort.abort(); };
      children.unshift(notice("Still searching…", "The search takes longer than usual.",
        make("button", { type: "button", className: "button quiet", onclick: cancel }, "Cancel")));
    }
    this.body.replaceChildren(...children);
  }

  retry(label) {
    return make("button", { type: "button", className: "button", onclick: () => update() }, label);
  }

  drawCancelled() {
    this.body.replaceChildren(notice("Cancelled", "The search was cancelled.", this.retry("Search again")));
    announce("The search was cancelled.");
  }

  drawFailure(error) {
    const reference = error.requestId ? make("p", { className: "reference" }, `Request ${error.requestId}`) : null;
    const isFilter = error.message.startsWith("`where`");
    const message = error.message.replace("`where`", "The expression");
    const remedy = isFilter
      ? make("button", { type: "button", className: "button", onclick: () => go({ filters: {}, where: "" }) }, "Clear filters")
      : this.retry("Try again");
    const box = notice("The search failed", isFilter ? "The filter cannot be used." : message, remedy, reference);
    box.classList.add("problem");
    this.body.replaceChildren(box);
    announce(`The search failed. ${message}`);
    if (isFilter) {
      $("filters").open = true;
      $("where").setAttribute("aria-invalid", "true");
      $("where-error").textContent = message;
      $("where-error").hidden = false;
    }
  }

  drawEmpty() {
    const remedies = [];
    if (whereOf()) remedies.push(make("button", { type: "button", className: "button", onclick: () => go({ filters: {}, where: "" }) }, "Clear filters"));
    if (state.radius !== "") remedies.push(make("button", { type: "button", className: "button quiet", onclick: () => go({ radius: "" }) }, "Any radius"));
    const what = this.find === "images" ? "picture" : "text";
    let reason = `The index has no ${what}s to search.`;
    if (this.answer.index.items === 0) reason = "The index is empty.";
    else if (whereOf() && state.radius !== "") reason = `No ${what} passes the filter within ${count(Number(state.radius), "bit")} of the query.`;
    else if (whereOf()) reason = `No ${what} passes the filter.`;
    else if (state.radius !== "") reason = `No ${what} differs from the query in at most ${count(Number(state.radius), "bit")}.`;
    this.body.replaceChildren(notice("Nothing found", reason, make("div", { className: "actions" }, ...remedies)));
  }

  draw() {
    if (this.answer === null) return;
    const { hits } = this;
    const { index, seconds } = this.answer;
    this.summary.textContent = `${hits.length.toLocaleString("en")} of ${count(index.items, "item")}, ${duration(seconds)}`;
    if (!hits.length) { this.drawEmpty(); return; }
    this.list = make("ul", { className: this.find === "images" ? "grid" : "lines" });
    this.end = make("div", { className: "end" });
    this.body.replaceChildren(this.list, this.end);
    this.drawn = 0;
    this.drawMore();
  }

  // Draws the results from `drawn` to `shown`, and what follows them.
  drawMore() {
    const query = this.answer.results[0].query.code;
    const ranks = this.rival?.answer && this.rerank !== "none" ? new Map(this.rival.hits.map((hit) => [hit.id, hit.rank])) : null;
    const next = this.hits.slice(this.drawn, this.shown);
    this.list.append(...next.map((hit) => drawHit(hit, query, ranks)));
    this.drawn += next.length;
    const total = this.hits.length;
    if (this.drawn < total) {
      const more = make("button", { type: "button", className: "button quiet", onclick: () => this.more() },
        `Show more (${this.drawn.toLocaleString("en")} of ${total.toLocaleString("en")})`);
      this.end.replaceChildren(more);
      endWatch.observe(more);
      more.panel = this;
    } else if (total < state.top) {
      this.end.replaceChildren(make("p", {}, "End of the results"));
    } else if (state.top < service.limits.max_top) {
      const larger = [...TOPS, service.limits.max_top].find((top) => top > state.top);
      this.end.replaceChildren(make("button", { type: "button", className: "button quiet", onclick: () => this.findMore(larger) },
        `Find ${larger.toLocaleString("en")} results`));
    } else {
      this.end.replaceChildren(make("p", {}, `These are the ${count(total, "nearest result")}, the maximum. Narrow the search with a filter or a radius.`));
    }
  }

  // Searches again for more results, and stays at the same place of the page.
  findMore(top) {
    go({ top }, { scroll: scrollY, shown: panels.map((panel) => panel.drawn + CHUNK) });
  }

  more() {
    const hadFocus = this.end.contains(document.activeElement);
    const first = this.drawn;
    this.shown = this.drawn + CHUNK;
    this.drawMore();
    if (hadFocus) this.list.children[first]?.querySelector("a")?.focus();
  }
}

// Draws more results when the end of a list comes near.
const endWatch = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (isIntersecting && target.isConnected && target !== document.activeElement) { endWatch.unobserve(target); target.panel.more(); }
  }
}, { rootMargin: "600px" });

function notice(title, message, ...more) {
  return make("div", { className: "notice" }, make("p", { className: "lead" }, title), make("p", {}, message),
    ...more.filter(Boolean));
}

function showProblem(message) {
  const box = notice("The picture cannot be used", message,
    make("button", { type: "button", className: "button quiet", onclick: () => box.remove() }, "Close"));
  box.classList.add("problem");
  $("results").prepend(box);
  announce(message);
}

function showLegend() {
  const parts = [];
  if (state.distance) parts.push("#1 · 2 bits · 0.95: rank, bits that differ from the query, score (1 is best).");
  if (state.bits) parts.push("A tall bar is a bit 1, a short one a bit 0; those in colour differ from the query.");
  if (state.rerank === "compare") parts.push("▲ ▼: places that a result moved by re-ranking.");
  $("legend").textContent = parts.join(" ");
  $("legend").hidden = !parts.length || !hasQuery();
}

// Results

function drawHit(hit, queryCode, ranks) {
  const isPicture = hit.side === "image";
  const name = hit.caption || `Item ${hit.id}`;
  const labels = Object.values(hit.metadata).filter(Array.isArray).flat().slice(0, 6);
  const link = make("a", {
    className: "hit", href: address({ q: undefined, code: undefined, picture: undefined, id: hit.id, side: hit.side }),
    title: `Search from this ${isPicture ? "picture" : "text"}: ${name}`,
  }, ...(isPicture ? [drawPicture(hit)] : []), make("span", { className: "caption" }, name));
  link.dataset.id = hit.id;
  link.dataset.side = hit.side;
  const measures = [];
  if (ranks) measures.push(drawMove(hit, ranks));
  if (state.distance && hit.distance !== undefined) {
    const text = `#${hit.rank} · ${count(hit.distance, "bit")} · ${hit.score.toFixed(2)}`;
    const title = `Rank ${hit.rank}, ${count(hit.distance, "differing bit")}, score ${hit.score.toFixed(4)}`;
    measures.push(make("span", { className: "distance", title }, text));
  }
  if (!isPicture && labels.length) measures.push(make("span", { className: "labels" }, labels.join(", ")));
  return make("li", {}, link, measures.length ? make("p", { className: "measures" }, ...measures) : null,
    state.bits && queryCode ? drawBits(hit.code, queryCode) : null);
}

function drawPicture(hit) {
  const frame = make("span", { className: "frame" });
  if (!hit.picture) { frame.classList.add("missing"); return frame; }
  const picture = make("img", {
    loading: "lazy", decoding: "async", width: 256, height: 256, alt: hit.caption ? "" : `Item ${hit.id}`, draggable: false,
    onerror: () => { picture.remove(); frame.classList.add("missing"); },
  });
  picture.src = `${hit.picture}?size=256`;
  frame.append(picture);
  return frame;
}

// How far a result moved from its rank by Hamming distance.
function drawMove(hit, ranks) {
  const before = ranks.get(hit.id);
  if (before === undefined) return make("span", { className: "move new", title: `Not among the results ${ORDERS.none}` }, "new");
  const steps = before - hit.rank;
  const [sign, kind] = steps > 0 ? ["▲", "up"] : steps < 0 ? ["▼", "down"] : ["=", "same"];
  const text = steps === 0 ? "Same rank" : `Rank ${before} ${ORDERS.none}`;
  return make("span", { className: `move ${kind}`, title: text }, make("span", { "aria-hidden": "true" }, steps ? `${sign}${Math.abs(steps)}` : sign),
    make("span", { className: "hidden" }, text));
}

// Both codes as columns: a full one for 1, a short one for 0; bits that differ from the query are marked.
function drawBits(code, queryCode) {
  const bitAt = (hex, position) => (Number.parseInt(hex.substr(2 * (position >> 3), 2), 16) >> (position & 7)) & 1;
  const length = 4 * code.length;
  const paths = { equal: "", differing: "" };
  const differing = [];
  for (let position = 0; position < length; position += 1) {
    const bit = bitAt(code, position);
    const differs = bit !== bitAt(queryCode, position);
    if (differs) differing.push(position);
    paths[differs ? "differing" : "equal"] += bit ? `M${4 * position} 0h3v12h-3z` : `M${4 * position} 9h3v3h-3z`;
  }
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${4 * length} 12`);
  svg.setAttribute("class", "bits");
  svg.setAttribute("role", "img");
  const positions = differing.length ? `: ${differing.join(", ")}` : "";
  svg.setAttribute("aria-label", `${differing.length} of ${length} bits differ from the query${positions}`);
  svg.setAttribute("preserveAspectRatio", "none");
  for (const [name, data] of Object.entries(paths)) {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("class", name);
    path.setAttribute("d", data);
    svg.append(path);
  }
  return svg;
}

// The page

// Draws the state. `place` tells how far the lists were drawn and scrolled. The back button takes answers from the cache.
async function update(place = null, fromCache = false) {
  for (const panel of panels) panel.abort.abort();
  drawControls();
  showLegend();
  if (!hasQuery()) { panels = []; $("results").style.minHeight = ""; await drawStart(); return; }
  const isCompared = state.rerank === "compare";
  const finds = state.find === "both" ? ["images", "texts"] : [state.find];
  const orders = isCompared ? ["none", "asymmetric"] : [state.rerank];
  panels = finds.flatMap((find) => orders.map((order) => new Panel(find, order, isCompared)));
  const current = panels;
  if (isCompared) for (let first = 0; first < panels.length; first += 2) [panels[first].rival, panels[first + 1].rival] = [panels[first + 1], panels[first]];
  if (place?.shown?.length === panels.length) panels.forEach((panel, position) => { panel.shown = place.shown[position]; });
  $("results").classList.toggle("compare", isCompared);
  $("results").classList.toggle("both", finds.length > 1 && !isCompared);
  // The page keeps its height until there are results, so that it does not jump.
  $("results").style.minHeight = `${$("results").offsetHeight}px`;
  $("results").replaceChildren(...panels.map((panel) => panel.section));
  announce("Searching");
  const answered = await Promise.all(panels.map((panel) => panel.load(fromCache)));
  if (panels !== current) return;
  if (isCompared && answered.every(Boolean)) for (const panel of panels) panel.draw();
  $("results").style.minHeight = "";
  if (place?.scroll !== undefined) scrollTo({ top: place.scroll });
  const done = panels.filter((panel) => panel.answer);
  if (!done.length) return;
  if (answered.every(Boolean)) {
    announce(done.map((panel) => (panel.hits.length ? `${panel.heading.textContent}: ${count(panel.hits.length, "result")}` : `${panel.heading.textContent}: nothing found`)).join(". "));
  }
  if (isPictureQuery() && !state.code) {
    // The code lets others open the address, as they do not have the picture.
    history.replaceState({ ...history.state, picture: state.picture }, "", address({ code: done[0].answer.results[0].query.code }));
  }
  drawFacts(done[0].answer.index);
}

async function drawStart() {
  document.title = "Search";
  const main = $("results");
  main.classList.remove("compare", "both");
  announce("");
  try {
    const { items } = await request("/v1/items?count=24");
    if (hasQuery()) return;
    if (!items.length) {
      main.replaceChildren(notice("The index is empty", "Add items to it, then reload this page."));
      return;
    }
    const hits = items.map((item) => ({ ...item, side: item.codes.image || item.picture ? "image" : "text" }));
    const hasPictures = hits.some((hit) => hit.picture);
    const list = make("ul", { className: hasPictures ? "grid" : "lines" },
      ...hits.map((hit) => drawHit(hasPictures ? hit : { ...hit, side: hit.codes.text ? "text" : "image", picture: null }, null, null)));
    main.replaceChildren(make("section", { className: "panel start", "aria-labelledby": "start" },
      make("div", { className: "title" }, make("h2", { id: "start" }, "From the index"),
        make("p", { className: "summary" }, "Select one to search from it")), make("div", { className: "body" }, list)));
  } catch (error) {
    if (hasQuery()) return;
    const box = notice("The index cannot be read", error.message,
      make("button", { type: "button", className: "button", onclick: () => update() }, "Try again"));
    box.classList.add("problem");
    main.replaceChildren(box);
  }
}

function drawFacts(index) {
  const version = index.version === null || index.version === undefined ? "" : `, version ${index.version}`;
  $("facts").textContent = `${index.name}${version}: ${count(index.items, "item")}, ${index.bits} bits`;
}

async function start() {
  history.scrollRestoration = "manual";
  listen();
  try {
    const { indexes, ...more } = await request("/v1/indexes");
    service = { ...service, ...indexes[0], ...more };
    drawFacts(service);
  } catch {
    // The search itself reports what is wrong.
  }
  readAddress();
  if (Object.keys(state.filters).length || state.where) $("filters").open = true;
  await update();
}

start();
