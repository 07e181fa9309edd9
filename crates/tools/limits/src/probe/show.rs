//! A probe as terminal text.

use std::fmt::Write;

use super::{Component, Measurement, Probe, Unit};
use crate::table::Table;
use crate::units::{format_nanoseconds, format_operations, format_rate, format_share};

/// Returns tables and sentences, ready to print.
pub fn render(probe: &Probe) -> String {
    let mut table = Table::new(["component", "what", "measured"]);
    for measurement in &probe.measurements {
        table.row([component(measurement), measurement.what.clone(), value(measurement)]);
    }
    let mut text = table.render();
    if !probe.promises.is_empty() {
        let mut table = Table::new(["document", "promised", "measured", "share"]);
        for promise in &probe.promises {
            let (promised, measured) = (promise.promised_bytes_per_s, promise.measured_bytes_per_s);
            let share = format_share(measured / promised);
            table.row([promise.field.clone(), format_rate(promised), format_rate(measured), share]);
        }
        let _ = write!(text, "\n{}", table.render());
    }
    let notes = || probe.findings.iter().chain(&probe.differences);
    if notes().next().is_some() {
        text.push('\n');
    }
    for note in notes() {
        let _ = writeln!(text, "note: {note}");
    }
    if !probe.left.is_empty() {
        let left = probe.left.join("; ");
        let _ = writeln!(text, "This is not all; the same command with the same -o file goes on. Not measured: {left}");
    }
    text
}

/// Returns the name of the component, or the directory of a medium.
pub fn component(measurement: &Measurement) -> String {
    let directory = measurement.directory.as_ref().map(|directory| directory.display().to_string());
    directory.unwrap_or_else(|| {
        match measurement.component {
            Component::Memory => "memory",
            Component::Processor => "processor",
            Component::Network => "network",
            Component::Peer => "wire",
            Component::Crossing => "FUSE",
            Component::Device => "device",
            Component::Media => "media",
        }
        .to_string()
    })
}

pub fn value(measurement: &Measurement) -> String {
    match measurement.unit {
        Unit::BytesPerSecond => format_rate(measurement.value),
        Unit::OperationsPerSecond => format_operations(measurement.value),
        Unit::Nanoseconds => format_nanoseconds(measurement.value),
    }
}
