//! What was seen, as terminal text.

use std::fmt::Write;

use super::Watch;
use crate::table::Table;
use crate::units::{format_rate, format_seconds, format_share};

/// Tables and sentences, ready to print.
pub fn render(watch: &Watch) -> String {
    let mut text = String::new();
    let (time, status) = (format_seconds(watch.seconds), watch.status);
    let _ = writeln!(text, "{}: {time}, status {status}\n", watch.command.join(" "));
    let shares = &watch.shares;
    let [user, system, wait, idle, stolen] =
        [shares.user, shares.system, shares.io_wait, shares.idle, shares.stolen].map(format_share);
    let _ = writeln!(
        text,
        "processors: programs {user}, kernel {system}, waiting for devices {wait}, idle {idle}, stolen {stolen}\n"
    );
    let mut table = Table::new(["resource", "full", "in", "out"]);
    for busy in &watch.busy {
        let share = busy.share.map_or("?".to_string(), format_share);
        table.row([busy.name.clone(), share, format_rate(busy.in_bytes_per_s), format_rate(busy.out_bytes_per_s)]);
    }
    text.push_str(&table.render());
    text.push('\n');
    for finding in &watch.findings {
        let _ = writeln!(text, "{finding}");
    }
    let cost = format_share(watch.watcher_share);
    let _ =
        writeln!(text, "watching took {cost} of one processor; all figures but the program's are of the whole machine");
    text
}
