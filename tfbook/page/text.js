// The reader's text: where it is typed, how it is written on, and its tokens, of which one is chosen.

const ALL = 31; // the step of the top-k slider that keeps every token
const FRAME = 16; // milliseconds of computing after which the page is drawn

const $ = (id) => document.getElementById(id);

// A screen reader reads a sentence again whenever it is set, so one that has not changed is left alone.
function say(id, ...parts) {
  const sentence = make("span", {}, ...parts);
  if ($(id).textContent !== sentence.textContent) $(id).replaceChildren(...sentence.childNodes);
}

// ---- writing ----

function writer(session, changed) {
  let current = null; // the run in progress; one that is stopped notices that it is another's turn, or nobody's

  async function run(most) {
    const mine = {};
    current = mine;
    const begun = performance.now();
    const count = await appended(session, most, () => current === mine, changed);
    if (current !== mine) return;
    stop();
    changed({ speed: count / ((performance.now() - begun) / 1000) });
  }

  function stop() {
    current = null;
  }

  function toggle() {
    if (!current) return run(Infinity);
    stop();
    return changed();
  }

  function update() {
    $("write").textContent = current ? "Stop" : "Write on";
    $("write").setAttribute("aria-disabled", !current && !session.canGoOn);
    $("one").setAttribute("aria-disabled", Boolean(current) || !session.canGoOn);
  }

  $("write").addEventListener("click", toggle);
  $("one").addEventListener("click", () => current ?? run(1));
  return { update, stop };
}

// Appends sampled tokens and draws the page in between; resolves to their number.
async function appended(session, most, goesOn, changed) {
  let count = 0;
  let drawn = performance.now();
  const limit = session.isFinite ? most : Math.min(most, 4 * session.model.longest);
  while (count < limit && goesOn() && session.step()) {
    count += 1;
    if (performance.now() - drawn < FRAME) continue;
    changed({ writing: true });
    await new Promise((resolve) => setTimeout(resolve));
    drawn = performance.now();
  }
  return count;
}

function sliders(session) {
  const texts = {
    temperature: (value) => value.toFixed(1),
    k: (value) => (value < ALL ? String(value) : "all"),
    p: (value) => value.toFixed(2),
  };
  for (const [name, text] of Object.entries(texts)) {
    const input = $(name);
    const read = () => {
      const value = Number(input.value);
      session.settings[name] = name === "k" && value === ALL ? Infinity : value;
      input.nextElementSibling.textContent = text(value);
      input.setAttribute("aria-valuetext", text(value));
    };
    input.addEventListener("input", read);
    read();
  }
}

// A box for a text of one's own; `read` gets it on every change, and its error is shown below.
function textBox(box, notice, read) {
  const take = () => {
    let message = "";
    try {
      message = read(box.value) ?? "";
    } catch (error) {
      message = error.message;
    }
    notice.textContent = message;
    box.setAttribute("aria-invalid", Boolean(message));
  };
  box.addEventListener("input", take);
  return take;
}

function strangersOf(tokenizer, text) {
  const words = tokenizer.strangers(text);
  if (!words.length) return "";
  const some = words.slice(0, 5).map((word) => `“${word}”`).join(", ") + (words.length > 5 ? " and more" : "");
  return `The model has never met ${some}; it reads ${tokenizer.named(tokenizer.unknown)} there.`;
}

// ---- the tokens ----

function tokens(session, choose) {
  const list = $("words");

  function update() {
    const had = list.contains(document.activeElement);
    const weights = lookedAt(session);
    const pieces = session.tokenizer.pieces(session.ids);
    const options = session.labels().map((label, place) => option(label, place, weights));
    list.replaceChildren(...options.flatMap((one, place) => [gap(pieces[place]), one, lineBreak(pieces[place])]));
    $("past").textContent = session.past;
    $("past").scrollTop = $("past").scrollHeight; // its end is what the text goes on from
    if (had) list.children[session.at]?.focus({ preventScroll: true });
  }

  function option(label, place, weights) {
    const chosen = place === session.at;
    const attributes = { role: "option", "aria-selected": chosen, title: `place ${place + 1}` };
    const element = make("span", attributes, label);
    element.tabIndex = chosen ? 0 : -1;
    element.classList.toggle("sign", session.ids[place] === session.tokenizer.bos);
    element.style.setProperty("--weight", weights[place] ?? 0);
    return element;
  }

  list.addEventListener("click", ({ target }) => {
    const place = [...list.children].indexOf(target.closest("[role=option]"));
    if (place >= 0) choose(place);
  });
  const go = (place) => () => {
    choose(inside(place(), session.length));
    list.children[session.at]?.focus();
  };
  onKeys(list, {
    ArrowLeft: go(() => session.at - 1),
    ArrowRight: go(() => session.at + 1),
    ArrowUp: go(() => session.at - 1),
    ArrowDown: go(() => session.at + 1),
    Home: go(() => 0),
    End: go(() => session.length - 1),
  });
  return { update };
}

// The white space before a token, as far as its label leaves it out.
function gap(piece) {
  return piece.trim() ? piece.match(/^\s*/)[0] : "";
}

// A token that is blank is shown by its name, and breaks the line where it would.
function lineBreak(piece) {
  return piece.trim() ? "" : piece.replace(/[^\n]/g, "");
}

// The weights with which the chosen head looks from the chosen place.
function lookedAt({ reading, chosen, at }) {
  return reading.weights[chosen.layer][chosen.head][at] ?? [];
}

// ---- what comes next ----

const BARS = 10;

function nextBars(session, choose) {
  const list = $("bars");

  function bar(id, now, before) {
    const parts = [make("span", { class: "line" }), make("span", { class: "before" })];
    parts[0].style.width = `${100 * now[id]}%`;
    parts[1].style.width = session.isChanged ? `${100 * before[id]}%` : 0;
    const name = make("span", { class: "name" }, session.tokenizer.named(id));
    const share = make("span", { class: "share" }, percent(now[id]));
    const was = session.isChanged ? `, ${percent(before[id])} without the changes` : "";
    const element = button("", () => choose(id), { title: `probability ${percent(now[id])}${was}` });
    element.append(name, make("span", { class: "track" }, ...parts), share);
    return make("li", {}, element);
  }

  function update() {
    const had = [...list.querySelectorAll("button")].indexOf(document.activeElement);
    if (!session.length) return list.replaceChildren();
    const [now, before] = [session.reading, session.original].map(({ logits }) => softmax(logits[session.at]));
    list.replaceChildren(...ranked(now).slice(0, BARS).map((id) => bar(id, now, before)));
    $("next-lead").replaceChildren("After ", make("strong", {}, `“${tailOf(session)}”`));
    if (had >= 0) list.querySelectorAll("button")[had]?.focus({ preventScroll: true });
  }

  const move = (by) => () => {
    const buttons = [...list.querySelectorAll("button")];
    buttons[inside(buttons.indexOf(document.activeElement) + by, buttons.length)].focus();
  };
  onKeys(list, { ArrowUp: move(-1), ArrowDown: move(1) });
  return { update };
}

// The last few tokens up to the chosen place.
function tailOf({ tokenizer, ids, at }) {
  const tail = tokenizer.pieces(ids.slice(0, at + 1)).slice(-5).join("");
  const shown = tail.trimStart().replace(/\s+$/, visible).replaceAll("\n", "↵");
  return (at > 4 ? "… " : "") + (shown || labelsOf([ids[at]], tokenizer)[0]);
}
