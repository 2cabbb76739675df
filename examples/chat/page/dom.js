// Elements, made without ever parsing text as HTML.

export const byId = (id) => document.getElementById(id);

export function el(tag, { data = {}, ...properties } = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  Object.assign(node.dataset, data);
  node.append(...children.filter((child) => child !== null));
  return node;
}
