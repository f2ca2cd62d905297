// Parts that scroll sideways can be reached with the keyboard, as WCAG 2.1.1 asks.
document.addEventListener("DOMContentLoaded", () => {
  for (const each of document.querySelectorAll(".table-wrapper, .highlight pre, .sidebar-scroll, .toc-scroll")) {
    if (each.scrollWidth > each.clientWidth || each.scrollHeight > each.clientHeight) {
      each.tabIndex = 0;
    }
  }
});

// An old link to a name on api.html, such as api.html#devshim.place, leads to the page that has it now.
document.addEventListener("DOMContentLoaded", () => {
  if (!location.hash || document.getElementById(location.hash.slice(1))) {
    return;
  }
  const link = [...document.querySelectorAll("article a.reference.internal")].find((each) => each.hash === location.hash);
  if (link && /\/api(\.html)?$/.test(location.pathname)) {
    location.replace(link.href);
  }
});
