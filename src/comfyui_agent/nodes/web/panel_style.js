/** The style of the panel, in the colours of ComfyUI's theme. */

export const STYLE = `
.e3-panel { position: fixed; z-index: 999; box-sizing: border-box; display: flex; flex-direction: column; gap: 8px;
  padding: 8px 12px; border: 1px solid var(--border-color, #4e4e4e); border-radius: 8px;
  background: var(--comfy-menu-bg, #353535); color: var(--fg-color, #fff);
  font-size: 13px; line-height: 1.4; font-variant-numeric: tabular-nums; }
.e3-panel [hidden], .e3-panel[hidden] { display: none; }
.e3-panel button { flex: none; min-height: 28px; margin: 0; padding: 2px 10px;
  border: 1px solid var(--border-color, #4e4e4e); border-radius: 6px;
  background: var(--comfy-input-bg, #222); color: inherit; font: inherit; cursor: pointer; }
.e3-panel button:hover { border-color: currentColor; }
.e3-panel button:focus-visible, .e3-panel a:focus-visible { outline: 2px solid currentColor; outline-offset: 2px; }
.e3-top, .e3-head, .e3-question { display: flex; align-items: center; gap: 8px; }
.e3-sentence { flex: 1; font-weight: 600; }
.e3-list { margin: 0; padding: 0; list-style: none; overflow-y: auto; overflow-wrap: anywhere; }
.e3-batch { padding: 8px 2px; border-top: 1px solid var(--border-color, #4e4e4e); }
.e3-name { flex: 1; min-width: 0; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.e3-word, .e3-count { white-space: nowrap; }
.e3-bar { display: flex; height: 8px; margin-top: 8px; overflow: hidden; border: 1px solid currentColor;
  border-radius: 4px; }
.e3-done, .e3-failed { transition: width 0.2s; }
.e3-done { background: currentColor;
  background: color-mix(in srgb, var(--primary-background, var(--p-primary-color, currentColor)) 70%, currentColor); }
.e3-failed { background: repeating-linear-gradient(45deg, currentColor 0 2px, transparent 2px 5px); }
.e3-question { flex-wrap: wrap; margin-top: 8px; }
.e3-question span { flex: 1; }
.e3-panel .e3-why { margin-top: 8px; }
.e3-why::before { content: "△ "; }
.e3-why::after { content: " ▸"; }
.e3-why[aria-expanded="true"]::after { content: " ▾"; }
.e3-reasons { margin: 4px 0 0; padding-left: 20px; list-style: disc; }
.e3-note { margin: 8px 0 0; }
.e3-grids { display: flex; gap: 8px; margin-top: 8px; overflow-x: auto; }
.e3-grids a { flex: none; border-radius: 4px; }
.e3-grids img { display: block; max-width: 100%; height: 96px; border-radius: 4px; object-fit: contain; }
.e3-unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap;
}
@media (prefers-reduced-motion: reduce) { .e3-done, .e3-failed { transition: none; } }
@media (pointer: coarse) { .e3-panel button { min-height: 40px; } }
`;
