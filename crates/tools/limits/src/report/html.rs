//! The report as one self-contained HTML file: no network, no script.

use std::fmt::Write;

use super::svg::{Bar, Curve, Heat, bars, curves, escaped, heat};
use super::{Report, stage_text, steps_table};
use crate::factors::{Factors, Level, value as level_value};
use crate::plan::Plan;
use crate::probe::{self, Measurement, Probe, Unit};
use crate::results::Stage;
use crate::sweep::{Sweep, analyse, cells, distinct};
use crate::units::{format_operations, format_rate, format_share};
use crate::watch::Watch;

/// Style sheet of every page that this crate writes.
pub const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--bar:#3b76b8;--mark:#c8452d;--rule:#d0d7de}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ec;--paper:#14181c;--bar:#6ba3e0;--mark:#ef7a5f;--rule:#3a424b}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:860px;margin:2em auto;padding:0 1em}\
h1{font-size:1.5em}h2{font-size:1.2em;border-top:1px solid var(--rule);padding-top:1em;margin-top:2em}\
pre{overflow-x:auto;font-size:12.5px;line-height:1.35}svg{width:100%;height:auto}\
svg text{font-size:13px;fill:var(--ink)}svg text.on{fill:var(--paper)}.bar{fill:var(--bar)}.mark{fill:var(--mark)}\
.bad{fill:var(--mark)}.axis{fill:none;stroke:var(--rule)}.limit{fill:none;stroke:var(--mark);stroke-dasharray:6 4}\
ul.verdict{font-size:1.05em}summary{cursor:pointer}small{opacity:.7}";

pub fn html(report: &Report) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Limits of a storage system</title>\n\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body>\n\
         <h1>What this storage can do, what it does, and where it is lost</h1>\n<ul class=\"verdict\">\n"
    );
    for words in &report.verdict {
        let _ = writeln!(page, "<li>{}</li>", escaped(words));
    }
    page.push_str("</ul>\n");
    if !report.steps.is_empty() {
        let steps: Vec<Bar> = report.steps.iter().flat_map(step_bars).collect();
        page.push_str("<h2>The stages side by side</h2>\n");
        page.push_str(&bars("The stages side by side", &steps));
        let _ = writeln!(page, "<pre>{}</pre>", escaped(&steps_table(&report.steps).render()));
    }
    for source in &report.sources {
        let results = &source.results;
        let (title, plots) = match &results.stage {
            Stage::Plan(plan) => ("Limits by specification", plan_plots(plan)),
            Stage::Probe(probe) => ("Each component alone", probe_plots(probe)),
            Stage::Sweep(sweep) => ("The ideal workload", sweep_plots(sweep)),
            Stage::Watch(watch) => ("A program's run", watch_plots(watch)),
            Stage::Factors(factors) => ("One software factor at a time", factor_plots(factors)),
        };
        let (path, host) = (source.path.display().to_string(), format!("{}, Linux {}", results.host, results.kernel));
        let _ = write!(
            page,
            "<h2>{title}</h2>\n<p><small>{}; {}; forebay {}</small></p>\n{plots}\
             <details><summary>All numbers</summary><pre>{}</pre></details>\n",
            escaped(&path),
            escaped(&host),
            escaped(&results.version),
            escaped(&stage_text(&results.stage)),
        );
    }
    page.push_str("</body></html>\n");
    page
}

fn step_bars(step: &super::Step) -> Vec<Bar> {
    let bar = |direction: &str, rate: Option<f64>| {
        let label = format!("{} {direction}: {}", step.stage, shortened(&step.what));
        rate.map(|rate| Bar::new(label, rate, format_rate(rate)))
    };
    [bar("write", step.write_bytes_per_s), bar("read", step.read_bytes_per_s)].into_iter().flatten().collect()
}

/// Returns the end of a text that fits beside a bar.
fn shortened(text: &str) -> String {
    const MOST: usize = 38;
    let skip = text.chars().count().saturating_sub(MOST);
    if skip == 0 { text.to_string() } else { format!("...{}", text.chars().skip(skip + 3).collect::<String>()) }
}

fn plan_plots(plan: &Plan) -> String {
    let mut plots = String::new();
    for direction in &plan.directions {
        let all: Vec<Bar> = (direction.ceilings.iter())
            .map(|ceiling| Bar {
                label: format!("{} {}", ceiling.symbol, ceiling.symbol.words()),
                value: ceiling.bytes_per_s,
                text: format_rate(ceiling.bytes_per_s),
                marked: ceiling.symbol == direction.binding,
            })
            .collect();
        let _ = write!(plots, "<h3>{}</h3>\n{}", direction.name, bars(&direction.name, &all));
    }
    plots
}

fn probe_plots(probe: &Probe) -> String {
    let mut components: Vec<String> = Vec::new();
    for measurement in &probe.measurements {
        let name = probe::component(measurement);
        if !components.contains(&name) {
            components.push(name);
        }
    }
    let mut plots = String::new();
    for component in components {
        let _ = writeln!(plots, "<h3>{}</h3>", escaped(&component));
        // Different units have separate axes.
        for unit in [Unit::BytesPerSecond, Unit::OperationsPerSecond, Unit::Nanoseconds] {
            let of_unit = probe.measurements.iter().filter(|m| m.unit == unit && probe::component(m) == component);
            let bar = |one: &Measurement| Bar::new(one.what.clone(), one.value, probe::value(one));
            let all: Vec<Bar> = of_unit.map(bar).collect();
            if !all.is_empty() {
                plots.push_str(&bars(&component, &all));
            }
        }
    }
    plots
}

fn sweep_plots(sweep: &Sweep) -> String {
    let mut plots = String::new();
    let analyses = analyse(sweep);
    for kind in sweep.kinds() {
        let table = cells(&sweep.runs, kind);
        let best = analyses.iter().find(|analysis| analysis.kind == kind).map_or(0.0, |analysis| analysis.best.rate);
        let rows = distinct(table.iter().map(|cell| cell.groups));
        let columns = distinct(table.iter().map(|cell| cell.processes));
        let place = |values: &[u64], value: u64| values.iter().position(|known| *known == value).unwrap_or(0);
        let warm: Vec<Heat> = (table.iter())
            .map(|cell| Heat {
                row: place(&rows, cell.groups),
                column: place(&columns, cell.processes),
                share: (cell.rejected.is_none() && best > 0.0).then(|| cell.rate / best),
                text: if kind.is_data() { format_rate(cell.rate) } else { format_operations(cell.rate) },
            })
            .collect();
        let name =
            |letter: &str, values: &[u64]| values.iter().map(|value| format!("{letter}={value}")).collect::<Vec<_>>();
        let _ = writeln!(plots, "<h3>{} {kind}</h3>", escaped(&sweep.options.pattern.name));
        plots.push_str(&heat("rates by M and N", &name("M", &rows), &name("N", &columns), &warm));
        let scale = if kind.is_data() { 1e9 } else { 1e3 };
        let lines: Vec<Curve> = (rows.iter())
            .map(|m| Curve {
                name: format!("M={m}"),
                points: (table.iter().filter(|cell| cell.groups == *m && cell.rejected.is_none()))
                    .map(|cell| ((cell.processes as f64).log2(), cell.rate / scale))
                    .collect(),
            })
            .collect();
        let limit = sweep.options.known.limit(kind).map(|limit| limit / scale);
        let unit = if kind.is_data() { "GB/s" } else { "1000/s" };
        if columns.len() > 1 {
            let ticks: Vec<_> = columns.iter().map(|n| ((*n as f64).log2(), n.to_string())).collect();
            plots.push_str(&curves("rates over N", ("N, processes a group", unit), &lines, limit, &ticks));
        }
    }
    plots
}

fn watch_plots(watch: &Watch) -> String {
    let full: Vec<Bar> = (watch.busy.iter())
        .filter_map(|busy| busy.share.map(|share| (busy, share)))
        .map(|(busy, share)| Bar {
            marked: share >= 0.85,
            ..Bar::new(&*busy.name, share, format!("{} full", format_share(share)))
        })
        .collect();
    let mut plots = bars("how full each resource was", &full);
    let ends = watch.samples.iter().scan(0.0, |at, sample| {
        *at += sample.seconds();
        Some(*at)
    });
    let times: Vec<f64> = ends.collect();
    let series = |name: String, of: &dyn Fn(&crate::counters::Counters) -> f64| Curve {
        name,
        points: watch.samples.iter().zip(&times).map(|(s, at)| (*at, of(s) / s.seconds().max(1e-9) / 1e6)).collect(),
    };
    let mut lines = Vec::new();
    for busy in watch.busy.iter().filter(|busy| busy.in_bytes_per_s + busy.out_bytes_per_s > 0.0).take(4) {
        let name = busy.name.clone();
        let bytes = |sample: &crate::counters::Counters| {
            let disk = sample.disks.get(&name).map_or(0, |disk| disk.read_bytes + disk.written_bytes);
            let interface = sample.interfaces.get(&name).map_or(0, |one| one.received_bytes + one.sent_bytes);
            (disk + interface) as f64
        };
        lines.push(series(busy.name.clone(), &bytes));
    }
    if times.len() > 1 {
        let ends = [times[0], times[times.len() - 1]].map(|at| (at, format!("{at:.1}")));
        plots.push_str(&curves("traffic over time", ("seconds", "MB/s"), &lines, None, &ends));
    }
    plots
}

fn factor_plots(factors: &Factors) -> String {
    let mut plots = String::new();
    for factor in &factors.factors {
        let bar = |level: &Level| Bar::new(&*level.name, level.rate.unwrap_or(0.0), level_value(factor, level));
        let all: Vec<Bar> = factor.levels.iter().map(bar).collect();
        let (name, words) = (escaped(&factor.name), escaped(&factor.words));
        let _ = write!(plots, "<h3>{name}</h3>\n<p>{words}</p>\n{}", bars(&factor.name, &all));
    }
    plots
}
