//! The page of documentation that the table of metrics makes.

use std::fmt::Write;

use crate::METRICS;

/// Returns `docs/metrics.md`, whole. A test compares the file with it; `FOREBAY_WRITE_DOCS=1 cargo test -p telemetry` rewrites it.
pub fn metrics_page() -> String {
    let mut page = String::from(
        "# Every number of a status\n\n\
         <!-- Made from crates/base/telemetry/src/table.rs: FOREBAY_WRITE_DOCS=1 cargo test -p telemetry -->\n\n\
         `forebay status --json` shows these numbers of each accelerated directory in `status`. What else a status \
         says is in [Metrics](book/reference/metrics.md). A dot in a name leads into an object: `windows.attached` is `attached` in `windows`. Counters start at zero when the agent or the server starts.\n\n\
         `windows` is null where no windows are served. `server` is there only if the burst buffer is behind a server. Where a \
         server has the names too, `server` is all there is: ask for the rest on the server's machine.\n\n\
         | metric | unit | stability | meaning |\n| --- | --- | --- | --- |\n",
    );
    for metric in METRICS {
        // Writing to a String cannot fail.
        let (unit, stability) = (metric.unit.word(), metric.stability.word());
        let _ = writeln!(page, "| `{}` | {unit} | {stability} | {} |", metric.name, metric.help);
    }
    page.push_str(
        "\nThe name, unit and meaning of a *stable* metric change only with an entry in the change log. An *internal* one describes \
         how Forebay works inside, and may change or vanish with any version.\n",
    );
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_the_repository_is_the_one_the_table_makes() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/metrics.md");
        if std::env::var_os("FOREBAY_WRITE_DOCS").is_some() {
            std::fs::write(path, metrics_page()).unwrap();
        }
        let page = std::fs::read_to_string(path).unwrap();
        assert_eq!(page, metrics_page(), "run FOREBAY_WRITE_DOCS=1 cargo test -p telemetry");
    }
}
