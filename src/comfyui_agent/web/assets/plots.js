// The plot of the last hour: images per minute, the target, and the latest value.
"use strict";

(() => {
  const HEIGHT = 176;
  const plots = new Map();

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function options(place, shown) {
    const [ink, soft, line, accent, warn] = ["--ink", "--ink-soft", "--line", "--accent", "--warn"].map(colour);
    const font = `12px ${getComputedStyle(document.body).fontFamily}`;
    const axis = { stroke: soft, font, ticks: { show: false } };
    const highest = Math.max(shown.target * 1.15, ...shown.done, ...shown.failed, 1);
    return {
      width: place.clientWidth,
      height: HEIGHT,
      padding: [16, 40, 0, 0],
      cursor: { show: false },
      legend: { show: false },
      scales: { x: { time: true }, y: { range: [0, highest * 1.08] } },
      axes: [
        { ...axis, grid: { show: false }, space: 72, values: "{HH}:{mm}" },
        { ...axis, grid: { stroke: line, width: 1 }, size: 40, space: 40, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000] },
      ],
      series: [
        {},
        { stroke: accent, width: 2, fill: `color-mix(in srgb, ${accent} 14%, transparent)`, points: { show: false } },
        { stroke: warn, fill: warn, width: 0, paths: uPlot.paths.bars({ size: [0.7, 6] }), points: { show: false } },
      ],
      hooks: { draw: [(plot) => annotate(plot, shown, { ink, soft, accent, font })] },
    };
  }

  /** Draws the target as a dashed line, and the latest value beside its point. */
  function annotate(plot, shown, { ink, soft, accent, font }) {
    const { ctx } = plot;
    const ratio = devicePixelRatio;
    const { left, top, width, height } = plot.bbox;
    ctx.save();
    ctx.font = font.replace("12px", `${12 * ratio}px`);
    ctx.textBaseline = "middle";
    if (shown.target > 0) {
      const y = plot.valToPos(shown.target, "y", true);
      ctx.strokeStyle = soft;
      ctx.lineWidth = ratio;
      ctx.setLineDash([4 * ratio, 4 * ratio]);
      ctx.beginPath();
      ctx.moveTo(left, y);
      ctx.lineTo(left + width, y);
      ctx.stroke();
      ctx.setLineDash([]);
      ctx.fillStyle = soft;
      ctx.textAlign = "left";
      ctx.fillText(`target ${shown.target}`, left + 8 * ratio, Math.max(top + 8 * ratio, y - 9 * ratio));
    }
    const last = shown.done.length - 1;
    if (last >= 0) {
      const [x, y] = [plot.valToPos(shown.minutes[last], "x", true), plot.valToPos(shown.done[last], "y", true)];
      ctx.fillStyle = accent;
      ctx.beginPath();
      ctx.arc(x, y, 3.5 * ratio, 0, 2 * Math.PI);
      ctx.fill();
      ctx.fillStyle = ink;
      ctx.textAlign = "left";
      ctx.fillText(String(shown.done[last]), x + 9 * ratio, Math.min(y, top + height - 6 * ratio));
    }
    ctx.restore();
  }

  function draw(place) {
    const text = place.dataset.pace;
    const known = plots.get(place);
    if (!text || !place.clientWidth || !window.uPlot) return;
    if (known && known.text === text && known.width === place.clientWidth) return;
    const shown = JSON.parse(text);
    known?.plot.destroy();
    const plot = new uPlot(options(place, shown), [shown.minutes, shown.done, shown.failed], place);
    plots.set(place, { text, width: place.clientWidth, plot });
  }

  function drawAll(isAnew = false) {
    for (const [place, { plot }] of plots) {
      if (isAnew || !place.isConnected) {
        plot.destroy();
        plots.delete(place);
      }
    }
    document.querySelectorAll("[data-pace]").forEach(draw);
  }

  document.addEventListener("e3:changed", () => drawAll());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(true));
  let resizing = 0;
  window.addEventListener("resize", () => {
    cancelAnimationFrame(resizing);
    resizing = requestAnimationFrame(() => drawAll());
  });
  drawAll();
})();
