// Sort the rows of a table by the column whose header is clicked; numbers sort numerically.
for (const head of document.querySelectorAll("th.sorts")) head.addEventListener("click", () => {
  const body = head.closest("table").tBodies[0], at = head.cellIndex, up = head.dataset.up !== "1";
  head.dataset.up = up ? "1" : "0";
  const key = row => { const text = row.cells[at].textContent.trim(); return /^[-+]?[\d.]+$/.test(text) ? parseFloat(text) : text; };
  const rows = [...body.rows].sort((a, b) => {
    const x = key(a), y = key(b), mixed = typeof x !== typeof y;
    return (mixed ? (typeof x === "number" ? -1 : 1) : (x < y ? -1 : x > y ? 1 : 0)) * (up ? 1 : -1);
  });
  body.append(...rows);
});
