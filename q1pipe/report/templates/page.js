(function () {
  "use strict";
  var root = document.documentElement;
  var media = window.matchMedia("(prefers-color-scheme: dark)");
  var words = JSON.parse(document.getElementById("words").textContent);
  var figures = JSON.parse(document.getElementById("charts").textContent);
  var css = function (name) { return getComputedStyle(root).getPropertyValue(name).trim(); };
  // Colours stand in figures as the names of the style sheet's variables.
  var coloured = function (value) {
    if (typeof value === "string" && value.slice(0, 4) === "var(") return css(value.slice(4, -1));
    if (Array.isArray(value)) return value.map(coloured);
    if (value && typeof value === "object") {
      var result = {};
      Object.keys(value).forEach(function (key) { result[key] = coloured(value[key]); });
      return result;
    }
    return value;
  };
  var axis = function (own) {
    var base = { gridcolor: css("--line"), zerolinecolor: css("--line"), linecolor: css("--line"), automargin: true };
    return Object.assign(base, own, { title: Object.assign({ font: { size: 11 } }, own.title) });
  };
  var layout = function (figure) {
    var narrow = window.innerWidth < 760;
    var own = coloured(figure.layout);
    var result = Object.assign({
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: narrow ? false : "zoom",
      font: { color: css("--ink"), size: 12, family: getComputedStyle(document.body).fontFamily },
      colorway: [0, 1, 2, 3, 4, 5, 6, 7, 8].map(function (i) { return css("--c" + i); }),
      margin: { l: 48, r: own.yaxis2 ? 48 : 12, t: own.annotations ? 56 : 24, b: 40 },
      legend: { orientation: "h", y: narrow ? -0.36 : -0.28, font: { size: 11 } },
      hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { color: css("--ink"), size: 11 } }
    }, own);
    ["xaxis", "yaxis", "yaxis2"].forEach(function (name) { if (own[name]) result[name] = axis(own[name]); });
    return result;
  };
  var draw = function (figure) {
    var place = document.getElementById("chart-" + figure.id);
    Plotly.react(place, figure.data, layout(figure), { responsive: true, displaylogo: false, displayModeBar: false });
  };
  var drawAll = function () { figures.forEach(draw); };
  var theme = function (name) { root.dataset.theme = name; drawAll(); };
  figures.forEach(function (figure) {
    var button = document.querySelector("[data-log='" + figure.id + "']");
    if (!button) return;
    var label = function () {
      button.textContent = figure.layout.yaxis.type === "log" ? words.linear_scale : words.log_scale;
    };
    label();
    button.addEventListener("click", function () {
      figure.layout.yaxis.type = figure.layout.yaxis.type === "log" ? "linear" : "log";
      label();
      draw(figure);
    });
  });
  document.getElementById("theme").addEventListener("click", function () {
    theme(root.dataset.theme === "dark" ? "light" : "dark");
  });
  media.addEventListener("change", function (event) { theme(event.matches ? "dark" : "light"); });
  drawAll();
})();
