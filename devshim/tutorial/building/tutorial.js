// The tabs of a tutorial: all of them show one framework, which the address and the browser keep.
"use strict";
(() => {
  const KEY = "devshim-framework";
  const panels = [...document.querySelectorAll(".panel")];
  const names = [...document.querySelectorAll(".picker button")].map((button) => button.dataset.framework);

  const stored = () => { try { return localStorage.getItem(KEY); } catch { return null; } };
  const store = (name) => { try { localStorage.setItem(KEY, name); } catch { /* private mode: the address keeps it */ } };

  const show = (name) => {
    for (const group of document.querySelectorAll(".tabs")) {
      const own = [...group.querySelectorAll(".panel")];
      const chosen = own.find((panel) => panel.dataset.framework === name) ?? own[0];
      for (const panel of own) panel.hidden = panel !== chosen;
      for (const tab of group.querySelectorAll("[role=tab]")) {
        const is = tab.getAttribute("aria-controls") === chosen.id;
        tab.setAttribute("aria-selected", String(is));
        tab.tabIndex = is ? 0 : -1;
      }
    }
    for (const button of document.querySelectorAll(".picker button")) {
      button.setAttribute("aria-pressed", String(button.dataset.framework === name));
    }
  };

  const choose = (name, anchor) => {
    const before = anchor.getBoundingClientRect().top;
    show(name);
    window.scrollBy(0, anchor.getBoundingClientRect().top - before); // what was clicked stays in its place
    store(name);
    const address = new URL(location.href);
    address.searchParams.set("framework", name);
    history.replaceState(null, "", address);
  };

  const makeTab = (panel, list) => {
    const tab = document.createElement("button");
    tab.type = "button";
    tab.role = "tab";
    tab.textContent = panel.querySelector("h4").textContent;
    tab.setAttribute("aria-controls", panel.id);
    tab.id = `${panel.id}-tab`;
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
    tab.addEventListener("click", () => choose(panel.dataset.framework, tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const tabs = [...list.children];
      const next = tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length];
      next.click();
      next.focus();
    });
    return tab;
  };

  panels.forEach((panel, i) => { panel.id = `panel-${i}`; });
  for (const group of document.querySelectorAll(".tabs")) {
    const list = document.createElement("div");
    list.setAttribute("role", "tablist");
    list.setAttribute("aria-label", "Framework");
    list.append(...[...group.querySelectorAll(".panel")].map((panel) => makeTab(panel, list)));
    group.prepend(list);
    group.classList.add("switched");
  }
  for (const button of document.querySelectorAll(".picker button")) {
    button.addEventListener("click", () => choose(button.dataset.framework, button));
  }
  for (const figure of document.querySelectorAll("figure.code, figure.native")) {
    const copy = document.createElement("button");
    copy.type = "button";
    copy.className = "copy";
    copy.textContent = "Copy";
    copy.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(figure.querySelector("pre").textContent);
        copy.textContent = "Copied";
      } catch { copy.textContent = "Select and copy"; }
      setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    });
    figure.append(copy);
  }
  const asked = new URL(location.href).searchParams.get("framework");
  show([asked, stored()].find((name) => names.includes(name)) ?? names[0]);
})();
