// The tokenizer: a text is split into chunks, each chunk into bytes, and the merges join them in the order of learning.

// GPT-2's pattern. JavaScript's \s is another set of characters than Unicode's white space.
const PATTERN =
  /'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;
const BYTES = 256;
const SIGNS = { " ": "␣", "\n": "↵", "\t": "⇥" }; // for what would not be seen

function buildView({ text, most, bytes, merges }) {
  const spelled = spellings(bytesOf(bytes), merges);
  const state = { steps: [], place: 0 };

  function cut(typed) {
    state.steps = stepsOf(typed, merges, spelled);
    state.place = state.steps.length - 1;
    update();
  }

  function go(place) {
    state.place = inside(place, state.steps.length);
    update();
  }

  const parts = [typing(text, most, cut), controls(state, go), chips(state, spelled), summary(state, spelled)];
  const update = () => parts.forEach((part) => part.update());
  const view = make("section", { class: "view", "aria-label": "Tokenizer" }, ...parts.map((part) => part.element));
  cut(text);
  return view;
}

// The bytes of each token.
function spellings(singles, merges) {
  const spelled = Array.from(singles, (byte) => [byte]);
  for (let i = 0; i < merges.length; i += 2) spelled.push([...spelled[merges[i]], ...spelled[merges[i + 1]]]);
  return spelled;
}

// The chunks after each merge that changes one of them, with the token that it makes and the pair that comes next.
function stepsOf(text, merges, spelled) {
  const number = new Map(spelled.slice(0, BYTES).map(([byte], id) => [byte, id]));
  const encoder = new TextEncoder();
  let words = (text.match(PATTERN) ?? []).map((chunk) => Array.from(encoder.encode(chunk), (byte) => number.get(byte)));
  const steps = [{ made: null, words }];
  for (let i = 0; i < merges.length; i += 2) {
    const [pair, token] = [[merges[i], merges[i + 1]], BYTES + i / 2];
    const merged = words.map((word) => mergedIn(word, pair, token));
    if (merged.every((word, place) => word.length === words[place].length)) continue;
    steps.at(-1).next = pair;
    words = merged;
    steps.push({ made: token, pair, words });
  }
  return steps;
}

function mergedIn(word, [first, second], token) {
  const merged = [];
  for (const id of word) {
    if (id === second && merged.at(-1) === first) merged[merged.length - 1] = token;
    else merged.push(id);
  }
  return merged;
}

// A token as it can be seen; part of a character as hexadecimal numbers.
function visible(spelling) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(spelling));
    return text.replace(/[ \n\t]/g, (sign) => SIGNS[sign]);
  } catch {
    return spelling.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
  }
}

// ---- the parts: each has an element and an update() that brings it in step with the state ----

function typing(text, most, cut) {
  const input = make("input", { type: "text", class: "typed", maxlength: most, value: text, spellcheck: "false" });
  input.addEventListener("input", () => cut(input.value));
  return { element: make("label", { class: "typing" }, "Type here ", input), update: () => {} };
}

function controls(state, go) {
  const slider = make("input", { type: "range", class: "place", min: 0, step: 1, "aria-label": "merges" });
  slider.addEventListener("input", () => go(Number(slider.value)));
  const [first, back, on, last] = [
    button("only bytes", () => go(0), { class: "first" }),
    button("undo a merge", () => go(state.place - 1), { class: "back" }),
    button("next merge", () => go(state.place + 1), { class: "on" }),
    button("all merges", () => go(state.steps.length - 1), { class: "last" }),
  ];
  const update = () => {
    const end = state.steps.length - 1;
    slider.max = end;
    slider.value = state.place;
    slider.setAttribute("aria-valuetext", `${state.place} of ${end}`);
    for (const one of [first, back]) one.setAttribute("aria-disabled", state.place === 0);
    for (const one of [on, last]) one.setAttribute("aria-disabled", state.place === end);
  };
  return { element: make("div", { class: "controls" }, first, back, slider, on, last), update };
}

function chips(state, spelled) {
  const element = make("div", { class: "chunks" });
  const update = () => {
    const { words, made, next } = state.steps[state.place];
    element.replaceChildren(...words.map((word) => make("span", { class: "chunk" }, ...chipsOf(word, made, next))));
  };
  function chipsOf(word, made, next) {
    let joined = -1; // the place up to which chips belong to the next merge
    return word.map((id, place) => {
      const starts = next && place > joined && id === next[0] && word[place + 1] === next[1];
      if (starts) joined = place + 1;
      const kinds = ["chip", ...(id === made ? ["made"] : []), ...(place <= joined ? ["next"] : [])];
      const name = make("span", { class: "name" }, visible(spelled[id]));
      return make("span", { class: kinds.join(" ") }, name, make("span", { class: "id" }, String(id)));
    });
  }
  return { element, update };
}

function summary(state, spelled) {
  const element = make("p", { class: "summary", "aria-live": "polite" });
  const hint = make("p", { class: "hint" }, "Number below a token: its id. Purple: made by this merge. Blue: what the next one joins.");
  const quoted = (id) => `“${visible(spelled[id])}”`;
  const update = () => {
    const { steps, place } = state;
    const { made, pair, words } = steps[place];
    const total = (all) => all.reduce((sum, word) => sum + word.length, 0);
    const [before, now] = [total(steps[0].words), total(words)];
    const counts = `${before} ${before === 1 ? "byte" : "bytes"}, ${now} ${now === 1 ? "token" : "tokens"}.`;
    const end = place === steps.length - 1 ? " No other merge fits." : "";
    if (made === null) element.replaceChildren(`Before the first merge: ${counts}${end}`);
    else {
      const rank = make("strong", {}, `merge ${made - BYTES + 1}`);
      const joins = ` joins ${pair.map(quoted).join(" and ")} into ${quoted(made)}. ${counts}${end}`;
      element.replaceChildren(`Step ${place} of ${steps.length - 1}: `, rank, joins);
    }
  };
  return { element: make("div", {}, element, hint), update };
}
