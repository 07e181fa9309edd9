//! Results of `watch` as terminal text.

use std::fmt::Write;

use super::Watch;
use crate::table::Table;
use crate::units::{format_rate, format_seconds, format_share};

/// Returns tables and sentences, ready to print.
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
    if let Some(shares) = watch.profile.shares() {
        let told = shares.iter().filter(|(_, share)| *share > 0.0);
        let told: Vec<String> = told.map(|(what, share)| format!("{what} {}", format_share(*share))).collect();
        let looks = watch.profile.looks;
        let _ = writeln!(text, "the program's threads, when not idle: {} ({looks} looks)", told.join(", "));
    }
    for tier in watch.tiers.all() {
        let rate = |key: &str| format_rate(tier.grown(key) as f64 / watch.seconds.max(1e-9));
        let (hits, misses) = (tier.grown("hits"), tier.grown("misses"));
        let _ = writeln!(
            text,
            "forebay on {}: staged in {}, staged out {}, opens of complete replicas {hits}, of others {misses}, still dirty {} B",
            tier.directory.display(),
            rate("staged_in_bytes"),
            rate("staged_out_bytes"),
            tier.dirty_bytes()
        );
    }
    for finding in &watch.findings {
        let _ = writeln!(text, "{finding}");
    }
    let cost = format_share(watch.watcher_share);
    let _ =
        writeln!(text, "watching took {cost} of one processor; all figures but the program's are of the whole machine");
    text
}
