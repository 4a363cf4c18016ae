// A story and questions about it: step through the hops, and the sentences that each hop reads light up.

function buildView({ sentences, asked }) {
  const state = { question: 0, hop: 0 }; // hop 0: nothing is read yet; behind the last hop stands the answer
  const last = () => asked[state.question].weights.length + 1;
  const questions = asked.map((each, place) => button(each.question, () => set({ question: place, hop: 0 })));
  const next = button("Next hop ▸", () => set({ hop: state.hop < last() ? state.hop + 1 : 0 }), { class: "next" });
  const lines = sentences.map((text) => sentence(text));
  const said = make("p", { class: "summary", "aria-live": "polite" });
  const list = make("ol", {}, ...lines.map((line) => line.element));
  const choice = make("div", { class: "controls questions", role: "group", "aria-label": "Question" }, ...questions);
  const view = make("section", { class: "view", "aria-label": "A story that is read hop by hop" });
  view.append(choice, list, make("div", { class: "controls" }, next), said);
  onKeys(view, { ArrowRight: () => set({ hop: Math.min(state.hop + 1, last()) }), ArrowLeft: () => set({ hop: Math.max(state.hop - 1, 0) }) });

  function set(change) {
    Object.assign(state, change);
    const { weights } = asked[state.question];
    questions.forEach((one, place) => one.setAttribute("aria-pressed", place === state.question));
    lines.forEach((line, place) => line.show(weights.map((hop) => hop[place]), state.hop));
    next.textContent = state.hop + 1 < last() ? `Hop ${state.hop + 1} ▸` : state.hop < last() ? "Answer ▸" : "Again ↺";
    said.replaceChildren(...words(asked[state.question], state.hop, sentences));
  }

  set({});
  return view;
}

// One sentence with a mark for each hop that has read it; the hop of the moment colors it.
function sentence(text) {
  const marks = make("span", { class: "marks" });
  const element = make("li", {}, make("span", { class: "text" }, text), marks);
  const show = (weights, hop) => {
    const now = hop > 0 && hop <= weights.length ? weights[hop - 1] : 0;
    element.style.setProperty("--weight", now / 100);
    element.classList.toggle("lit", now >= 50);
    const read = weights.slice(0, hop).flatMap((weight, place) => (weight >= 10 ? [`hop ${place + 1}: ${weight}%`] : []));
    marks.textContent = read.join(" · ");
  };
  return { element, show };
}

function words({ question, answer, probability, weights }, hop, sentences) {
  if (hop === 0) return [`${question} The network holds the question. Let it read.`];
  if (hop > weights.length) {
    return [`${question} `, make("strong", {}, answer), ` (${Math.round(100 * probability)}% sure)`];
  }
  const most = weights[hop - 1].indexOf(Math.max(...weights[hop - 1]));
  return [`Hop ${hop} reads mostly sentence ${most + 1}: “${sentences[most]}” (${weights[hop - 1][most]}% of its attention)`];
}
