// Element helpers. Text is never parsed as HTML, so that messages cannot inject markup.

export const byId = (id) => document.getElementById(id);

export function el(tag, { data = {}, ...properties } = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  Object.assign(node.dataset, data);
  node.append(...children.filter((child) => child !== null));
  return node;
}
