// Lists the sentences of a section (script.rows), filtered and sorted, some at a time.
const STEP = 40;
const made = (tag, text, attributes = {}) => {
  const node = document.createElement(tag);
  node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};
const word = (row, [text, kind = "", from, to, source, sure], label) => {
  const known = from !== undefined;
  const title = known ? `${label}: ${(row.begin + from).toFixed(2)} s, ${source}`
    + (sure === undefined ? "" : `, confidence ${sure.toFixed(2)}`) : label;
  if (!known || row.clip === null || !text) return made("i", text, {class: kind, ...(text && {title})});
  const lead = 0.04;
  return made("button", text, {
    class: `word ${kind}`, title, "data-play": `${row.clip},${(from - lead).toFixed(2)},${(to + lead).toFixed(2)}`,
  });
};
const article = (row, labels) => {
  const node = made("article", ""), header = made("header", "");
  if (row.clip !== null) header.append(made("button", "▶ all", {class: "play", "data-play": String(row.clip)}));
  header.append(made("code", row.name), made("span", row.speaker));
  for (const tag of row.tags) header.append(made("span", tag, {class: "tag"}));
  if (row.clip === null) header.append(made("span", "no audio here"));
  const words = made("div", "", {class: "words"});
  const names = made("span", "", {class: "labels"});
  for (const label of labels) names.append(made("i", label));
  words.append(names);
  for (const cells of row.columns) {
    const column = made("span", "");
    cells.forEach((cell, line) => column.append(word(row, cell, labels[line])));
    words.append(column);
  }
  node.append(header, words);
  return node;
};
// of each line of a column: the text and kind of edit that it must have; null: any; "!": some kind
const matches = (row, pattern) => row.columns.some(cells => pattern.every((wanted, line) =>
  !wanted || ((wanted[0] === null || cells[line][0] === wanted[0])
    && (wanted[1] === null || (wanted[1] === "!" ? cells[line][1] : (cells[line][1] ?? "") === wanted[1])))));
const says = (row, text) =>
  row.columns.some(cells => cells.some(cell => cell[0].toLowerCase() === text));

for (const section of document.querySelectorAll("section[data-labels]")) {
  const labels = JSON.parse(section.dataset.labels);
  const fields = [...section.querySelectorAll("[data-filter]")];
  const sort = section.querySelector("[data-sort]"), list = section.querySelector(".list");
  const count = section.querySelector(".count"), more = section.querySelector(".more");
  const only = section.querySelector(".only");
  let rows, pattern = null, found = [], shown = 0;
  const show = () => {
    list.append(...found.slice(shown, shown + STEP).map(row => article(row, labels)));
    shown = Math.min(found.length, shown + STEP);
    count.textContent = `${found.length} of ${rows.length} sentences, ${shown} shown`;
    more.hidden = shown >= found.length;
  };
  const choose = () => {
    rows ??= JSON.parse(section.querySelector("script.rows").textContent);
    const wanted = fields.map(f => [f.dataset.filter, f.value.trim()]).filter(([, value]) => value);
    found = rows.filter(row => (!pattern || matches(row, pattern)) && wanted.every(([name, value]) =>
      name === "text" ? says(row, value.toLowerCase()) : row[name] === value));
    const [key, sign] = [sort.value.replace("-", ""), sort.value.startsWith("-") ? -1 : 1];
    const last = row => row[key] === null;
    found.sort((a, b) => last(a) - last(b) || sign * (a[key] - b[key]) || (a.name < b.name ? -1 : 1));
    only.hidden = !pattern;
    list.replaceChildren();
    shown = 0;
    show();
  };
  for (const field of [...fields, sort]) field.addEventListener("input", choose);
  more.addEventListener("click", show);
  only.addEventListener("click", () => { pattern = null; choose(); });
  section.addEventListener("click", event => {
    const button = event.target.closest("[data-pattern]");
    if (!button) return;
    pattern = JSON.parse(button.dataset.pattern);
    only.textContent = `only: ${button.title} ✕`;
    choose();
    section.querySelector(".filter").scrollIntoView();
  });
  choose();
}
