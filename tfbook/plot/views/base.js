// What the views of tfbook share. Python writes a static table into a <div class="tfbook-…">, with what there is to see
// in its data-view, and puts this file and the view's own behind it; the view then mounts in a shadow root, which hides
// the table. Nothing is fetched, nothing has an id, so a page may hold as many views as it likes.

const LONGEST = 11; // letters of a token that are shown

function mountViews(kind, css) {
  for (const host of document.querySelectorAll(`.tfbook-${kind}:not([data-mounted])`)) {
    host.dataset.mounted = "";
    host.dataset.lmSuppressShortcuts = "true"; // JupyterLab 4.3 takes a key in a list for a command: 2 makes a heading
    const root = host.attachShadow({ mode: "open" });
    root.append(make("style", {}, css), buildView(JSON.parse(host.dataset.view))); // buildView: the view's own file
  }
}

function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function draw(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function button(text, click, attributes = {}) {
  const element = make("button", { type: "button", ...attributes }, text);
  element.addEventListener("click", click);
  return element;
}

// `actions` names keys and what each does; a key that is held with Alt, Ctrl or Meta is left to the page.
function onKeys(element, actions) {
  element.addEventListener("keydown", (event) => {
    const action = actions[event.key];
    if (!action || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    action();
  });
}

function inside(place, size) {
  return Math.min(Math.max(place, 0), size - 1);
}

function bytesOf(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

function shorten(token) {
  const letters = [...token];
  return letters.length > LONGEST ? `${letters.slice(0, LONGEST - 1).join("")}…` : token;
}

function longest(tokens) {
  return Math.max(...tokens.map((token) => [...shorten(token)].length));
}

// A matrix: its rows under a head of keys, which may be tilted where they are wider than a cell.
function matrixOf(keys, corner, rows, tilted) {
  const names = keys.map((key) => make("th", { scope: "col", title: key }, make("span", {}, shorten(key))));
  const table = make("table", tilted ? { class: "tilted" } : {});
  table.append(make("thead", {}, make("tr", {}, corner, ...names)), make("tbody", {}, ...rows));
  return make("div", { class: "matrix" }, table);
}
