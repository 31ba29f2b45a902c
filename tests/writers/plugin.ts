// The same as plugin.py, run by OpenCode's own Bun: BUN_BE_BUN=1 opencode run plugin.ts DATABASE COUNT GO
import { Database } from "bun:sqlite";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const [database, count, go] = process.argv.slice(2);
const db = new Database(database, { create: true });
db.run("PRAGMA busy_timeout = 5000");
db.run("PRAGMA journal_mode = WAL");
db.exec(readFileSync(join(import.meta.dir, "layout.sql"), "utf8"));
console.log("ready");
while (!existsSync(go)) Bun.sleepSync(2);
const insert = db.query(
  "INSERT INTO entries (id, scope, kind, title, body, tags, created_at, updated_at, expires_at)" +
    " VALUES (?, 'global', 'fact', ?, ?, '[\"plugin\"]', ?, ?, NULL)",
);
for (let number = 0; number < Number(count); number++) {
  insert.run(crypto.randomUUID(), `theirs ${number}`, `plugin row ${number}`, number, number);
}
db.close();
