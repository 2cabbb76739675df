// Validates AsyncAPI documents with the official JSON Schema, and the messages of a directory with the
// schemas inside the documents.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import Ajv from "ajv";
import addFormats from "ajv-formats";

const require = createRequire(import.meta.url);
const official = require("@asyncapi/specs/schemas/3.0.0-without-$id.json");

function newAjv() {
  const ajv = new Ajv({ strict: false, allErrors: true });
  addFormats(ajv);
  return ajv;
}

const validate = newAjv().compile(official);

// problems returns what is wrong with a document.
function problems(document) {
  return validate(document) ? [] : validate.errors.map((e) => `${e.instancePath} ${e.message}`);
}

let failed = false;
function check(ok, text) {
  if (!ok) {
    failed = true;
    console.error(text);
  }
}

for (const path of process.argv.slice(2)) {
  const document = JSON.parse(readFileSync(path, "utf8"));
  check(problems(document).length === 0, `${path}: ${problems(document).slice(0, 10).join("\n")}`);

  // The official schema finds mistakes.
  for (const [name, mutate] of Object.entries({
    action: (d) => (Object.values(d.operations)[0].action = "publish"),
    "no title": (d) => delete d.info.title,
    channel: (d) => (Object.values(d.operations)[0].channel = "connection"),
    "type of a schema": (d) => (Object.values(d.components.schemas)[0].type = "text"),
    "unknown member": (d) => (d.channels.connection.topics = {}),
  })) {
    const copy = structuredClone(document);
    mutate(copy);
    check(problems(copy).length > 0, `${path}: accepted with a wrong ${name}`);
  }

  // Its schemas are valid for draft-07, and compile with all references.
  for (const [name, message] of Object.entries(document.components.messages)) {
    try {
      newAjv().compile({ ...message.payload, components: document.components });
    } catch (e) {
      check(false, `${path}: ${name}: ${e.message}`);
    }
  }
}
process.exit(failed ? 1 : 0);
