//! Plots as SVG text: bars, a heat map, curves. Colours come from the page's style, so that dark pages work.

use std::fmt::Write;

const WIDTH: f64 = 860.0;
const ROW: f64 = 24.0;
const LABEL: f64 = 390.0;
const VALUE: f64 = 130.0;

pub struct Bar {
    pub label: String,
    /// Length of the bar; negative counts as zero.
    pub value: f64,
    pub text: String,
    pub marked: bool,
}

impl Bar {
    pub fn new(label: impl Into<String>, value: f64, text: String) -> Bar {
        Bar { label: label.into(), value, text, marked: false }
    }
}

pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn frame(height: f64, title: &str, body: &str) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{}\">{body}</svg>\n", escaped(title))
}

/// Returns horizontal bars, the longest at full width.
pub fn bars(title: &str, bars: &[Bar]) -> String {
    let most = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    let room = WIDTH - LABEL - VALUE;
    let mut body = String::new();
    for (number, bar) in bars.iter().enumerate() {
        let y = number as f64 * ROW;
        let length = if most > 0.0 { (bar.value / most).clamp(0.0, 1.0) * room } else { 0.0 };
        let class = if bar.marked { "mark" } else { "bar" };
        let (label, text) = (escaped(&bar.label), escaped(&bar.text));
        let _ = write!(
            body,
            "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>\
             <rect class=\"{class}\" x=\"{LABEL}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"{:.0}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{text}</text>",
            LABEL - 8.0,
            y + 16.0,
            y + 4.0,
            ROW - 8.0,
            LABEL + length + 6.0,
            y + 16.0,
        );
    }
    frame(bars.len() as f64 * ROW + 4.0, title, &body)
}

pub struct Heat {
    pub row: usize,
    pub column: usize,
    /// Relative value, 0 to 1; `None` if the cell does not count.
    pub share: Option<f64>,
    pub text: String,
}

pub fn heat(title: &str, rows: &[String], columns: &[String], cells: &[Heat]) -> String {
    let (left, top, high) = (90.0, 26.0, 34.0);
    let wide = ((WIDTH - left) / columns.len().max(1) as f64).min(110.0);
    let mut body = String::new();
    for (number, name) in columns.iter().enumerate() {
        let x = left + (number as f64 + 0.5) * wide;
        let _ = write!(body, "<text x=\"{x:.1}\" y=\"16\" text-anchor=\"middle\">{}</text>", escaped(name));
    }
    for (number, name) in rows.iter().enumerate() {
        let y = top + (number as f64 + 0.5) * high + 5.0;
        let _ = write!(body, "<text x=\"{:.0}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>", left - 8.0, escaped(name));
    }
    for cell in cells {
        let (x, y) = (left + cell.column as f64 * wide, top + cell.row as f64 * high);
        let (class, opacity) = match cell.share {
            Some(share) => ("bar", 0.12 + 0.88 * share.clamp(0.0, 1.0)),
            None => ("bad", 0.5),
        };
        let ink = if cell.share.is_some_and(|share| share > 0.6) { " class=\"on\"" } else { "" };
        let _ = write!(
            body,
            "<rect class=\"{class}\" fill-opacity=\"{opacity:.2}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>\
             <text{ink} x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x + 1.0,
            y + 1.0,
            wide - 2.0,
            high - 2.0,
            x + wide / 2.0,
            y + high / 2.0 + 5.0,
            escaped(&cell.text),
        );
    }
    frame(top + rows.len() as f64 * high + 4.0, title, &body)
}

pub struct Curve {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// Returns curves over a common axis, with y from zero and a dashed line at `limit`. `x_name` and `y_name` contain the
/// units. `ticks` are the labelled positions of the x axis.
pub fn curves(
    title: &str,
    (x_name, y_name): (&str, &str),
    curves: &[Curve],
    limit: Option<f64>,
    ticks: &[(f64, String)],
) -> String {
    let (left, right, top, bottom, height) = (90.0, 130.0, 14.0, 40.0, 300.0);
    let points = || curves.iter().flat_map(|curve| curve.points.iter().copied());
    let (low, high) = points().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), (x, _)| (l.min(x), h.max(x)));
    let most = points().map(|(_, y)| y).chain(limit).fold(0.0, f64::max);
    if !low.is_finite() || most <= 0.0 {
        return String::new();
    }
    let x = |value: f64| left + (value - low) / (high - low).max(1e-9) * (WIDTH - left - right);
    let y = |value: f64| height - bottom - value / most * (height - top - bottom);
    let (axis_y, end) = (height - bottom, WIDTH - right);
    let mut body = format!(
        "<path class=\"axis\" d=\"M{left},{top} V{axis_y} H{end}\"/>\
         <text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{most:.3}</text><text x=\"{:.0}\" y=\"{axis_y:.0}\" text-anchor=\"end\">0</text>\
         <text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text><text x=\"4\" y=\"{:.0}\">{}</text>",
        left - 6.0,
        top + 10.0,
        left - 6.0,
        (left + end) / 2.0,
        axis_y + 32.0,
        escaped(x_name),
        (top + axis_y) / 2.0,
        escaped(y_name),
    );
    for (at, name) in ticks {
        let (at, under) = (x(*at), axis_y + 16.0);
        let _ = write!(body, "<text x=\"{at:.1}\" y=\"{under:.0}\" text-anchor=\"middle\">{}</text>", escaped(name));
    }
    if let Some(limit) = limit {
        let at = y(limit);
        let _ = write!(
            body,
            "<path class=\"limit\" d=\"M{left},{at:.1} H{end}\"/><text x=\"{:.0}\" y=\"{:.1}\">limit</text>",
            end + 6.0,
            at + 4.0
        );
    }
    for (number, curve) in curves.iter().enumerate() {
        let hue = number as f64 * 360.0 / curves.len().max(1) as f64 + 210.0;
        let style = format!("hsl({hue:.0} 60% 50%)");
        let path: Vec<String> =
            curve.points.iter().map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1))).collect();
        let _ = write!(
            body,
            "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"{style}\" points=\"{}\"/>",
            path.join(" ")
        );
        for point in curve.points.iter().filter(|_| curve.points.len() <= 40) {
            let _ =
                write!(body, "<circle r=\"3\" fill=\"{style}\" cx=\"{:.1}\" cy=\"{:.1}\"/>", x(point.0), y(point.1));
        }
        let line = top + 30.0 + number as f64 * 18.0;
        let _ = write!(
            body,
            "<text style=\"fill:{style}\" x=\"{:.0}\" y=\"{line:.0}\">{}</text>",
            end + 6.0,
            escaped(&curve.name)
        );
    }
    frame(height, title, &body)
}
