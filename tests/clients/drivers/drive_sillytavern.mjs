// Plays a scenario with SillyTavern's router for ComfyUI, served by express as SillyTavern does it.
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const wanted = JSON.parse(fs.readFileSync(0, 'utf-8'));
const tavern = path.join(wanted.folder, 'node_modules', 'sillytavern');
const express = createRequire(path.join(tavern, 'package.json'))('express');
const part = (...names) => import(pathToFileURL(path.join(tavern, 'src', ...names)));
(await part('util.js')).setConfigFilePath(path.join(tavern, 'default', 'config.yaml'));
const { router } = await part('endpoints', 'stable-diffusion.js');

const app = express();
app.use(express.json({ limit: '50mb' }), router);
const server = app.listen(0, '127.0.0.1');
await new Promise((ready) => server.once('listening', ready));

function ask(route, more = {}, signal = undefined) {
    const body = JSON.stringify({ url: wanted.url, ...more });
    const headers = { 'Content-Type': 'application/json' };
    return fetch(`http://127.0.0.1:${server.address().port}/comfy/${route}`, { method: 'POST', headers, body, signal });
}

const prompt = JSON.stringify({ prompt: wanted.graph });

const scenarios = {
    async lists() {
        const found = { ping: (await ask('ping')).status };
        for (const list of ['samplers', 'models', 'schedulers', 'vaes']) {
            found[list] = await (await ask(list)).json();
        }
        return found;
    },

    async render() {
        const answer = await ask('generate', { prompt });
        return answer.ok ? await answer.json() : { error: await answer.text() };
    },

    // The page is closed as soon as the prompt runs.
    async leave() {
        const page = new AbortController();
        const answer = ask('generate', { prompt }, page.signal).catch((error) => error.name);
        let running = [];
        while (!running.length) {
            running = (await (await fetch(`${wanted.url}/queue`)).json()).queue_running;
        }
        page.abort();
        const promptId = running[0][1];
        const history = `${wanted.url}/history/${promptId}`;
        while (!(promptId in (await (await fetch(history)).json())));
        return { prompt_id: promptId, left: await answer };
    },
};

fs.writeFileSync(process.argv[3], JSON.stringify(await scenarios[process.argv[2]]()));
process.exit();
