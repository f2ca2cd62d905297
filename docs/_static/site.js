// Parts that scroll sideways can be reached with the keyboard, as WCAG 2.1.1 asks.
document.addEventListener("DOMContentLoaded", () => {
  for (const each of document.querySelectorAll(".table-wrapper, .highlight pre, .sidebar-scroll, .toc-scroll")) {
    if (each.scrollWidth > each.clientWidth || each.scrollHeight > each.clientHeight) {
      each.tabIndex = 0;
    }
  }
});
