// Break it: a switch for each broken version of a model, what it makes of the reader's text, and its score as a bar.

function buildView({ text, unit, versions }) {
  const whole = wordsOf(versions[0].output);
  const output = make("p", { class: "output", "aria-live": "polite" });
  const rows = versions.map((version, place) => row(version, () => choose(place)));
  const list = make("fieldset", {}, make("legend", {}, `Take out one part (bars: ${unit})`), ...rows);
  const head = make("p", { class: "summary" }, make("span", { class: "given" }, text), " →");
  const view = make("section", { class: "view", "aria-label": "Break the model" }, head, output, list);

  function choose(place) {
    const words = wordsOf(versions[place].output);
    const kept = common(whole, words);
    output.replaceChildren(...words.flatMap((word, i) => [i ? " " : "", kept.has(i) ? word : make("mark", {}, word)]));
    rows.forEach((one, i) => one.classList.toggle("chosen", i === place));
  }

  rows[0].querySelector("input").checked = true;
  choose(0);
  return view;
}

function row({ name, score, share }, choose) {
  const input = make("input", { type: "radio", name: "version" });
  input.addEventListener("change", choose);
  const line = make("span", { class: "line" });
  line.style.setProperty("--share", share);
  const track = make("span", { class: "track", "aria-hidden": "true" }, line);
  return make("label", {}, input, make("span", { class: "name" }, name), track, make("span", { class: "score" }, score));
}

function wordsOf(text) {
  return text.split(/\s+/).filter(Boolean);
}

// The places in `other` of a longest common subsequence of words.
function common(one, other) {
  const lengths = Array.from({ length: one.length + 1 }, () => new Array(other.length + 1).fill(0));
  for (let i = one.length - 1; i >= 0; i -= 1) {
    for (let j = other.length - 1; j >= 0; j -= 1) {
      const skipped = Math.max(lengths[i + 1][j], lengths[i][j + 1]);
      lengths[i][j] = one[i] === other[j] ? lengths[i + 1][j + 1] + 1 : skipped;
    }
  }
  const places = new Set();
  for (let i = 0, j = 0; i < one.length && j < other.length; ) {
    if (one[i] === other[j]) {
      places.add(j);
      i += 1;
      j += 1;
    } else if (lengths[i + 1][j] >= lengths[i][j + 1]) i += 1;
    else j += 1;
  }
  return places;
}
