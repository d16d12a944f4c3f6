"use strict";
(() => {
  const text = document.getElementById("text"), severity = document.getElementById("severity");
  const pool = document.getElementById("pool"), count = document.getElementById("count");
  const rows = Array.from(document.querySelectorAll("#findings tbody tr"));
  const cells = Array.from(document.querySelectorAll("button.cell"));
  let node = null;
  const show = () => {
    const wanted = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = node && new Set(node.dataset.f.split(" "));
    let shown = 0;
    for (const row of rows) {
      const said = row.textContent.toLowerCase();
      const fits = (!severity.value || row.dataset.severity === severity.value)
        && (!pool.value || row.dataset.pool === pool.value)
        && (!chosen || chosen.has(row.dataset.n))
        && wanted.every((word) => said.includes(word));
      row.hidden = !fits;
      shown += fits;
    }
    count.textContent = shown + " of " + rows.length + " findings" + (node ? " · node " + node.dataset.node : "");
    for (const cell of cells) cell.setAttribute("aria-pressed", String(cell === node));
    const link = new URLSearchParams();
    if (text.value) link.set("q", text.value);
    if (severity.value) link.set("severity", severity.value);
    if (pool.value) link.set("pool", pool.value);
    if (node) link.set("node", node.dataset.node);
    history.replaceState(null, "", "#" + link);
  };
  for (const input of [text, severity, pool]) input.addEventListener("input", show);
  for (const cell of cells) {
    cell.addEventListener("click", () => { node = node === cell ? null : cell; show(); });
  }
  document.getElementById("all").addEventListener("click", () => {
    text.value = severity.value = pool.value = "";
    node = null;
    show();
  });
  // A link to the page can say what it shows: #severity=block&q=driver&node=gpu-017
  const given = new URLSearchParams(location.hash.slice(1));
  text.value = given.get("q") || "";
  severity.value = given.get("severity") || "";
  pool.value = given.get("pool") || "";
  node = cells.find((cell) => cell.dataset.node === given.get("node")) || null;
  document.querySelector(".bar").hidden = false;
  show();
})();
