//! All figures as one HTML page with SVG bars: the newest of each case with its bar and the paper's figure, and the
//! history.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Row;
use crate::report::STYLE;
use crate::report::svg::{Bar, bars, escaped};

pub fn html(rows: &[Row]) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>The experiment book</title>\n\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body>\n\
         <h1>The experiment book</h1>\n<p>The newest figure of each case. Marked: below its bar, or rejected. A machine with more \
         load than processors had other work meanwhile.</p>\n"
    );
    let mut cases: BTreeMap<&str, BTreeMap<&str, Vec<&Row>>> = BTreeMap::new();
    for row in rows {
        cases.entry(&row.experiment).or_default().entry(&row.case).or_default().push(row);
    }
    for (experiment, cases) in cases {
        let shown: Vec<Bar> = cases.values().filter_map(|runs| Some(bar(runs.last()?))).collect();
        let _ = writeln!(page, "<h2>{}</h2>\n{}", escaped(experiment), bars(experiment, &shown));
        page.push_str("<details><summary>How they came to that</summary><ul>\n");
        for (case, runs) in cases {
            let told =
                runs.iter().map(|row| format!("{:.2} (load {:.1} of {})", row.value, row.load_average, row.processors));
            let _ = writeln!(page, "<li>{}: {}</li>", escaped(case), escaped(&told.collect::<Vec<_>>().join(", ")));
        }
        page.push_str("</ul></details>\n");
    }
    page.push_str("</body></html>\n");
    page
}

fn bar(row: &Row) -> Bar {
    let mut text = format!("{:.2} {}", row.value, row.unit);
    if let Some(bar) = row.bar {
        let _ = write!(text, ", bar {bar:.2}");
    }
    if let Some(paper) = row.paper {
        let _ = write!(text, ", paper {paper:.2}");
    }
    Bar { label: row.case.clone(), value: row.value, text, marked: !row.is_kept() }
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;

    #[test]
    fn the_newest_figure_is_shown_and_marked_below_its_bar_and_needs_no_network() {
        let page = html(&[row("E0-4", "write <8>", 2.5), row("E0-4", "write <8>", 1.5), row("E3-1", "read", 2.1)]);
        assert_eq!(page.matches("class=\"mark\"").count(), 1);
        for part in ["1.50 x, bar 2.00, paper 2.40", "write &lt;8&gt;: 2.50 (load 0.1 of 2), 1.50", "<h2>E3-1</h2>"] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        assert!(!page.contains("http") && !page.contains("<script"));
    }
}
