//! Factors as terminal text.

use super::levels::size_name;
use super::{Factor, Factors, Level};
use crate::table::Table;
use crate::units::{format_operations, format_rate, format_share};

pub fn render(factors: &Factors) -> String {
    let mut table = Table::new(["factor", "level", "rate", "+-"]);
    for factor in &factors.factors {
        for (number, level) in factor.levels.iter().enumerate() {
            let name = if number == 0 { factor.name.as_str() } else { "" };
            let spread = level.spread.map_or(String::new(), format_share);
            table.row([name.to_string(), level.name.clone(), value(factor, level), spread]);
        }
    }
    let (target, kind) = (factors.target.display(), &factors.behind.file_system);
    let mut text = format!("{target} ({kind})\n\n{}\n", table.render());
    for factor in &factors.factors {
        text.push_str(&format!("{}: {}\n", factor.name, factor.words));
    }
    if !factors.left.is_empty() {
        let left = factors.left.join("; ");
        text.push_str(&format!(
            "These are not all; the same command with the same -o file goes on. Not measured: {left}\n"
        ));
    }
    text
}

/// Returns a sentence about the space of files of a part of a block and of a block; `None` if not measured.
pub fn space(levels: &[Level]) -> Option<String> {
    let [small, whole, ..] = levels else { return None };
    let (small, whole) = (small.space_bytes?, whole.space_bytes?);
    let part = "a file of 1/32 of a block takes";
    Some(match small {
        0 => format!("{part} no space of its own"),
        _ if small >= whole => format!("{part} {}, as one of a block does: there are no sub-blocks", size_name(small)),
        _ => format!("{part} {}, one of a block {}", size_name(small), size_name(whole)),
    })
}

/// Returns a level's rate with its unit, or the reason why there is none.
pub fn value(factor: &Factor, level: &Level) -> String {
    let rate = match (level.rate, &level.refused) {
        (Some(rate), _) if factor.data => format_rate(rate),
        (Some(rate), _) => format_operations(rate),
        (None, Some(why)) => format!("- ({why})"),
        (None, None) => "-".to_string(),
    };
    match level.space_bytes {
        Some(bytes) => format!("{rate}, {} a file", size_name(bytes)),
        None => rate,
    }
}
