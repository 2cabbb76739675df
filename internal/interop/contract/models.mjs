// Generates types of AsyncAPI documents with the official generator: models.mjs OUT DOCUMENT...
import { readFileSync, mkdirSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { JavaGenerator, KotlinGenerator, PythonGenerator } from "@asyncapi/modelina";

const [out, ...paths] = process.argv.slice(2);
const languages = { java: JavaGenerator, kt: KotlinGenerator, py: PythonGenerator };
for (const path of paths) {
  const document = JSON.parse(readFileSync(path, "utf8"));
  const { Dict } = document.components.schemas; // the generator does not know a map of itself
  if (Dict) delete Dict.additionalProperties;
  const name = basename(path).split(".")[0];
  for (const [extension, Generator] of Object.entries(languages)) {
    const models = await new Generator().generateCompleteModels(document, { packageName: name });
    const dir = join(out, extension, name);
    mkdirSync(dir, { recursive: true });
    for (const { modelName, result } of models) writeFileSync(join(dir, `${modelName}.${extension}`), result);
    console.log(extension, name, models.map((m) => m.modelName).sort().join(" "));
  }
}
