//! All numbers as one CSV table: stage, source, what, M, N, value, unit, note.

use super::Report;
use crate::factors::Factors;
use crate::probe::Unit;
use crate::results::Stage;

struct Lines {
    text: String,
    stage: &'static str,
    source: String,
}

impl Lines {
    fn add(&mut self, what: &str, cell: Option<(u64, u64)>, value: f64, unit: &str, note: &str) {
        let (m, n) = cell.map_or((String::new(), String::new()), |(m, n)| (m.to_string(), n.to_string()));
        // Missing figures have no value.
        let value = if value.is_nan() { String::new() } else { format!("{value}") };
        let fields = [self.stage, self.source.as_str(), what, m.as_str(), n.as_str(), value.as_str(), unit, note];
        self.text.push_str(&fields.map(quoted).join(","));
        self.text.push('\n');
    }
}

/// Quotes a field according to RFC 4180.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_string()
    }
}

pub fn csv(report: &Report) -> String {
    let mut lines =
        Lines { text: "stage,source,what,M,N,value,unit,note\n".to_string(), stage: "", source: String::new() };
    for source in &report.sources {
        lines.source = source.path.display().to_string();
        stage(&mut lines, &source.results.stage);
    }
    lines.text
}

fn stage(lines: &mut Lines, stage: &Stage) {
    match stage {
        Stage::Plan(plan) => {
            lines.stage = "plan";
            for direction in &plan.directions {
                for ceiling in &direction.ceilings {
                    let note = if ceiling.symbol == direction.binding { "binds" } else { "" };
                    lines.add(
                        &format!("{} {}", direction.name, ceiling.symbol),
                        None,
                        ceiling.bytes_per_s,
                        "B/s",
                        note,
                    );
                }
            }
        }
        Stage::Probe(probe) => {
            lines.stage = "probe";
            for measurement in &probe.measurements {
                let unit = match measurement.unit {
                    Unit::BytesPerSecond => "B/s",
                    Unit::OperationsPerSecond => "1/s",
                    Unit::Nanoseconds => "ns",
                };
                let what = format!("{}: {}", crate::probe::component(measurement), measurement.what);
                lines.add(&what, None, measurement.value, unit, "");
            }
            for part in &probe.left {
                lines.add(&format!("{part} missing"), None, f64::NAN, "", "not measured");
            }
        }
        Stage::Sweep(sweep) => {
            lines.stage = "sweep";
            for run in &sweep.runs {
                let unit = if run.kind.is_data() { "B/s" } else { "1/s" };
                let what = format!("{} {}", sweep.options.pattern.name, run.kind);
                let note = run.rejected.as_deref().unwrap_or("");
                lines.add(&what, Some((run.groups, run.processes)), run.rate, unit, note);
            }
            for hole in &sweep.holes {
                let what = format!("{} missing", sweep.options.pattern.name);
                lines.add(&what, Some((hole.groups, hole.processes)), f64::NAN, "", &hole.why);
            }
        }
        Stage::Watch(watch) => {
            lines.stage = "watch";
            for busy in &watch.busy {
                lines.add(&format!("{} in", busy.name), None, busy.in_bytes_per_s, "B/s", "");
                lines.add(&format!("{} out", busy.name), None, busy.out_bytes_per_s, "B/s", "");
                if let Some(share) = busy.share {
                    lines.add(&format!("{} full", busy.name), None, share, "share", "");
                }
            }
        }
        Stage::Factors(found) => factors(lines, found),
    }
}

fn factors(lines: &mut Lines, found: &Factors) {
    lines.stage = "factors";
    for factor in &found.factors {
        let unit = if factor.data { "B/s" } else { "1/s" };
        for (level, rate) in factor.levels.iter().filter_map(|level| Some((level, level.rate?))) {
            lines.add(&format!("{}: {}", factor.name, level.name), None, rate, unit, &factor.words);
            if let Some(bytes) = level.space_bytes {
                lines.add(&format!("{}: {}, space", factor.name, level.name), None, bytes as f64, "B", "");
            }
        }
    }
    for factor in &found.left {
        lines.add(&format!("{factor} missing"), None, f64::NAN, "", "not measured");
    }
}
