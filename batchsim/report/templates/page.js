"use strict";
// A click on a column's name orders the rows by it; another click turns the order round. Empty values stay last.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, place) => head.querySelector("button")?.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const body = table.tBodies[0];
    const value = (row) => row.cells[place].dataset.sort ?? row.cells[place].textContent.trim();
    const known = (text) => text !== "" && text !== "–";
    const order = (a, b) => (isNaN(a) || isNaN(b) ? a.localeCompare(b, undefined, { numeric: true }) : a - b);
    const rows = [...body.rows].sort((one, two) => {
      const a = value(one), b = value(two);
      if (!known(a) || !known(b)) return known(b) - known(a);
      return down ? order(b, a) : order(a, b);
    });
    body.append(...rows);
  }));
}
